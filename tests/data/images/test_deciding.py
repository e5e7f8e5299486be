"""Splits and reasons follow from what images are, not from their names or their order."""

from __future__ import annotations

import hashlib
import random
import time
from typing import Any

import pytest

from podline.data.images.deciding import Image, decide, kept
from podline.errors import SourceError


def seen(number: int, label: str = "cat", split: str = "", group: str = "", same_as: int | None = None) -> Image:
    """An image; its pixels are those of another one, or its own."""
    sha256, pixels = (hashlib.sha256(str(one).encode()).hexdigest() for one in (number, same_as or number))
    return Image(f"{number}.png", label, split, group, "", False, number, sha256, pixels, 10, 4, 4, False)


def decided(images: list[Image], given: frozenset[str] = frozenset(), test_share: float = 0.1) -> dict[str, Any]:
    """Each image's split and reason, by its key."""
    decide(images, given, test_share)
    return {image.key: (image.split, image.reason) for image in images}


def test_neither_order_nor_other_images_change_a_split() -> None:
    every = decided([seen(number) for number in range(1000)], test_share=0.2)
    assert 150 < sum(split == "test" for split, _ in every.values()) < 250
    some = [seen(number) for number in range(0, 1000, 3)]
    random.Random(0).shuffle(some)
    assert decided(some, test_share=0.2).items() <= every.items()


def test_no_group_is_on_both_sides() -> None:
    images = [seen(number, group=f"patient {number // 10}") for number in range(1000)]
    decide(images, frozenset(), 0.3)
    train, test = ({image.group for image in kept(images, split)} for split in ("train", "test"))
    assert train
    assert test
    assert not train & test
    assert len(train | test) == 100


def test_a_group_that_given_splits_tear_apart_is_not_trained_on() -> None:
    images = [seen(1, split="train", group="a"), seen(2, split="test", group="a"), seen(3, split="train", group="b")]
    found = decided(images, frozenset({"train", "test"}))
    assert found["1.png"][1] == "is of the group 'a', as images to test on"
    assert not found["2.png"][1] + found["3.png"][1]


def test_hashed_images_that_look_alike_in_both_splits_are_not_trained_on() -> None:
    found = decided([seen(number, same_as=7) for number in range(100)], test_share=0.5)
    trained = {reason.partition(": ")[0] for split, reason in found.values() if split == "train"}
    assert trained == {"the same image as one of the test split"}


def test_more_shared_images_than_may_be_are_refused_where_splits_are_given() -> None:
    images = [seen(number, split="train" if number % 2 else "test", same_as=number // 2 + 1) for number in range(100)]
    with pytest.raises(SourceError, match=r"50 of the 50 test images .* are training images as well vs 1% at most"):
        decide(images, frozenset({"train", "test"}), 0.1)


def test_images_under_two_classes_are_all_left_out() -> None:
    found = decided([seen(1), seen(2, "dog", same_as=1), seen(3, same_as=1), seen(4)], test_share=0.001)
    of_another = "the same image as one of another class: "
    assert [reason for _, reason in found.values()] == [
        f"{of_another}2.png is 'dog'",
        f"{of_another}1.png is 'cat'",
        f"{of_another}2.png is 'dog'",
        "",
    ]


def test_many_equal_images_are_compared_in_one_pass() -> None:
    images = [seen(number, same_as=1) for number in range(30_000)]
    started = time.process_time()
    decide(images, frozenset(), 0.5)
    assert len(kept(images)) == len(kept(images, "test"))
    assert time.process_time() - started < 10  # 900 million comparisons would take a minute
