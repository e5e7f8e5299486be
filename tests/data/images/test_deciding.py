"""Splits and reasons follow from what images are, not from their names or their order."""

from __future__ import annotations

import hashlib
import random

import pytest

from podline.data.images import deciding
from podline.data.images.deciding import Decided, Seen, decide
from podline.errors import SourceError


def seen(number: int, label: str = "cat", split: str = "", group: str = "", same_as: int | None = None) -> Seen:
    """An image; its pixels are those of another one, or its own."""
    sha256, pixels = (hashlib.sha256(str(one).encode()).hexdigest() for one in (number, same_as or number))
    return Seen(f"{number}.png", label, split, group, number, sha256, pixels, 10, 4, 4, False, False, "")


def by_key(decided: Decided) -> dict[str, tuple[str, str]]:
    rows = zip(decided.seen, decided.splits, decided.reasons, strict=True)
    return {one.key: (split, reason) for one, split, reason in rows}


def test_neither_order_nor_other_images_change_a_split() -> None:
    images = [seen(number) for number in range(1000)]
    decided = by_key(decide(images, frozenset(), 0.2))
    assert 150 < sum(split == "test" for split, _ in decided.values()) < 250
    some = images[::3]
    random.Random(0).shuffle(some)
    assert by_key(decide(some, frozenset(), 0.2)).items() <= decided.items()


def test_no_group_is_on_both_sides() -> None:
    decided = decide([seen(number, group=f"patient {number // 10}") for number in range(1000)], frozenset(), 0.3)
    sides = [
        {one.group for one, split in zip(decided.seen, decided.splits, strict=True) if split == side}
        for side in ("train", "test")
    ]
    assert not sides[0] & sides[1]
    assert sides[0]
    assert sides[1]
    assert not any(decided.reasons)


def test_a_group_that_given_splits_tear_apart_is_not_trained_on() -> None:
    images = [seen(1, split="train", group="a"), seen(2, split="test", group="a"), seen(3, split="train", group="b")]
    decided = by_key(decide(images, frozenset({"train", "test"}), 0.1))
    assert decided["1.png"][1] == "is of the group 'a', as images to test on"
    assert not decided["2.png"][1] + decided["3.png"][1]


def test_hashed_images_that_look_alike_in_both_splits_are_not_trained_on() -> None:
    images = [seen(number, same_as=7) for number in range(100)]
    decided = decide(images, frozenset(), 0.5)
    trained = [reason for split, reason in by_key(decided).values() if split == "train"]
    assert trained
    assert all("the same image as" in reason and reason.endswith("of the test split") for reason in trained)


def test_more_shared_images_than_may_be_are_refused_where_splits_are_given() -> None:
    images = [seen(number, split="train" if number % 2 else "test", same_as=number // 2 + 1) for number in range(100)]
    with pytest.raises(SourceError, match=r"50 of the 50 test images .* are training images as well vs 1% at most"):
        decide(images, frozenset({"train", "test"}), 0.1)


def test_images_under_two_classes_are_all_left_out() -> None:
    images = [seen(1), seen(2, "dog", same_as=1), seen(3, same_as=1), seen(4)]
    decided = by_key(decide(images, frozenset(), 0.001))
    assert [reason for _, reason in decided.values()] == [
        "the same image as 2.png, which is 'dog'",
        "the same image as 1.png, which is 'cat'",
        "the same image as 2.png, which is 'dog'",
        "",
    ]


def test_many_equal_images_are_compared_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0

    def label(decided: Decided, at: int) -> str:
        nonlocal looked_at
        looked_at += 1
        return decided.seen[at].label or ""

    monkeypatch.setattr(deciding, "_label", label)
    decided = decide([seen(number, same_as=1) for number in range(1000)], frozenset(), 0.5)
    assert len(decided.kept()) == len(decided.kept("test"))
    assert looked_at < 10_000
