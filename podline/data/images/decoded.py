"""Decodes the images of a source into the cache folder, and reuses unchanged images of an older folder.

A folder holds its own new images and hard links to an older folder's files. An image's row never changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from podline import settings as machine
from podline.data.decoded_rows import HASHES, PIXELS, older_files, row_bytes, rows_of
from podline.data.images.hashing import hashes
from podline.data.images.image_table import Image, ImageTable, Numbers, write_images
from podline.data.images.items import SAME_WITHIN, Item, Place
from podline.data.images.near import boxes_of
from podline.data.images.parsing import Parsed, delete_parsed
from podline.data.images.settings import PictureSettings
from podline.data.pictures import Form
from podline.data.rawfiles import RawFile, made_earlier, made_once, raw_file, unpacked
from podline.data.sources.decoding import Decoding, Look, Pictures, Request
from podline.data.sources.remote import copy_of
from podline.progress import counted
from podline.store import digests
from podline.store.contract import explained

IMAGES = "images.arrow"
"""The name of the table of images in a folder."""
_MOST_PARTS, _MOST_DEAD = 50, 0.5  # above these limits of files or unused images, all are decoded again
_PARTS, _PART_BYTES = 8, 1_000_000_000  # most parts of many new files, and least bytes of one
_FACTS = ("row", "identity", "pixels", "bytes", "width", "height", "turned", "unturned", "marks")


def decode_images(
    read: Callable[..., Parsed], settings: PictureSettings, decoding: Decoding, form: str, work: Path, folder: Path
) -> list[RawFile]:
    """Decode the images of a source.

    On this machine, the images of many new files are decoded in parts, each into a folder of its own that the next part
    reuses. So a reading that is killed loses one part.

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
    layout = read(folder=folder)
    with explained("write", folder):
        found = chain.from_iterable(_stamp(request, folder) for request in _requests(layout.items()))
        stamps, sizes = np.fromiter(found, np.int64).reshape(-1, 2).T
        decode = partial(_decode, layout, stamps, settings, decoding, form, work)
        for key, most in [] if decoding.key else _parts(stamps, sizes, form, work):
            made_once(work, key, partial(decode, most=most))
        files = decode(folder)
        delete_parsed(folder)
    return files


def _parts(stamps: Numbers, sizes: Numbers, form: str, work: Path) -> list[tuple[str, int]]:
    """Return the key and the number of images of each part but the last."""
    older = _older(work, form)
    new = (stamps != 0) & ((older.known(stamps) < 0) if older else True)
    parts = min(_PARTS, int(sizes[new].sum()) // _PART_BYTES)
    most, state = -(-int(new.sum()) // max(1, parts)), hashlib.sha256(stamps[new].tobytes()).hexdigest()
    return [(digests.of_json([form, state, part]), most) for part in range(1, parts)]


def _decode(
    layout: Parsed,
    stamps: Numbers,
    settings: PictureSettings,
    decoding: Decoding,
    form: str,
    work: Path,
    folder: Path,
    most: int | None = None,
) -> list[RawFile]:
    """Decode new images, at most some; the table has these and the known ones."""
    here = not decoding.key
    older = _older(work, form) if here else None
    known = older.known(stamps) if older else np.full(len(stamps), -1)
    if older and not older.is_worth(known):
        older, known = None, np.full(len(stamps), -1)
    base = _link(older.folder, folder, settings) if older else 0
    new = np.flatnonzero((known < 0) & (most is None or stamps != 0))[:most]
    is_new, wanted = np.zeros(len(stamps), np.bool_), known >= 0
    is_new[new] = wanted[new] = True
    requests = compress(_requests(layout.items()), is_new.tolist())
    (folder / PIXELS).touch()
    wanted_form = Form(settings.shape, settings.fitting, settings.white, machine.load().parse_pixels)
    becoming = Pictures(wanted_form, tuple(settings.forgotten.items()))
    looks = counted(decoding.looks(becoming, requests, folder), len(new), "images")
    facts = older.facts(known[known >= 0]) if older else iter(())
    about = {"layout": layout.words, "splits": json.dumps(sorted(layout.splits)), "form": form}
    about["facts"] = json.dumps(layout.facts)
    places = zip(stamps.tolist(), known.tolist(), wanted.tolist(), strict=True)
    write_images(folder / IMAGES, _looked_at(layout.items(), places, facts, looks, base), about)
    if here:  # includes a row for a last image that cannot be decoded
        os.truncate(folder / PIXELS, len(new) * row_bytes(settings.shape))
        if settings.near_share < 1:
            _write_hashes(folder, settings, base)
    paths = [folder / IMAGES, *older_files(folder, HASHES), *folder.glob(HASHES)]
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


def _link(older: Path, folder: Path, settings: PictureSettings) -> int:
    """Link an older folder's files into a new folder; return their number of rows."""
    base = at = 0
    for path in (*older_files(older, PIXELS), older / PIXELS):
        if not (rows := path.stat().st_size // row_bytes(settings.shape)):
            continue
        for kind in (PIXELS, HASHES):
            there, name = path.with_name(path.name.removesuffix(PIXELS) + kind), folder / f"{at:07}.{kind}"
            if not there.exists():
                continue
            try:
                name.hardlink_to(there)
            except OSError:  # the file system has no hard links
                shutil.copyfile(there, name)
        base, at = base + rows, at + 1
    return base


def _stamp(request: Request, folder: Path) -> tuple[int, int]:
    """Return a hash that changes with a user's file and its annotated size, and the size of the file.

    Both are 0 for a part of a file or for a copy.
    """
    place = request.place
    if not isinstance(place, Place) or place[1:] != Place("")[1:] or place.path.startswith(f"{folder}/"):
        return 0, 0
    try:
        facts = os.stat(place.path)  # noqa: PTH116 (millions of them)
    except OSError:  # decoding it will report the error
        return 0, 0
    file = copy_of(place.path) or f"{place.path}\0{facts.st_ino}\0{facts.st_ctime_ns}"
    known = f"{file}\0{facts.st_size}\0{request.size}"
    digest = hashlib.blake2b(known.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True), facts.st_size


def _requests(items: Iterator[Item]) -> Iterator[Request]:
    """Yield the images to decode, in order."""
    return (Request(item.data, item.size) for item in items if item.same < 0 and isinstance(item.data, Place))


def _looked_at(
    items: Iterator[Item],
    places: Iterator[tuple[int, int, bool]],
    facts: Iterator[tuple[Any, ...]],
    looks: Iterator[Look],
    row: int,
) -> Iterator[Image]:
    """Yield items with the facts about their images; new images get the rows from ``row`` on.

    Args:
        items: the items of the layout.
        places: stamp of each image to decode, its number in the older folder, and whether it belongs to this part.
        facts: facts about the known images.
        looks: facts about the new images.
        row: see above.
    """
    recent: dict[int, Image] = {}
    for number, item in enumerate(items):
        named = (item.key, item.label, item.split, item.group)
        if item.same >= 0:
            if item.same not in recent:
                continue
            image = Image._make((*named, *recent[item.same][len(named) :]))
        elif isinstance(item.data, Place):
            stamp, at, is_wanted = next(places)
            if not is_wanted:
                continue
            if at >= 0:
                image = Image._make((*named, item.reason, False, *next(facts), stamp, item.target))
            else:
                look = next(looks)
                reason, stray = item.reason or look.reason, item.stray and not look.picture
                digests = map(bytes.fromhex, (look.identity, look.pixels))
                size = (look.bytes, look.width, look.height, look.turned, look.unturned, look.marks)
                image = Image._make((*named, reason, stray, row, *digests, *size, stamp, item.target))
                row += 1
            recent[number] = image
            if len(recent) > SAME_WITHIN:
                del recent[next(iter(recent))]
        else:
            image = Image(*named, item.reason, item.stray, target=item.target)
        yield image


def _write_hashes(folder: Path, settings: PictureSettings, base: int) -> None:
    """Write the perceptual hashes of the new images, whose rows start at ``base``."""
    rows = rows_of(folder, settings.shape)
    boxes = boxes_of(ImageTable(folder / IMAGES), settings, rows.count)[base:]

    def read(wanted: Numbers) -> np.ndarray:
        return rows.read(base + wanted, int(np.prod(settings.shape))).reshape(-1, *settings.shape)

    (folder / HASHES).write_bytes(hashes(read, boxes).tobytes())
