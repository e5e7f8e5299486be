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
from converted_images import converted
from markupsafe import Markup
from parsing_here import parsing_here
from PIL import Image, ImageFilter

from podline.cli import cli
from podline.data import record_table
from podline.data.versions import looks
from podline.data.versions.changed_data import block, compared
from podline.data.versions.looks import EVERY, Sample
from podline.documents.manifest import Manifest
from podline.report.run_sections import changes
from podline.stages.data_changes import DataChanges
from podline.store.opening import open_store

pytestmark = pytest.mark.usefixtures("parsed_here")

CLASSES = ("cat", "dog", "frog")
IMAGES = {"side": 24, "shard_bytes": 1_000_000}


def picture(number: int, blur: float = 0.0, ending: str = "png") -> bytes:
    """Return a file with noise of many sizes, whose pixels depend on a number."""
    chance = np.random.default_rng(number)
    layers = [chance.normal(0, 25, (24 // side, 24 // side, 3)).repeat(side, 0).repeat(side, 1) for side in (1, 2, 6)]
    pixels = np.clip(100 + chance.normal(0, 10) + sum(layers), 0, 255)
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


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    """A folder with a store, the source of its first version, and this version."""
    place = tmp_path_factory.mktemp("versions")
    add(place / "raw", 0, 150)
    with parsing_here():
        return place, converted(place / "root", place / "raw", **IMAGES)


def changed(first: tuple[Path, Manifest], tmp_path: Path, *, settings: dict[str, Any] | None = None) -> DataChanges:
    """Return what changed between the first version and one of the source in ``tmp_path``."""
    place, before = first
    after = converted(place / "root", tmp_path / "raw", **(IMAGES | (settings or {})))
    return compared(open_store(str(place / "root")), before, after)[0]


@pytest.fixture
def raw(first: tuple[Path, Manifest], tmp_path: Path) -> Path:
    """A copy of the first version's source."""
    return Path(shutil.copytree(first[0] / "raw", tmp_path / "raw"))


def test_a_quiet_night_counts_and_draws_what_changed(
    first: tuple[Path, Manifest], raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_table, "_AT_ONCE", 37)  # records are compared some at a time
    add(raw, 1_000, 20)
    (raw / "cat" / "3.png").unlink()
    (raw / "cat" / "4.png").rename(raw / "dog" / "4000.png")
    place, before = first
    after = converted(place / "root", raw, **IMAGES)
    result, found = compared(open_store(str(place / "root")), before, after)
    assert (result.added, result.removed, result.relabelled, result.moved) == (60, 1, 1, 0)
    assert result.relabels[0].endswith("cat → dog")
    assert not result.shifted
    assert result.looks[0].startswith("new images look like old ones: 60 new images vs ")
    assert "8 tests of brightness, contrast, Holm's correction" in result.looks[0], "sizes and formats are all equal"
    rows = {row.label: [one.caption for one in row.pictures] for row in block(found).rows}  # type: ignore[union-attr]
    assert (len(rows["added"]), len(rows["removed"]), rows["relabelled"][0].split("\n")[0]) == (8, 1, "dog")


def test_a_class_from_another_camera_is_found_and_no_other(
    first: tuple[Path, Manifest], raw: Path, tmp_path: Path
) -> None:
    add(raw, 1_000, 60, names=("cat",), blur=0.6, ending="jpeg")
    add(raw, 2_000, 60, names=("dog", "frog"))
    told = [line for line in changed(first, tmp_path).looks if "of class" in line]
    assert [line.split(" differ")[0] for line in told] == ["new images of class cat"]
    assert "format" in told[0]


def test_what_cannot_be_compared_is_said(first: tuple[Path, Manifest], raw: Path, tmp_path: Path) -> None:
    assert changed(first, tmp_path).sentences() == ["the same records"]
    add(raw, 1_000, 1, names=("owl",))
    shutil.rmtree(raw / "frog")
    found = changed(first, tmp_path)
    assert (found.new_classes, found.vanished_classes) == (("owl",), ("frog",))
    [told] = found.looks
    assert told == "0 new images and 0 old ones of the same classes: too few to compare, at least 8 of each are needed"
    other = changed(first, tmp_path, settings={"side": 32})
    assert other.looks[0].startswith("conversion settings differ (side 24 → 32)")
    assert (other.added, other.removed) == (1, 150)


@pytest.mark.usefixtures("stages_here")
def test_the_command_and_the_report_count_and_draw(first: tuple[Path, Manifest], raw: Path, tmp_path: Path) -> None:
    add(raw, 5_000, 2)
    place, _ = first
    after = converted(place / "root", raw, **IMAGES)
    arguments = ["data", "show", "images", "--root", str(place / "root")]
    ends = f"{first[1].fingerprint}..{after.fingerprint}"
    shown = CliRunner().invoke(cli, [*arguments, "--fingerprint", ends, "--sheet", str(tmp_path / "sheet.png")])
    assert shown.exit_code == 0, shown.output
    assert "6 added" in shown.output
    assert (tmp_path / "sheet.png").stat().st_size > 10_000
    run: Any = SimpleNamespace(store=open_store(str(place / "root")), manifest=after)
    assert "6 added" in (html := Markup().join(changes.blocks(run)))
    assert html.count("<img") >= 6
    alone: Any = SimpleNamespace(store=open_store(str(tmp_path / "other")), manifest=first[1])
    assert not list(changes.blocks(alone))
    refused = CliRunner().invoke(cli, [*arguments, "--sheet", "x.png"])
    assert "got --sheet with one version, expected two" in str(refused.exception)


def test_a_chance_is_as_rare_as_it_says() -> None:
    stratum = np.repeat([0, 1, 0, 1], [12, 8, 30, 30])  # two classes of 20 new and 60 old images
    is_new = np.arange(80) < 20
    sample = Sample(is_new, stratum, looks.groups_of(is_new, stratum, ["dark", "bright"]))
    draws = [np.random.default_rng(seed).integers(0, 5, 80) for seed in range(60)]  # many are equal
    found = [looks.p_values(sample, {"x": 100.0 * stratum + drawn})[EVERY, "x"] for drawn in draws]
    # Uniform: of 60, one below 0.001 has a probability of 6 %; ten below 0.05 one of 0.1 %.
    assert np.mean(found) > 0.4
    assert sum(chance <= 0.05 for chance in found) < 10
    shifted = looks.p_values(sample, {"x": draws[0] + 100.0 * stratum + 5 * (is_new & (stratum == 0))})
    assert shifted["dark", "x"] < 0.001
