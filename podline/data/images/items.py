"""The items that every layout yields: an image's name, its class, the location of its bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import IO, NamedTuple

from podline.data.places import Place

TRAIN, TEST = "train", "test"
TRAINING = ("train", "training")
"""What sources call their training split."""
HELD_OUT = ("test", "testing", "val", "valid", "validation")
"""What they call images to test on; the first that is there is taken, the others are not read."""
SPLITS = frozenset((*TRAINING, *HELD_OUT))

SAME_WITHIN = 10_000
"""How many items with data lie at most between two that are known to have the same."""


class Item(NamedTuple):
    """An image, or what lies among images.

    Attributes:
        key: what leads back to it: its path in the source, or archive and name.
        data: the image's file, or where it is.
        label: its class; None where it has none.
        split: as the source says it, in small letters; empty where it says none.
        group: images of one group stay on one side; empty where there is none.
        reason: why it is left out, whatever it is; empty if it is not. Without data it is not looked at.
        stray: whether nothing says that it is an image: it counts as left out only if its content is one.
        same: the number of an earlier item with the same data, at most :data:`SAME_WITHIN` before; -1 of another.
    """

    key: str
    data: Place | bytes
    label: str | None = None
    split: str = ""
    group: str = ""
    reason: str = ""
    stray: bool = False
    same: int = -1


def write_item(stream: IO[str], item: Item) -> None:
    """Write an item whose data is a place, or none, as a line."""
    stream.write(f"{json.dumps([item.key, item.data or None, *item[2:]])}\n")


def read_items(lines: Iterable[str]) -> Iterator[Item]:
    """Yield the items that :func:`write_item` wrote."""
    for line in lines:
        key, data, *rest = json.loads(line)
        yield Item(key, Place(*data) if data else b"", *rest)


def test_split_of(splits: frozenset[str]) -> str:
    """The name of the source's test split; empty if it has none, or nothing to train on."""
    return next((name for name in HELD_OUT if name in splits), "") if splits & frozenset(TRAINING) else ""


def unread_splits(splits: frozenset[str]) -> frozenset[str]:
    """Return the names of the splits that are not read: further images to test on."""
    test = test_split_of(splits)
    return splits & frozenset(HELD_OUT) - {test} if test else frozenset()


@lru_cache
def split_in_name(name: str) -> str:
    """Return the split that a path names, as train-00000-of-00010.parquet, in small letters; else empty."""
    words = re.split(r"[^a-z]+", name.lower())
    return next((word for word in reversed(words) if word in SPLITS), "")
