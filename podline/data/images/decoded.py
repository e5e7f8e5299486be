"""Decodes the images of a source into the cache folder, and reuses unchanged images of an older folder.

A folder holds its own new images and hard links to an older folder's files. An image's row never changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from podline.data.decoded_rows import HASHES, PIXELS, older_files, row_bytes, rows_of
from podline.data.images.hashing import hashes
from podline.data.images.image_table import Image, ImageTable, Numbers, write_images
from podline.data.images.items import SAME_WITHIN, Item, Place
from podline.data.images.near import boxes_of
from podline.data.images.parsing import Parsed, delete_parsed
from podline.data.images.settings import ImagesSettings
from podline.data.rawfiles import RawFile, made_earlier, raw_file, unpacked
from podline.data.sources.decoding import Decoding, Look, Pictures, Request
from podline.progress import counted
from podline.store.contract import explained

IMAGES = "images.arrow"
"""The name of the table of images in a folder."""
_MOST_PARTS, _MOST_DEAD = 50, 0.5  # above these limits of files or unused images, all are decoded again
_FACTS = ("row", "identity", "pixels", "bytes", "width", "height", "turned")


def decode_images(
    read: Callable[..., Parsed], settings: ImagesSettings, decoding: Decoding, form: str, work: Path, folder: Path
) -> list[RawFile]:
    """Decode the images of a source.

    Args:
        read: lists the source.
        settings: the form of the images.
        decoding: where images are decoded.
        form: a hash of everything besides its file that a decoded image depends on.
        work: the cache folder.
        folder: an empty folder for the images.

    Returns:
        The files in the folder that must not change; decoded images have their own checksums.
    """
    layout, here = read(folder=folder), not decoding.key
    with explained("write", folder):
        older = _older(work, form) if here else None
        stamps = np.fromiter((_stamp(place, folder) for place in _places(layout.items())), np.int64)
        known = older.known(stamps) if older else np.full(len(stamps), -1)
        if older and not older.is_worth(known):
            older, known = None, np.full(len(stamps), -1)
        base = _link(older.folder, folder, settings) if older else 0
        (folder / PIXELS).touch()
        becoming = Pictures(settings.shape, settings.fit, tuple(settings.forgotten.items()))
        new = map(Request, compress(_places(layout.items()), known < 0))
        looks = counted(decoding.looks(becoming, new, folder), int((known < 0).sum()), "images")
        facts = older.facts(known[known >= 0]) if older else iter(())
        about = {"layout": layout.words, "splits": json.dumps(sorted(layout.splits)), "form": form}
        write_images(folder / IMAGES, _looked_at(layout.items(), stamps, known, facts, looks, base), about)
        if here:  # includes a row for a last image that cannot be decoded
            os.truncate(folder / PIXELS, int(np.count_nonzero(known < 0)) * row_bytes(settings.shape))
            _write_hashes(folder, settings, base)
        delete_parsed(folder)
    paths = [folder / IMAGES, *([*older_files(folder, HASHES), folder / HASHES] if here else ())]
    return [raw_file(path.name, path) for path in paths]


class _Older(NamedTuple):
    """An older folder of the same source.

    Attributes:
        folder: the folder.
        stamps: stamps of its image files, ascending.
        numbers: numbers of these images.
        rows: number of rows for all its images.
    """

    folder: Path
    stamps: Numbers
    numbers: Numbers
    rows: Numbers

    def known(self, stamps: Numbers) -> Numbers:
        """Return each stamp's number in this cache, or -1 for a new image."""
        at = np.searchsorted(self.stamps, stamps)
        at[at == len(self.stamps)] = 0
        return np.where(self.stamps[at] == stamps, self.numbers[at], -1)

    def is_worth(self, known: Numbers) -> bool:
        """Return whether enough of the older images are still used."""
        used = len(np.unique(self.rows[known[known >= 0]]))
        return used > (1 - _MOST_DEAD) * (self.rows.max() + 1)

    def facts(self, numbers: Numbers) -> Iterator[tuple[Any, ...]]:
        """Yield the table rows of some images."""
        images = ImageTable(self.folder / IMAGES)
        columns = [images.column(name)[numbers] for name in _FACTS]
        whole = (column.view(f"V{column.itemsize}") if column.dtype.kind == "S" else column for column in columns)
        yield from zip(*(column.tolist() for column in whole), strict=True)


def _older(work: Path, form: str) -> _Older | None:
    """Return the newest folder of the same source and settings that may be worth reusing, or None."""
    tables = (folder / IMAGES for folder in unpacked(work))
    folders = [path.parent for path in tables if path.exists() and ImageTable(path).about.get("form") == form]
    for folder in sorted(folders, key=lambda one: one.stat().st_mtime, reverse=True)[:1]:
        if made_earlier(folder) is None or len(older_files(folder, PIXELS)) >= _MOST_PARTS:
            return None
        images = ImageTable(folder / IMAGES)
        stamps, rows = images.column("stamp"), images.column("row")
        whole = np.flatnonzero((stamps != 0) & (rows >= 0) & images.is_whole())
        order = whole[np.argsort(stamps[whole], kind="stable")]
        return _Older(folder, stamps[order], order, rows) if len(order) else None
    return None


def _link(older: Path, folder: Path, settings: ImagesSettings) -> int:
    """Link an older folder's files into a new folder; return their number of rows."""
    base = at = 0
    for path in (*older_files(older, PIXELS), older / PIXELS):
        if not (rows := path.stat().st_size // row_bytes(settings.shape)):
            continue
        for kind in (PIXELS, HASHES):
            there, name = path.with_name(path.name.removesuffix(PIXELS) + kind), folder / f"{at:07}.{kind}"
            try:
                name.hardlink_to(there)
            except OSError:  # the file system has no hard links
                shutil.copyfile(there, name)
        base, at = base + rows, at + 1
    return base


def _stamp(place: Place, folder: Path) -> int:
    """Return a hash that changes with a user's file; 0 for a part of a file or for a copy."""
    if place.bytes >= 0 or place.start or place.path.startswith(f"{folder}/"):
        return 0
    try:
        facts = os.stat(place.path)  # noqa: PTH116 (millions of them)
    except OSError:  # decoding it will report the error
        return 0
    known = f"{place.path}\0{facts.st_ino}\0{facts.st_size}\0{facts.st_ctime_ns}"
    digest = hashlib.blake2b(known.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _places(items: Iterator[Item]) -> Iterator[Place]:
    """Yield the places of the images to decode, in order."""
    return (item.data for item in items if item.same < 0 and isinstance(item.data, Place))


def _looked_at(
    items: Iterator[Item],
    stamps: Numbers,
    known: Numbers,
    facts: Iterator[tuple[Any, ...]],
    looks: Iterator[Look],
    row: int,
) -> Iterator[Image]:
    """Yield items with the facts about their images; new images get the rows from ``row`` on."""
    recent: dict[int, Image] = {}
    places = zip(stamps.tolist(), known.tolist(), strict=True)
    for number, item in enumerate(items):
        named = (item.key, item.label, item.split, item.group)
        if item.same >= 0:
            image = Image._make((*named, *recent[item.same][len(named) :]))
        elif isinstance(item.data, Place):
            stamp, at = next(places)
            if at >= 0:
                image = Image._make((*named, item.reason, False, *next(facts), stamp))
            else:
                look = next(looks)
                reason, stray = item.reason or look.reason, item.stray and not look.picture
                digests = map(bytes.fromhex, (look.identity, look.pixels))
                size = (look.bytes, look.width, look.height, look.turned)
                image = Image._make((*named, reason, stray, row, *digests, *size, stamp))
                row += 1
            recent[number] = image
            if len(recent) > SAME_WITHIN:
                del recent[next(iter(recent))]
        else:
            image = Image(*named, item.reason, item.stray)
        yield image


def _write_hashes(folder: Path, settings: ImagesSettings, base: int) -> None:
    """Write the perceptual hashes of the new images, whose rows start at ``base``."""
    rows = rows_of(folder, settings.shape)
    boxes = boxes_of(ImageTable(folder / IMAGES), settings, rows.count)[base:]

    def read(wanted: Numbers) -> np.ndarray:
        return rows.read(base + wanted, int(np.prod(settings.shape))).reshape(-1, *settings.shape)

    (folder / HASHES).write_bytes(hashes(read, boxes).tobytes())
