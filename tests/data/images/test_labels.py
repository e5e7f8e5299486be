"""What is no class of a whole image is refused by name, in every layout that has columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drawn_images import as_table, drawn, encoded, images, opened, write_tar

from podline.base.errors import SourceError
from podline.data.images.columns import LabelColumn, refuse_boxes
from podline.data.images.settings import ClassesSettings

pytestmark = pytest.mark.usefixtures("parsed_here")

COUNT = 60


def as_samples(folder: Path, **columns: Sequence[Any]) -> None:
    """A WebDataset with all columns in its samples' JSON."""
    members = {}
    for at, row in enumerate(zip(*columns.values(), strict=True)):
        said = json.dumps(dict(zip(columns, row, strict=True))).encode()
        members |= {f"{at:03}.png": encoded(drawn(at)), f"{at:03}.json": said}
    write_tar(folder / "part.tar", members)


def as_parquet_images(folder: Path, **columns: Sequence[Any]) -> None:
    folder.mkdir()
    pq.write_table(pa.table({"image": [encoded(drawn(at)) for at in range(COUNT)], **columns}), folder / "a.parquet")


def table(kind: str) -> Callable[..., None]:
    """Writes a table; without a column of labels if none is given."""

    def write(folder: Path, **columns: Sequence[Any]) -> None:
        path = as_table(folder, images(COUNT), kind, **columns) / f"labels.{kind}"
        if "label" not in columns:
            path.write_text(path.read_text().replace("label", "what", 1))

    return write


TEXTS = {"csv": table("csv"), "tsv": table("tsv"), "samples": as_samples, "parquet images": as_parquet_images}
LISTS = {"jsonl": table("jsonl"), "parquet": table("parquet"), "samples": as_samples}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize(
    ("columns", "problem", "classes"),
    [
        ({"label": ["cats|indoor|outdoor", "cats|indoor", "dogs"]}, r"'label' holds several labels .*'cats\|indoor", 3),
        ({"label": [at / 8 for at in range(COUNT)]}, r"holds 60 labels, .* 60 occur once.*labels_are_classes", 0),
        ({"label": ["cat", "dog"], "xmin": [1], "ymin": [2]}, r"boxes or outlines \('xmin', 'ymin'\)", 2),
        ({"cat": [1, 0, 0], "dog": [0, 1, 1]}, r"one column for each label.*'cat', 'dog'", 0),
    ],
)
def test_what_is_no_class_is_refused_unless_it_is_said_to_be_one(
    tmp_path: Path, kind: str, columns: dict[str, list[Any]], problem: str, classes: int
) -> None:
    folder = tmp_path / "raw"
    TEXTS[kind](folder, **{name: (COUNT * values)[:COUNT] for name, values in columns.items()})
    with pytest.raises(SourceError, match=f"{problem}.*labels_are_classes" if classes else problem):
        opened(folder)
    if classes:
        assert len(opened(folder, labels_are_classes=True).class_names) == classes
        with pytest.raises(SourceError, match=problem):
            opened(folder)  # though it is in the cache


@pytest.mark.parametrize("kind", LISTS)
def test_lists_are_refused(tmp_path: Path, kind: str) -> None:
    LISTS[kind](tmp_path / "raw", label=[["cat", "indoor"], ["dog"]] * (COUNT // 2))
    with pytest.raises(SourceError, match=r"column 'label' holds several labels per image, like \['cat', 'indoor'\]"):
        opened(tmp_path / "raw")


@pytest.mark.parametrize(
    "names", ["xmin ymin", "x_min y_min", "X1 Y1 X2 Y2", "left top", "bbox", "x_center y_center", "x y w h"]
)
def test_usual_names_of_boxes(names: str) -> None:
    with pytest.raises(SourceError, match="boxes"):
        refuse_boxes("a.csv", ["file", "label", *names.split()], ClassesSettings())
    refuse_boxes("a.csv", ["Filename", "Width", "Height", "Roi.X1", "Roi.Y1", "ClassId", "left"], ClassesSettings())
    refuse_boxes("a.csv", ["file", "label", "x", "y"], ClassesSettings())


def check(column: str, *values: Any) -> None:
    labels = LabelColumn()
    for value in values:
        labels.add(value)
    labels.refuse_unclear("a.csv", column, ClassesSettings())


@pytest.mark.parametrize(
    "values",
    [
        ("golden retriever", "labrador retriever", "german shepherd", "cat"),
        ("tench, Tinca tinca", "goldfish, Carassius auratus", "maillot", "maillot, tank suit"),
        ("0.5", "1.0", "large"),
        ("cat,indoor", "cat,outdoor", "dog,indoor", "dog,outdoor"),
        ("5.0", "4.5") * 20 + ("1.0",),
        ("cat", "dog", ["cat"]),
    ],
)
def test_names_of_classes_are_taken_as_they_are(values: Sequence[Any]) -> None:
    check("label", *values)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("label", ("cat;dog", "cat")),
        ("label", ("['cat', 'dog']", '["cat", "dog"]')),
        ("label", ({"a": 1}, {"b": 2})),
        ("caption", tuple(f"a photo of number {at}" for at in range(21))),
    ],
)
def test_several_labels_in_one(column: str, values: Sequence[Any]) -> None:
    with pytest.raises(SourceError, match=f"column '{column}' holds .*Podline reads one class"):
        check(column, *values)
