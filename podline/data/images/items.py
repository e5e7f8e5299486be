"""The items that every layout yields: an image's name, its class, the location of its bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import IO, NamedTuple

from podline.data.places import Place
from podline.documents.manifest import TEST, VALIDATION

TRAINING = ("train", "training")
"""What sources call their training split."""
TESTED, DEV = ("test", "testing"), "dev"
VALIDATED = ("val", "valid", "validation", DEV)
HELD_OUT = (*TESTED, *VALIDATED)
"""What they call images to test and to validate on; see :func:`held_out_splits`."""
SPLIT_NAMES = frozenset((*TRAINING, *HELD_OUT))

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


def held_out_splits(splits: frozenset[str]) -> dict[str, str]:
    """Return which of a source's splits is tested on, and which validated on: our name → the source's.

    The first of each that is there is taken. Without one to test on, the one to validate on is. There are none if
    nothing is to be trained on.
    """
    if not splits & frozenset(TRAINING):
        return {}
    tested, validated = ([name for name in names if name in splits] for names in (TESTED, VALIDATED))
    return dict(zip((TEST, VALIDATION) if tested else (TEST,), (*tested[:1], *validated[:1]), strict=False))


def unread_splits(splits: frozenset[str]) -> frozenset[str]:
    """Return which of a source's splits are not read: images to test or to validate on, beside others."""
    found = held_out_splits(splits)
    return splits & frozenset(HELD_OUT) - {*found.values()} if found else frozenset()


@lru_cache
def split_in_name(name: str) -> str:
    """Return the split that a path names, as train-00000-of-00010.parquet, in small letters; else empty."""
    words = re.split(r"[^a-z]+", name.lower())
    return next((word for word in reversed(words) if word in SPLIT_NAMES), "")
