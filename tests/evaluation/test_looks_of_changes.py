"""Two versions of one's own images are compared: what changed, and whether new images look like old ones."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from parsing_here import parsing_here
from PIL import Image, ImageFilter

from podline.beam_jobs.conversion import convert
from podline.cli import cli
from podline.documents.manifest import Manifest, read_manifest
from podline.documents.versions import versions
from podline.evaluation.changed_data import block, compared
from podline.inventory.catalogue import version_before
from podline.progress import silent
from podline.reporting.blocks import html_of
from podline.reporting.run_sections import changes
from podline.stages.data_changes import DataChanges
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store

pytestmark = pytest.mark.usefixtures("parsed_here")

CLASSES = ("cat", "dog", "frog")


def picture(number: int, gain: float = 1.0, blur: float = 0.0, ending: str = "png") -> bytes:
    """Return a file with noise of many sizes, whose pixels depend on a number."""
    chance = np.random.default_rng(number)
    layers = [chance.normal(0, 25, (24 // side, 24 // side, 3)).repeat(side, 0).repeat(side, 1) for side in (1, 2, 6)]
    pixels = np.clip((100 + chance.normal(0, 10) + sum(layers)) * gain, 0, 255)
    image = Image.fromarray(pixels.astype(np.uint8))
    stream = io.BytesIO()
    (image.filter(ImageFilter.GaussianBlur(blur)) if blur else image).save(stream, ending)
    return stream.getvalue()


def add(folder: Path, first: int, count: int, names: tuple[str, ...] = CLASSES, **looks: Any) -> None:
    """Add images with these numbers to each class."""
    for place, name in enumerate(names):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(first, first + count):
            path = folder / name / f"{number}.{looks.get('ending', 'png')}"
            path.write_bytes(picture(number + 10_000 * place, **looks))


def version(root: Path, folder: Path, **settings: Any) -> Manifest:
    given = {"root": str(root), "dataset": "images", "source": str(folder), "side": 24, **settings}
    result = convert(ConvertSpec.model_validate(given), silent())
    return read_manifest(open_store(str(root)), result.folder)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    """A folder with a store, the source of its first version, and this version."""
    place = tmp_path_factory.mktemp("versions")
    add(place / "raw", 0, 150)
    with parsing_here():
        return place, version(place / "root", place / "raw")


def changed(first: tuple[Path, Manifest], tmp_path: Path, *, settings: dict[str, Any] | None = None) -> DataChanges:
    """Return what changed between the first version and one of the source in ``tmp_path``."""
    place, before = first
    after = version(place / "root", tmp_path / "raw", **(settings or {}))
    return compared(open_store(str(place / "root")), before, after)[0]


@pytest.fixture
def raw(first: tuple[Path, Manifest], tmp_path: Path) -> Path:
    """A copy of the first version's source."""
    return Path(shutil.copytree(first[0] / "raw", tmp_path / "raw"))


def test_a_quiet_night_counts_and_draws_what_changed(first: tuple[Path, Manifest], raw: Path, tmp_path: Path) -> None:
    add(raw, 1_000, 20)
    (raw / "cat" / "3.png").unlink()
    (raw / "cat" / "4.png").rename(raw / "dog" / "4000.png")
    place, before = first
    after = version(place / "root", raw)
    result, found = compared(open_store(str(place / "root")), before, after)
    assert (result.added, result.removed, result.relabelled, result.moved) == (60, 1, 1, 0)
    assert result.relabels[0].endswith("cat → dog")
    assert not result.shifted
    assert result.looks[0].startswith("new images look like old ones, error of a classifier ")
    rows = {row.label: [one.caption for one in row.pictures] for row in block(found).rows}  # type: ignore[union-attr]
    assert (len(rows["added"]), len(rows["removed"]), rows["relabelled"][0].split("\n")[0]) == (8, 1, "dog")


def test_brighter_images_are_found_and_named(first: tuple[Path, Manifest], raw: Path, tmp_path: Path) -> None:
    add(raw, 1_000, 60, gain=1.1)
    found = changed(first, tmp_path)
    assert found.shifted
    assert found.looks[0].startswith("new images differ: brightness +")
    assert " size" not in " ".join(found.looks)


def test_a_class_from_another_camera_is_found_and_no_other(
    first: tuple[Path, Manifest], raw: Path, tmp_path: Path
) -> None:
    add(raw, 1_000, 60, names=("cat",), blur=0.6, ending="jpeg")
    add(raw, 2_000, 60, names=("dog", "frog"))
    told = [line for line in changed(first, tmp_path).looks if "of class" in line]
    assert [line.split(" differ")[0] for line in told] == ["new images of class cat"]
    assert "format" in told[0]
    assert "error of a classifier" in told[0]


def test_what_cannot_be_compared_is_said(first: tuple[Path, Manifest], raw: Path, tmp_path: Path) -> None:
    assert changed(first, tmp_path).sentences() == ["the same records"]
    add(raw, 1_000, 1, names=("owl",))
    shutil.rmtree(raw / "frog")
    found = changed(first, tmp_path)
    assert (found.new_classes, found.vanished_classes) == (("owl",), ("frog",))
    [told] = found.looks
    assert told.startswith("0 new images of classes with old ones: too few")
    other = changed(first, tmp_path, settings={"side": 32})
    assert other.looks[0].startswith("other settings (side 24 → 32)")
    assert (other.added, other.removed) == (1, 150)


def test_the_report_has_a_section_where_there_is_a_version_before(
    first: tuple[Path, Manifest], raw: Path, tmp_path: Path
) -> None:
    add(raw, 7_000, 2)
    store = open_store(str(first[0] / "root"))
    after = version(first[0] / "root", raw)
    names = [one.fingerprint for one in versions(store, "images")]
    before = version_before(store, after)
    assert before is not None
    assert before.fingerprint == names[-2]
    run: Any = SimpleNamespace(store=store, manifest=after)
    html = html_of(changes.blocks(run))
    assert "6 added" in html
    assert html.count("<img") >= 6
    alone: Any = SimpleNamespace(store=open_store(str(tmp_path / "other")), manifest=first[1])
    assert not list(changes.blocks(alone))


@pytest.mark.usefixtures("stages_here")
def test_the_command_answers_and_draws(first: tuple[Path, Manifest], raw: Path, tmp_path: Path) -> None:
    add(raw, 5_000, 2)
    place, _ = first
    after = version(place / "root", raw)
    arguments = ["data", "show", "images", "--root", str(place / "root")]
    ends = f"{first[1].fingerprint}..{after.fingerprint}"
    shown = CliRunner().invoke(cli, [*arguments, "--fingerprint", ends, "--sheet", str(tmp_path / "sheet.png")])
    assert shown.exit_code == 0, shown.output
    assert "6 added" in shown.output
    assert (tmp_path / "sheet.png").stat().st_size > 10_000
    refused = CliRunner().invoke(cli, [*arguments, "--sheet", "x.png"])
    assert "got --sheet and one version, expected two" in str(refused.exception)
