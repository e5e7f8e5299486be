"""The items that each layout yields: an image's name, its label and the location of its bytes."""

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

TRAIN_NAMES = ("train", "training")
"""Names of the training split in sources, in lower case."""
TESTED, DEV = ("test", "testing"), "dev"
VALIDATED = ("val", "valid", "validation", DEV)
HELD_OUT = (*TESTED, *VALIDATED)
"""Names of test and validation splits in sources, in lower case; see :func:`held_out_splits`."""
SPLIT_NAMES = frozenset((*TRAIN_NAMES, *HELD_OUT))

OF_PLACE = ("path", "start", "length", "member", "wide", "tall", "turns")
"""Columns of the file from :func:`write_items` with an item's location and annotated size."""
NAMED = ("key", "label", "split", "group", "target")
"""Columns of the file from :func:`write_items` with an item's name, targets, split and group."""
_TYPES = {
    **dict.fromkeys((*NAMED, "reason"), TEXT),
    **dict.fromkeys(OF_PLACE, pa.int64()),
    **dict.fromkeys(("path", "member"), TEXT),
    "stray": pa.bool_(),
}


class Item(NamedTuple):
    """An image of a source, or another file among the images.

    Attributes:
        key: path in the source, or archive and member name.
        data: content or location of the image file.
        label: label of the image, or None.
        split: the source's split name in lower case; empty if the source has no split for it.
        group: name of a group, whose images go to the same split; empty without a group.
        reason: why the item is left out whatever its content; empty if the content decides, or the other images do.
            Items without data are not decoded.
        stray: whether the file was not listed as an image. Then it counts as left out only if its content is an image.
        target: further target besides the label, as text: people.
        size: annotated width and height in pixels, zeros if unknown; third, 1 to apply the image's EXIF orientation in
            any case, or 0 to apply the orientation only if the image then has the annotated size. None for an image
            without annotations.
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
    """Write items to a file; their data must be locations or empty, not content.

    Raises:
        StoreError: the file cannot be written.
    """
    write_rows(path, _TYPES, map(_row, items))


def listed(path: Path, unread: Sequence[str]) -> Any:
    """Return the table in a file from :func:`write_items`, without the items of the splits in ``unread``.

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
    """Return which splits of a source are used for testing and validation: Podline's split name → the source's.

    If several names exist for a role, the first in :data:`HELD_OUT` is used. Without a test split, the validation split
    is used for testing. A source without a training split has neither.
    """
    if not splits & frozenset(TRAIN_NAMES):
        return {}
    tested, validated = ([name for name in names if name in splits] for names in (TESTED, VALIDATED))
    return dict(zip((TEST, VALIDATION) if tested else (TEST,), (*tested[:1], *validated[:1]), strict=False))


def unread_splits(splits: frozenset[str]) -> frozenset[str]:
    """Return the held-out splits of a source that are not read, because another one has the role."""
    found = held_out_splits(splits)
    return splits & frozenset(HELD_OUT) - {*found.values()} if found else frozenset()


@lru_cache
def split_in_name(name: str) -> str:
    """Return the last word of a path, such as train-00000-of-00010.parquet, that is a split; empty if none is."""
    words = re.split(r"[^a-z]+", name.lower())
    return next((word for word in reversed(words) if word in SPLIT_NAMES), "")
