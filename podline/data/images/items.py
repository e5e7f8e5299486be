"""The items that every layout yields: an image's name, its class and the location of its bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from podline.data.images.arrow_file import TEXT, compute, encoded, mapped, write_rows
from podline.data.places import Place
from podline.documents.manifest import TEST, VALIDATION

TRAINING = ("train", "training")
"""Names that sources use for the training split."""
TESTED, DEV = ("test", "testing"), "dev"
VALIDATED = ("val", "valid", "validation", DEV)
HELD_OUT = (*TESTED, *VALIDATED)
"""Names that sources use for test and validation splits; see :func:`held_out_splits`."""
SPLIT_NAMES = frozenset((*TRAINING, *HELD_OUT))

OF_PLACE = ("path", "start", "length", "member", "wide", "tall", "turns")
"""The columns of :func:`write_items` with an item's place and size."""
NAMED = ("key", "label", "split", "group", "target")
"""The columns that name an item and its target."""
_TYPES = {
    **dict.fromkeys((*NAMED, "reason"), TEXT),
    **dict.fromkeys(OF_PLACE, pa.int64()),
    **dict.fromkeys(("path", "member"), TEXT),
    "stray": pa.bool_(),
}


class Item(NamedTuple):
    """An image, or another file among the images.

    Attributes:
        key: its path in the source, or archive and name.
        data: the image file's content or place.
        label: its class, or None.
        split: the source's split name in lower case; empty without a split.
        group: images of one group go to the same split; empty without a group.
        reason: why it is left out whatever its content; empty if it is kept. Items without data are not decoded.
        stray: whether the file was not listed as an image; then it counts as left out only if its content is an image.
        target: the target besides the class, as text: people.
        size: width and height in the annotations of a picture, see :func:`podline.data.pictures.picture_of`; and 1 to
            turn it as EXIF says all the same, or 0.
    """

    key: str
    data: Place | bytes
    label: str | None = None
    split: str = ""
    group: str = ""
    reason: str = ""
    stray: bool = False
    target: str = ""
    size: Sequence[int] | None = None


def write_items(path: Path, items: Iterable[Item]) -> None:
    """Write items without content into a file; their data are places or empty.

    Raises:
        StoreError: the file cannot be written.
    """
    write_rows(path, _TYPES, map(_row, items), {})


def listed(path: Path, unread: Sequence[str]) -> Any:
    """Return the table in a file from :func:`write_items`, without the items of some splits.

    Raises:
        StoreError: the file cannot be read.
    """
    table = mapped(path)
    if not unread:
        return table
    return table.filter(compute.invert(compute.is_in(table["split"], pa.array(map(encoded, unread), TEXT))))


def _row(item: Item) -> tuple[Any, ...]:
    place = item.data if isinstance(item.data, Place) else Place("")
    named = (item.key, item.label, item.split, item.group, item.target, item.reason)
    return (*named, *place, *(item.size or (-1, -1, 0)), item.stray)


def held_out_splits(splits: frozenset[str]) -> dict[str, str]:
    """Choose the source's splits for testing and validation: our name → the source's.

    The first name that exists is chosen for each. Without a test split, the validation split is used for testing. A
    source without training images has neither.
    """
    if not splits & frozenset(TRAINING):
        return {}
    tested, validated = ([name for name in names if name in splits] for names in (TESTED, VALIDATED))
    return dict(zip((TEST, VALIDATION) if tested else (TEST,), (*tested[:1], *validated[:1]), strict=False))


def unread_splits(splits: frozenset[str]) -> frozenset[str]:
    """Return the source's held-out splits that are not read because another one was chosen."""
    found = held_out_splits(splits)
    return splits & frozenset(HELD_OUT) - {*found.values()} if found else frozenset()


@lru_cache
def split_in_name(name: str) -> str:
    """Return the split in a file name like train-00000-of-00010.parquet, in lower case; else an empty string."""
    words = re.split(r"[^a-z]+", name.lower())
    return next((word for word in reversed(words) if word in SPLIT_NAMES), "")
