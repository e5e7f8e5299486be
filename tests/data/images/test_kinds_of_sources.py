"""Sources that other programs and people write are read rightly, or a line says what they are, such as boxes."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drawn_images import as_table, drawn, encoded, images, opened, records, write_tar

from podline.base.errors import SourceError
from podline.data.images.columns import LabelColumn, refuse_boxes
from podline.data.images.settings import ClassesSettings

pytestmark = pytest.mark.usefixtures("parsed_here")

COUNT = 24
Write = Callable[[Path], object]


def image(number: int) -> bytes:
    return encoded(drawn(number))


def texts(name: str, *lines: str, images: Iterable[str] = (), encoding: str = "utf-8") -> Write:
    """A table as text, beside images."""

    def write(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines), encoding)
        for number, file in enumerate(images or (f"{at}.png" for at in range(COUNT))):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(image(number))

    return write


def rows(*labels: str, form: str = "{at}.png,{label}", start: int = 0, count: int = COUNT) -> list[str]:
    """Lines of a table, with labels in turn."""
    return [form.format(at=at, label=labels[at % len(labels)]) for at in range(start, start + count)]


def files(*names: str) -> Write:
    """Images of some names; ``*`` makes four of them."""
    every = [name.replace("*", f"{at}.png") for name in names for at in range(4 if "*" in name else 1)]

    def write(folder: Path) -> None:
        for number, name in enumerate(every):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(image(number))

    return write


def samples(*members: tuple[str, Callable[[int], bytes]], name: str = "part.tar", by_ending: bool = False) -> Write:
    """A tar of samples: each member's name and content by number."""
    names = [(name.format(at), make(at)) for at in range(COUNT) for name, make in members]
    ordered = sorted(names, key=lambda named: named[0][::-1]) if by_ending else names
    return lambda folder: write_tar(folder / name, dict(ordered))


def said(*values: Any) -> Callable[[int], bytes]:
    """Contents in turn: text as it is, other values as JSON."""
    every = [value.encode() if isinstance(value, str) else json.dumps(value).encode() for value in values]
    return lambda at: every[at % len(every)]


def parquet(name: str, start: int = 0, count: int = COUNT, **columns: Any) -> Write:
    """A Parquet file with images; a column is a list in turn, or an array."""

    def write(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        table: dict[str, Any] = {"image": [image(at) for at in range(start, start + count)]}
        for column, values in columns.items():
            table[column] = (
                values(table["image"]) if callable(values) else [values[at % len(values)] for at in range(count)]
            )
        pq.write_table(pa.table(table), folder / name)

    return write


def both(*writes: Write) -> Write:
    return lambda folder: [write(folder) for write in writes]


BOM, NFD = "\ufeff", unicodedata.normalize("NFD", "Åse ñandú")
TWO = {"cat": 12, "dog": 12}
OBJECTS = '{{"image": "{at}.png", "category": {{"id": 1, "title": "{label}"}}}}'


class Read(NamedTuple):
    """A source, its images by class or its records by split, what notes say of it, and settings."""

    write: Write
    expected: Mapping[str, int] | tuple[int, ...] = TWO
    line: str = ""
    settings: Mapping[str, Any] = {}


def tables(first: Sequence[str], second: Sequence[str], name: str = "test.csv") -> Write:
    """Two tables."""
    return both(texts("train.csv", *first), texts(name, *second))


LABELLED = ("image,label", *rows("cat", "dog", count=16))
READ: dict[str, Read] = {
    "numbers with zeros behind": Read(
        texts("a.tsv", "image\tlabel", *rows("3", "3.00", "5e0", form="{at}.png\t{label}")), {"3": 16, "5": 8}
    ),
    "a comma that may group thousands": Read(
        texts("a.tsv", "image\tlabel", *rows("1", "1,000", "2,000", form="{at}.png\t{label}")),
        {"1": 8, "1,000": 8, "2,000": 8},
    ),
    "leading zeros": Read(
        texts("a.csv", "image,label", *rows("007", "7", "8")), {"007": 8, "7": 8, "8": 8}, "'007' and '7'.*one name"
    ),
    "blanks and marks": Read(texts("a.csv", f"{BOM} image , label ", *rows("cat\u00a0", f"{BOM}cat", "dog", "dog "))),
    "blanks in names of JSON Lines": Read(
        texts("a.jsonl", *rows("cat", "dog", form='{{"image": "{at}.png", " label ": "{label}"}}'))
    ),
    "blanks in names of Parquet": Read(parquet("a.parquet", **{" label ": ["cat", "dog"]})),
    "a column of bytes without values": Read(
        both(
            lambda folder: folder.mkdir(),
            lambda folder: pq.write_table(
                pa.table({"image": pa.nulls(9, pa.binary()), "size": [*range(9)]}), folder / "a.parquet"
            ),
            texts("labels.csv", "image,label", *rows("cat", "dog")),
        ),
        line="a.parquet is not read.*none for labels",
    ),
    "a part without rows": Read(
        both(parquet("0.parquet", label=["cat", "dog"]), parquet("1.parquet", 0, 0, label=["cat"]))
    ),
    "a table beside images": Read(
        both(
            texts("labels.csv", "image,label", "a.png,cat", images=[".hidden"]),
            parquet("a.parquet", label=["cat", "dog"]),
        ),
        line="labels.csv is not read.*another table has the images",
    ),
    "bytes without a name": Read(parquet("a.parquet", **{"": [b"x" * 99], "label": ["cat", "dog"]})),
    "a column that the first row omits, and some that most do": Read(
        texts(
            "a.jsonl",
            '{"image": "0.png", "label": "cat"}',
            '{"image": "1.png", "label": "dog", "split": "train", "category": "a pet", "bbox": []}',
            *rows("dog", form='{{"image": "{at}.png", "label": "{label}", "split": "train"}}', start=2, count=10),
            *rows("cat", form='{{"image": "{at}.png", "label": "{label}", "split": "train"}}', start=12, count=4),
            *rows("cat", "dog", form='{{"image": "{at}.png", "label": "{label}", "split": "test"}}', start=16, count=8),
        ),
        (16, 8),
        "tested on test",
    ),
    "a label named like a split": Read(
        texts("a.csv", "image,is_valid", *rows("0", "1")), {"0": 12, "1": 12}, settings={"label_column": "is_valid"}
    ),
    "a label in two forms": Read(
        texts("a.csv", "image,label", *rows(NFD, unicodedata.normalize("NFC", NFD), "x")), {"Åse ñandú": 16, "x": 8}
    ),
    "names in another form": Read(
        texts(
            "a.csv",
            "image,label",
            *rows("cat", "dog", form=f"{NFD}/{{at}} ,{{label}}"),
            images=[f"Åse ñandú/{at}.png" for at in range(COUNT)],
        )
    ),
    "a separator of Excel": Read(
        texts("a.csv", "sep=\t", "image\tlabel\t\t", *rows("cat", "dog", form='"{at}.png" \t{label}\t\t'), "\t\t\t")
    ),
    "a comma in a header": Read(
        texts("a.csv", "image;label;size, in mm", *rows("cat", "dog", form="{at}.png;{label};1,5")),
        line="not read: size, in mm",
    ),
    "objects": Read(texts("a.jsonl", *rows("cat", "dog", form=OBJECTS)), settings={"label_column": "category.title"}),
    "folders of a table": Read(
        both(*(parquet(f"kind={label}/part-0.parquet", start, 12) for label, start in (("a%20cat", 0), ("dog", 12)))),
        {"a cat": 12, "dog": 12},
        settings={"label_column": "kind"},
    ),
    "lists and texts as bytes": Read(
        parquet(
            "a.parquet",
            label=[b"cat", b"dog"],
            image=lambda data: pa.array([[*each] for each in data], pa.list_(pa.int16())).cast(pa.list_(pa.uint8())),
        )
    ),
    "decimals": Read(parquet("a.parquet", label=[Decimal("1.00"), Decimal("2.00")]), {"1": 12, "2": 12}),
    "an object in a list": Read(
        samples(("{}.png", image), ("{}.json", said({"label": [{"name": "cat"}]}, {"label": [{"name": "dog"}]}))),
        settings={"label_column": "label.name"},
    ),
    "hidden members": Read(
        samples(
            ("./{}.png", image),
            ("./.DS_Store", said("x")),
            ("__MACOSX/._{}.png", said("x")),
            ("./{}.cls", said(f"{BOM}cat\r\n", "dog")),
        )
    ),
    "a mask and a text": Read(
        samples(("{}.png", image), ("{}.mask.png", lambda at: image(at + 100)), ("{}.txt", said("cat", "dog")))
    ),
    "one of two images": Read(
        samples(("{}.png", lambda at: image(at + 100)), ("{}.webp", image), ("{}.cls", said("cat", "dog"))),
        settings={"file_column": ".webp"},
    ),
    "a class in a class": Read(
        files("cat/*", "cat/new/*", "dog/*"),
        {"cat": 4, "cat/new": 4, "dog": 4},
        "cat/ and cat/new/ both have images.*class_depth=1",
    ),
    "classes by their first folder": Read(
        files("cat/*", "cat/new/*", "dog/2024/may/*"), {"cat": 8, "dog": 4}, settings={"class_depth": 1}
    ),
    "predictions": Read(
        tables(LABELLED, ["image,label", *rows("cat", start=16, count=8)], "my_predictions.csv"),
        {"cat": 8, "dog": 8},
        "my_predictions.csv is not read.*by its name",
    ),
    "a table without labels": Read(
        tables(LABELLED, ["image", *rows("", form="{at}.png", start=16, count=8)]),
        {"cat": 8, "dog": 8},
        "test.csv is not read.*none for labels",
    ),
    "a table that cannot be read": Read(
        both(
            texts("train.csv", "image,label", *rows("cat", "dog")),
            lambda folder: (folder / "val.csv").write_bytes(b"image,label\n\xff"),
        ),
        line="val.csv is not read.*: cannot be read as a table: Unicode.*UTF-8",
    ),
    "joined tables": Read(
        both(
            texts("a.csv", "image,label", *rows("cat", count=12)),
            texts("b.csv", "image,label", *rows("dog", start=12, count=12)),
        ),
        line="a.csv and b.csv are read as one",
    ),
    "a placeholder": Read(
        tables(LABELLED, ["image,label", *rows("cat", start=16, count=8)]),
        {"cat": 16, "dog": 8},
        "test.csv has only one label, 'cat'",
    ),
    "its own store and data set": Read(
        both(
            files("cat/*", "dog/*", "old/*", "root/datasets/x/*"),
            lambda folder: (folder / "root/.podline").mkdir(),
            *(
                texts(f"old/{name}", "{}", images=["cat/0.png"])
                for name in ("manifest.json", "features.json", "stages/convert.json")
            ),
        ),
        {"cat": 4, "dog": 4},
    ),
    "a column of the tested": Read(
        texts("a.csv", "image,is_test,label", *rows("TRUE,cat", "FALSE,dog", "false,cat", ",dog")),
        (18, 6),
        "tested on test",
    ),
    "a column of the trained": Read(
        parquet("a.parquet", label=["cat", "dog"], is_training_image=[True, True, True, False]),
        (18, 6),
        "tested on test",
    ),
    "two columns of splits": Read(
        texts("a.csv", "image,is_val,holdout,label", *rows("0,0,cat", "1,0,dog", "0,1.0,cat", "0,0.0,dog")),
        (12, 6, 6),
        "validated on val",
    ),
    "columns that are not wanted": Read(
        texts("a.csv", "image,is_test,label", *rows("1,cat", "0,dog")),
        (23, 1),
        "not read: is_test",
        {"split_column": "none", "test_share": 0.01},
    ),
    "a split of a tar without labels": Read(
        both(
            samples(("{}.png", image), ("{}.cls", said("0", "1")), name="train.tar"),
            samples(("{}.png", lambda at: image(at + 50)), ("{}.cls", said("-1")), name="test.tar"),
        ),
        (23, 1),
        "the split test has no labels",
        {"test_share": 0.01},
    ),
    "a split of Parquet without labels": Read(
        both(
            parquet("train-0.parquet", 0, 12, label=["cat", "dog"]),
            parquet("val-0.parquet", 12, 4, label=["cat"]),
            parquet("test-0.parquet", 16, 8),
        ),
        (12, 4),
        "test-0.parquet is not read",
    ),
    "a split without class folders": Read(
        files("train/cat/*", "train/dog/*", "val/cat/*", "test/*"), (8, 4), "the split test has no labels"
    ),
    "splits of a table's folders": Read(
        both(
            *(
                parquet(f"split={split}/label={label}/0.parquet", 4 * at, 4)
                for at, (split, label) in enumerate((("train", "1"), ("train", "2"), ("test", "1"), ("test", "2")))
            )
        ),
        (8, 8),
        "tested on test",
    ),
}


@pytest.mark.parametrize("kind", READ)
def test_a_kind_that_is_read(tmp_path: Path, kind: str) -> None:
    write, expected, line, settings = READ[kind]
    write(tmp_path / "raw")
    source = opened(tmp_path / "raw", **settings, near_share=1)
    if isinstance(expected, tuple):
        assert tuple(source.sizes.values()) == expected
    else:
        assert Counter(label for _, label, _ in records(source)) == expected
    assert sum(part.reasons.total() for part in source.left_out) == 0
    notes = "\n".join(source.notes())
    assert re.search(line, notes), notes
    assert line or (len(source.notes()) == 2 and "not read" not in notes), notes


REFUSED: dict[str, tuple[Write, str]] = {
    "an invisible character": (
        files("cat/*", "do\u00adg/*"),
        r"'do\\xadg' has the character U\+00AD.*rename the class",
    ),
    "predictions alone": (
        texts("submission.csv", "image,label", *rows("cat", "dog")),
        "submission.csv has predicted labels.*give the table",
    ),
    "an empty table": (texts("a.csv"), "a.csv has no columns, .*add a header"),
    "objects": (
        texts("a.jsonl", *rows("cat", "dog", form=OBJECTS)),
        "'category' holds objects.*label_column=category.title",
    ),
    "unsorted samples": (
        samples(("{}.png", image), ("{}.cls", said("cat", "dog")), by_ending=True),
        "members of 0 are not adjacent.*`tar --sort=name`",
    ),
    "dots in keys": (
        samples(("1.{}.png", image), ("1.{}.json", said({"label": "cat"}))),
        r"ends the key of 1\.0\.json at the first dot.*`mkdir",
    ),
    "two images": (
        samples(("{}.png", image), ("{}.webp", image), ("{}.cls", said("cat", "dog"))),
        "has 2 images, png, webp, vs one image; choose .*file_column=png",
    ),
    "a folder above in one split": (
        files("train/animals/cat/*", "train/animals/dog/*", "test/cat/*", "test/dog/*"),
        "'cat' and 'animals/cat'.*use one name",
    ),
    "a store": (
        lambda folder: [(folder / name).mkdir(parents=True) for name in (".podline", "datasets")],
        "is a store of Podline; give another folder",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_kind_that_is_refused_with_its_reason(tmp_path: Path, kind: str) -> None:
    write, problem = REFUSED[kind]
    write(tmp_path / "raw")
    with pytest.raises(SourceError, match=problem):
        opened(tmp_path / "raw", near_share=1)


MANY = 60


def as_samples(folder: Path, **columns: Sequence[Any]) -> None:
    """A WebDataset with all columns in its samples' JSON."""
    members = {}
    for at, row in enumerate(zip(*columns.values(), strict=True)):
        said = json.dumps(dict(zip(columns, row, strict=True))).encode()
        members |= {f"{at:03}.png": encoded(drawn(at)), f"{at:03}.json": said}
    write_tar(folder / "part.tar", members)


def as_parquet_images(folder: Path, **columns: Sequence[Any]) -> None:
    folder.mkdir()
    pq.write_table(pa.table({"image": [encoded(drawn(at)) for at in range(MANY)], **columns}), folder / "a.parquet")


def table(kind: str) -> Callable[..., None]:
    """Writes a table; without a column of labels if none is given."""

    def write(folder: Path, **columns: Sequence[Any]) -> None:
        path = as_table(folder, images(MANY), kind, **columns) / f"labels.{kind}"
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
        ({"label": [at / 8 for at in range(MANY)]}, r"holds 60 labels, .* 60 occur once.*labels_are_classes", 0),
        ({"label": ["cat", "dog"], "xmin": [1], "ymin": [2]}, r"boxes or outlines \('xmin', 'ymin'\)", 2),
        ({"cat": [1, 0, 0], "dog": [0, 1, 1]}, r"one column for each label.*'cat', 'dog'", 0),
    ],
)
def test_what_is_no_class_is_refused_unless_it_is_said_to_be_one(
    tmp_path: Path, kind: str, columns: dict[str, list[Any]], problem: str, classes: int
) -> None:
    folder = tmp_path / "raw"
    TEXTS[kind](folder, **{name: (MANY * values)[:MANY] for name, values in columns.items()})
    with pytest.raises(SourceError, match=f"{problem}.*labels_are_classes" if classes else problem):
        opened(folder)
    if classes:
        assert len(opened(folder, labels_are_classes=True).class_names) == classes
        with pytest.raises(SourceError, match=problem):
            opened(folder)  # though it is in the cache


@pytest.mark.parametrize("kind", LISTS)
def test_lists_are_refused(tmp_path: Path, kind: str) -> None:
    LISTS[kind](tmp_path / "raw", label=[["cat", "indoor"], ["dog"]] * (MANY // 2))
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
        ("cat", "dog", "[{[]: 1}]"),
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
