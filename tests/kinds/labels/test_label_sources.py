"""Sources of images with several labels: every layout gives the same records, and says what it cannot read."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drawn_images import encoded
from PIL import Image
from several_labels import LAYOUTS, Labelled, as_files, as_json_lines, drawn

from podline.data.images.opening import open_images
from podline.data.sources.source import Source
from podline.documents.manifest import Manifest
from podline.kinds.labels.data_sets import LabelledImages
from podline.kinds.labels.records import LabelTargets
from podline.recipes import datasets

pytestmark = pytest.mark.usefixtures("parsed_here")


def opened(folder: Path, **settings: Any) -> Source:
    """Images 16 pixels large, out of a source; the cache is beside it."""
    return open_images(
        datasets.find("labels"), str(folder), LabelledImages(**{"side": 16, **settings}), folder.parent / "work"
    )


def labels_of(source: Source) -> dict[bytes, set[str]]:
    """The pixels of each image → the labels that its record has."""
    found = {}
    for split in source.splits:
        records = split.read(np.arange(len(split)))
        for pixels, labels in zip(records["image"], records["labels"], strict=True):
            found[pixels.tobytes()] = {source.class_names[place] for place in np.flatnonzero(labels)}
    return found


def test_every_layout_gives_every_image_its_labels(tmp_path: Path) -> None:
    images, content = drawn(), set()
    expected = {np.asarray(Image.open(io.BytesIO(each.data))).tobytes(): set(each.labels) for each in images}
    for layout in LAYOUTS:
        layout(tmp_path / layout.__name__, images)
        source = opened(tmp_path / layout.__name__)
        assert labels_of(source) == expected, layout.__name__
        assert (source.class_names, source.sizes) == (("blue", "green", "red"), {"train": 80, "test": 40})
        content.add(source.files[0].sha256)
    assert len(content) == 1, "the fingerprint does not depend on the layout"


def test_numbers_of_a_list_are_the_names_in_parquets_metadata(tmp_path: Path) -> None:
    features = {"labels": {"feature": {"names": ["sea", "sky"], "_type": "ClassLabel"}, "_type": "Sequence"}}
    images, numbers = drawn(4), [[1], [0, 1], [1], [7]]
    columns = {
        "image": [{"bytes": each.data, "path": ""} for each in images],
        "labels": pa.array(numbers, pa.list_(pa.int64())),
    }
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.table(columns).replace_schema_metadata(metadata)
    for split, rows in (("train", table.slice(0, 2)), ("test", table.slice(2))):
        pq.write_table(rows, tmp_path / f"{split}.parquet")
    source = opened(tmp_path)
    assert source.class_names == ("sea", "sky")
    assert set(map(frozenset, labels_of(source).values())) == {frozenset({"sky"}), frozenset({"sea", "sky"})}
    [left] = source.quarantined
    assert (left.record, left.reason) == ("test.parquet[1]", "has the label 7, expected 0 to 1")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (["b", "a", "b"], '["a", "b"]'),
        ("", "[]"),
        ("a|b, c", '["a", "b, c"]'),
        ("a, b", '["a", "b"]'),
        ('["a, b", "c"]', '["a, b", "c"]'),
        ("['a', \"b's\"]", '["a", "b\'s"]'),
        ({"a": 1, "b": 0, "c": True}, '["a", "c"]'),
        ([3, 20], '["20", "3"]'),
        (np.int64(3), '["3"]'),
        ([np.int64(3), np.str_("a"), b"b"], '["3", "a", "b"]'),
    ],
)
def test_one_target_has_one_text(value: Any, text: str) -> None:
    assert LabelTargets().text(value) == text


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, r"has the labels None, expected a list of names \(\[\] for no label\)"),
        ({"a": 2}, "expected a list of names"),
        (["a\nb"], r"has the label 'a\\nb', which has the character U\+000A"),
        ("[a, b]", r"has the labels '\[a, b\]', expected a list"),
        ("[{[]: 1}]", r"has the labels '\[\{\[\]: 1\}\]', expected a list"),
        (f"{'[' * 9_999}{']' * 9_999}", "expected a list such as"),
    ],
)
def test_what_is_no_target_says_why(value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LabelTargets().text(value)


def test_bad_rows_and_equal_images_with_other_labels_and_labels_never_trained_on_are_left_out(tmp_path: Path) -> None:
    same, rare = (encoded(np.full((16, 16, 3), level, np.uint8)) for level in (99, 150))
    more = [Labelled(f"same{n}.png", same, labels, "train") for n, labels in enumerate((["red"], ["red", "blue"]))]
    as_json_lines(tmp_path / "raw", [*drawn(60), *more, Labelled("rare.png", rare, ["red", "mauve"], "test")])
    file = tmp_path / "raw/labels.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[3]["labels"], rows[4]["labels"] = {"red": 2}, None
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    left = {entry.record: entry.reason for entry in opened(tmp_path / "raw").quarantined}
    assert left["labels.jsonl:4"] == "has the labels {'red': 2}, expected a list of names ([] for no label)"
    assert left["pictures/0004.png"] == "has no class"
    assert left["pictures/same0.png"].startswith("the same image as one of another class")
    assert left["pictures/rare.png"] == "is of the class 'mauve', which no training image is"


def test_images_without_labels_are_kept_if_labels_are_numbers(tmp_path: Path) -> None:
    number = {"blue": 1.0, "green": 2, "red": 30}
    images = [each._replace(labels=[number[name] for name in each.labels]) for each in drawn(40)]
    as_json_lines(tmp_path / "raw", images)
    source = opened(tmp_path / "raw")
    assert (source.class_names, source.quarantined) == (("1", "2", "30"), ())
    assert sum(not labels for labels in labels_of(source).values()) == sum(not each.labels for each in images) > 0


def test_a_comma_can_be_part_of_a_name(tmp_path: Path) -> None:
    as_files(tmp_path / "raw", images := drawn(40))
    rows = [f'pictures/{each.name},"{"|".join(each.labels) and "tench, fish"}",{each.split}' for each in images]
    (tmp_path / "raw/labels.csv").write_text("\n".join(["file,labels,split", *rows]))
    assert opened(tmp_path / "raw").class_names == ("fish", "tench")
    assert opened(tmp_path / "raw", joined_by="nothing").class_names == ("tench, fish",)


def test_a_record_that_is_neither_0_nor_1_is_found() -> None:
    records = {"labels": np.array([[0, 1, 0], [0, 0, 3]], np.uint8)}
    names = cast(Manifest, SimpleNamespace(class_names=("blue", "green", "red")))
    assert LabelTargets().check(records, names) == (1, "has the value 3 for the label red, expected 0 or 1")
    assert LabelTargets().census(records, 3).tolist() == [0, 1, 3]


def test_a_correction_gives_an_image_one_label(tmp_path: Path) -> None:
    images = drawn(60)
    as_json_lines(
        tmp_path / "raw", [each._replace(labels=[f"{name}, dark" for name in each.labels]) for each in images]
    )
    before = opened(tmp_path / "raw")
    number = before.images.labels.values.index('["blue, dark", "green, dark"]')
    [image, *_] = np.flatnonzero(before.images.labels.codes == number)
    identity = before.images.column("identity")[image : image + 1].tobytes().hex()
    after = opened(tmp_path / "raw", corrections={identity: "red, dark"})
    assert after.images.labels.at(int(image)) == '["red, dark"]'
    assert after.class_names == before.class_names
