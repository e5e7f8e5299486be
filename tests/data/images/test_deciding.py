"""Splits and reasons follow from what images are, not from their names or their order."""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from drawn_images import Row, table_of

from podline.base.errors import SourceError
from podline.data.images import deciding
from podline.data.images.deciding import decide
from podline.kinds.classification.records import ClassTargets


def seen(number: int, label: str = "cat", split: str = "", group: str = "", same_as: int | None = None) -> Row:
    """An image; its pixels are those of another one, or its own."""
    identity, pixels = (hashlib.sha256(str(one).encode()).digest()[:16] for one in (number, same_as or number))
    return Row(f"{number}.png", label, split, group, number, identity, pixels)


def decided(
    folder: Path, images: list[Row], given: frozenset[str] = frozenset(), test_share: float = 0.1
) -> dict[str, Any]:
    """Each image's split and reason, by its key."""
    table = table_of(folder, images)
    decide(table, given, test_share, ClassTargets())
    assert list(table.reasons) == sorted(table.reasons)
    return {image.key: (table.split_of(at), str(table.reasons.get(at, ""))) for at, image in enumerate(images)}


def test_neither_order_nor_other_images_change_a_split(tmp_path: Path) -> None:
    every = decided(tmp_path, [seen(number) for number in range(1000)], test_share=0.2)
    assert 150 < sum(split == "test" for split, _ in every.values()) < 250
    some = [seen(number) for number in range(0, 1000, 3)]
    random.Random(0).shuffle(some)
    assert decided(tmp_path, some, test_share=0.2).items() <= every.items()


@pytest.mark.parametrize("test_share", [0.02, 0.98])
def test_a_small_source_has_images_of_both_splits_and_whole_groups(tmp_path: Path, test_share: float) -> None:
    for first in range(0, 500, 10):
        images = [seen(first + at, group=str(first + at // 2) if at < 4 else "") for at in range(6)]
        found = [split for split, _ in decided(tmp_path, images, test_share=test_share).values()]
        assert {*found} == {"train", "test"}
        assert found[0] == found[1]
        assert found[2] == found[3]


def test_an_image_or_a_group_of_several_splits_stays_in_the_later_one(tmp_path: Path) -> None:
    """Of training, validation and test, in this order: nothing that decides or judges is seen before."""
    count = {"train": 300, "val": 300, "test": 300}
    names = [split for split, size in count.items() for _ in range(size)]
    images = [seen(number, split=split) for number, split in enumerate(names)]
    images += [seen(1000, split="train", same_as=300), seen(1001, split="val", same_as=600)]
    images += [seen(1002, split="train", same_as=601)]
    images += [seen(1003 + at, split=split, group="a") for at, split in enumerate(("train", "val"))]
    images += [seen(1005 + at, split=split, group="b") for at, split in enumerate(count)]
    found = decided(tmp_path, images, frozenset(count))
    assert {key: reason for key, (_, reason) in found.items() if reason} == {
        "1000.png": "the same image as one of the validation split: 300.png",
        "1001.png": "the same image as one of the test split: 600.png",
        "1002.png": "the same image as one of the test split: 601.png",
        "1003.png": "is of the group 'a', as images to validate on",
        "1005.png": "is of the group 'b', as images to test on",
        "1006.png": "is of the group 'b', as images to test on",
    }
    assert Counter(split for split, _ in found.values()) == {"train": 304, "validation": 303, "test": 301}


def test_more_shared_images_than_may_be_are_refused_where_splits_are_given(tmp_path: Path) -> None:
    images = [seen(number, split="train" if number % 2 else "test", same_as=number // 2 + 1) for number in range(100)]
    with pytest.raises(SourceError, match=r"50 of the 50 test images .* are training images as well vs 1% at most"):
        decided(tmp_path, images, frozenset({"train", "test"}))


def test_many_equal_images_are_compared_in_one_pass(tmp_path: Path) -> None:
    table = table_of(tmp_path, (seen(number, same_as=1 if number < 30_000 else None) for number in range(30_100)))
    started = time.process_time()
    decide(table, frozenset(), 0.5, ClassTargets())
    assert 0 < table.kept("train").sum() < 100
    assert table.kept("test").sum() > 10_000
    assert time.process_time() - started < 10  # 900 million comparisons would take a minute


def simply(images: list[Row], given: bool) -> dict[str, Any]:
    """What is decided of images, by the rules one after the other, with all of them in memory."""
    found: dict[str, list[str]] = {}
    for image in images:
        test = image.split == "test" if given and image.split else int.from_bytes(image.identity[:8]) < 0.3 * 2**64
        if not (given and image.split) and image.label is None:
            test = False
        elif image.group and not (given and image.split):
            test = int(hashlib.sha256(image.group.encode()).hexdigest()[:16], 16) < 0.3 * 2**64
        reason = image.reason or ("" if image.label else "has no class")
        found[image.key] = ["test" if test else "train", reason]

    def kept(split: str = "") -> list[Row]:
        return [one for one in images if not found[one.key][1] and split in ("", found[one.key][0])]

    for image in kept():
        alike = [one for one in images if one.pixels == image.pixels and one.label and not one.reason]
        if other := next((one for one in alike if one.label != image.label), None):
            found[image.key][1] = f"the same image as one of another class: {other.key} is {other.label!r}"
    pixels: dict[bytes, str] = {}
    for image in kept("test"):
        pixels.setdefault(image.pixels, image.key)
    for image in kept("train"):
        if image.pixels in pixels:
            found[image.key][1] = f"the same image as one of the test split: {pixels[image.pixels]}"
    groups = {image.group for image in kept("test")} - {""}
    for image in kept("train"):
        if image.group in groups:
            found[image.key][1] = f"is of the group {image.group!r}, as images to test on"
    trained = {image.label for image in kept("train")}
    for image in kept("test"):
        if image.label not in trained:
            found[image.key][1] = f"is of the class {image.label!r}, which no training image is"
    return {key: tuple(both) for key, both in found.items()}


@pytest.mark.parametrize("number", range(30))
def test_columns_decide_as_images_one_by_one(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, given = random.Random(number), number % 2 == 1
    images = []
    for at in range(chance.randrange(2, 120)):
        image = seen(
            at,
            chance.choice(["cat", "dog", "Åse\udcff"[: 3 + number % 3 // 2], *["cow"] * (at < 9)]),
            chance.choice(["train"] * 9 + ["test"] * (number % 3)) if given and chance.random() < 0.8 else "",
            chance.choice(["", "", "", str(chance.randrange(40))]),
            chance.choice([None] * 15 + [chance.randrange(40)]),
        )
        odd = chance.random()
        images.append(
            image._replace(reason="is damaged") if odd < 0.1 else image._replace(label=None) if odd < 0.2 else image
        )
    splits = frozenset({"train", "test"}) if given else frozenset[str]()
    monkeypatch.setattr(deciding, "MAX_SHARED", 1)
    monkeypatch.setattr(deciding, "problem_of", lambda _name: "")
    assert decided(tmp_path, images, splits, 0.3) == simply(images, given)
