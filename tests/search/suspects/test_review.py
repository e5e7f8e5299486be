"""Near-duplicates with other labels are suspects; a review is written for a person, never over one."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from drawn_images import drawn

from podline.base.errors import SettingsError
from podline.data.reader import SplitReader
from podline.data.records import IMAGE
from podline.documents.corrections import Correction
from podline.documents.metric import Metric
from podline.documents.suspects import SplitSuspects, Suspect, SuspectsDocument
from podline.search.suspects.pairs import label_pairs
from podline.search.suspects.review import read_review, write_review

IMAGES = ["a" * 64, "b" * 64, "c" * 64, "d" * 64]


class Images:
    """A split with these images."""

    def __init__(self, *images: np.ndarray) -> None:
        self.images = np.stack(images)

    def __len__(self) -> int:
        return len(self.images)

    def gather(self, ids: np.ndarray, _fields: Any) -> dict[str, np.ndarray]:
        return {IMAGE: self.images[ids]}


def test_many_equal_images_of_a_class_hide_no_pair() -> None:
    frame = drawn(1, (32, 32))
    readers = {"train": Images(*[frame] * 12, drawn(2, (32, 32))), "test": Images(drawn(3, (32, 32)), frame)}
    labels = {"train": np.array([0] * 13), "test": np.array([1, 1])}
    found = label_pairs(cast(dict[str, SplitReader], readers), labels)
    assert {(pair.split, pair.record) for pair in found} == {("train", record) for record in range(12)}
    assert {(pair.other_split, pair.other, pair.other_label) for pair in found} == {("test", 1, 1)}


def document() -> SuspectsDocument:
    """Four suspects, of which the last one repeats another image."""
    suspects = [
        Suspect(split="train", record=at, image=image, label="cat", suggested="dog", believed=0.01, wrong=0.9 - at / 10)
        for at, image in enumerate(IMAGES)
    ]
    pair, one = suspects[3].model_copy(update={"repeats": "test[1]"}), Metric(value=0.75, low=0.6, high=0.9)
    found = {"suspects": tuple(suspects), "pairs": (pair,)}
    split = SplitSuspects(split="train", examples=90, expected=one, precision=one, **found)
    names = ("cat", "dog")
    return SuspectsDocument(dataset="images.pets", fingerprint="0" * 16, class_names=names, runs=(), splits=(split,))


def test_a_suspect_in_a_pair_keeps_what_it_repeats_and_comes_first() -> None:
    found = document().suspects
    assert [each.record for each in found] == [3, 0, 1, 2]
    assert [each.repeats for each in found] == ["test[1]", "", "", ""]


def filled(file: Path, *rows: tuple[str, str]) -> Path:
    """Write the table with these decisions and labels; an empty label is left as it was suggested."""
    write_review(document(), document().suspects, file)
    with file.open(newline="") as stream:
        table = list(csv.DictReader(stream))
    for row, (decision, label) in zip(table, rows, strict=False):
        row |= {"decision": decision, "new_label": label or row["new_label"]}
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, table[0])
        writer.writeheader()
        writer.writerows(table)
    return file


def test_decisions_are_read_and_empty_rows_change_nothing(tmp_path: Path) -> None:
    found = read_review(filled(tmp_path / "r.csv", ("keep", ""), (" Relabel ", ""), ("drop", "")), ("cat", "dog"))
    assert found.dataset == "images.pets"
    assert found.corrections == {
        IMAGES[3]: Correction(decision="keep"),
        IMAGES[0]: Correction(decision="relabel", label="dog"),
        IMAGES[1]: Correction(decision="drop"),
    }
    assert found.undecided == 1


def test_a_filled_in_review_is_not_overwritten(tmp_path: Path) -> None:
    file = filled(tmp_path / "r.csv", ("keep", ""))
    with pytest.raises(SettingsError, match="exists, and may be filled in"):
        write_review(document(), document().suspects, file)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("wrong", ""), r"line 2: got decision='wrong', expected keep, relabel, drop"),
        (("relabel", "bird"), r"line 2: got new_label='bird', expected one of cat, dog"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, row: tuple[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read_review(filled(tmp_path / "r.csv", row), ("cat", "dog"))


def test_another_table_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("file,label\na.png,cat\n")
    with pytest.raises(SettingsError, match="line 2: got no column decision"):
        read_review(file)
    file.write_text("")
    with pytest.raises(SettingsError, match="has no rows; take the table"):
        read_review(file)
    file.write_bytes("decision,new_label\nrelabel,Gänse\n".encode("cp1252"))
    with pytest.raises(SettingsError, match="save the table as CSV in UTF-8"):
        read_review(file)
