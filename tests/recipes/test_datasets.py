"""An installed data set is found by name, with settings of its own that a recipe, a spec and a manifest keep."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from podline.base import entry_points
from podline.base.errors import SettingsError, SourceError, StoreError
from podline.base.progress import silent
from podline.data.sources.source import open_raw
from podline.documents.manifest import MANIFEST, Manifest
from podline.ledger.inventory.catalogue import dataset_for
from podline.recipes import datasets, registry
from podline.recipes.datasets import ConverterSettings, DataSet
from podline.recipes.settings import Recipe
from podline.stages.from_recipe import converter_settings
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store


class Tiles(ConverterSettings):
    tile: int = 8


def broken(*_given: object) -> None:
    raise KeyError("X")


TILES = DataSet("tiles", open="test_datasets:broken", settings="test_datasets:Tiles", version=2)
NOT_ONE = 3


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    found = [EntryPoint("tiles", "test_datasets:TILES", datasets.ENTRY_POINTS)]
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setattr(entry_points, "installed", lambda group: found if group == datasets.ENTRY_POINTS else [])
    return found


@pytest.mark.parametrize("name", datasets.DATA_SETS)
def test_what_a_shipped_one_names_is_there(name: str) -> None:
    dataset = datasets.find(name)
    for place in (dataset.open, dataset.settings, dataset.draw, dataset.published):
        assert not place or dataset.code(place) is not None


@pytest.mark.parametrize(
    ("name", "place", "words"),
    [
        ("tiles", "NOT_ONE", r"NOT_ONE of test_datasets\): got \w+, expected a podline\.recipes\.datasets\.DataSet"),
        ("other", "TILES", "got the name 'tiles', expected 'other'"),
        ("mnist", "TILES", "data set mnist .test_datasets:TILES of .*: another data set has this name"),
    ],
)
def test_an_installed_one_that_cannot_be_is_one_clear_line(
    points: list[EntryPoint], name: str, place: str, words: str
) -> None:
    points[0] = EntryPoint(name, f"test_datasets:{place}", datasets.ENTRY_POINTS)
    with pytest.raises(SettingsError, match=words):
        datasets.find(name)


def test_its_settings_stand_beside_the_others(points: list[EntryPoint]) -> None:
    given = {"root": "r", "dataset": "tiles", "source": "s", "tile": 4}
    spec = ConvertSpec.model_validate(given)
    assert (spec.settings, spec.model_dump(mode="json")["tile"]) == (Tiles(tile=4), 4)
    with pytest.raises(SettingsError, match="tiel: the data set tiles has no such setting; did you mean 'tile'"):
        ConvertSpec.model_validate({**given, "tiel": 4})
    with pytest.raises(SettingsError, match="data set tiles: tile = 'a': Input should be a valid integer"):
        ConvertSpec.model_validate({**given, "tile": "a"})
    points.clear()
    gone = ConvertSpec.model_validate_json(spec.model_dump_json())
    assert (gone.digest(), gone.model_dump_json()) == (spec.digest(), spec.model_dump_json())


def test_what_its_code_raises_is_about_the_source(points: list[EntryPoint], tmp_path: Path) -> None:
    assert points
    with pytest.raises(SourceError, match="raw cannot be read as tiles: KeyError: 'X'"):
        open_raw(datasets.find("tiles"), "raw", Tiles(), tmp_path)
    gone = DataSet("gone", open="no_such_module:open")
    with pytest.raises(SettingsError, match="data set gone: no_such_module:open: ModuleNotFoundError"):
        open_raw(gone, "raw", ConverterSettings(), tmp_path)


def test_a_recipe_of_an_unknown_data_set_can_be_read() -> None:
    document = {"name": "mine", "dataset": "gone"}
    assert Recipe.model_validate(document).kind == "classification"
    assert Recipe.model_validate({**document, "task": {"kind": "pose"}}).kind == "pose"


def test_a_recipe_sets_them_and_is_trained_on_what_was_converted_with_them(
    points: list[EntryPoint], tmp_path: Path
) -> None:
    recipe = registry.override(Recipe(name="mine", dataset="tiles"), {"conversion": {"tile": 4}})
    assert converter_settings("tiles", recipe, {}) == Tiles(tile=4)
    assert converter_settings("tiles", recipe, {"tile": 2}) == Tiles(tile=2)
    store = open_store(str(tmp_path))
    empty = {"fields": (), "class_names": (), "splits": (), "source": (), "quarantined": ()}
    for tile in (4, 8):
        converted = {"dataset": "tiles", "fingerprint": f"{tile}" * 16, "converter": {"tile": tile}}
        manifest = Manifest(**empty, **converted, record_length=1, read=0, written=0)
        store.publish_bytes(f"datasets/tiles/{manifest.fingerprint}/{MANIFEST}", manifest.to_bytes())
    assert dataset_for(store, recipe, None, silent()).fingerprint == "4" * 16
    points.clear()
    assert dataset_for(store, recipe, None, silent()).fingerprint == "4" * 16
    with pytest.raises(StoreError, match="has no data set tiles, tile 5; make one"):
        dataset_for(store, recipe.model_copy(update={"conversion": {"tile": 5}}), None, silent())
