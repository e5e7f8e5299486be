"""Near-duplicates with different labels are found among many equal images of one class."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from drawn_images import drawn

from podline.data.reader import SplitReader
from podline.data.records import IMAGE
from podline.documents.metric import Metric
from podline.documents.suspects import SplitSuspects, Suspect, SuspectsDocument
from podline.search.suspects.pairs import label_pairs


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


def test_a_suspect_in_a_pair_keeps_what_it_repeats() -> None:
    values = {"split": "train", "image": "0" * 32, "label": "cat", "suggested": "dog", "believed": 0.1, "wrong": 0.9}
    one, other = (Suspect.model_validate({**values, "record": record}) for record in (3, 4))
    pair = one.model_copy(update={"repeats": "test[1]"})
    split = SplitSuspects(
        split="train",
        examples=9,
        expected=Metric(value=1, low=1, high=1),
        precision=None,
        suspects=(other, one),
        pairs=(pair,),
    )
    document = SuspectsDocument(dataset="images", fingerprint="0", class_names=("cat", "dog"), runs=(), splits=(split,))
    assert document.suspects == [pair, other]
