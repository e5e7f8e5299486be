"""Decode the images of a source once, into a cache folder for the source and the conversion settings.

The folder has a file of pixels and a file of facts, both by row, and the table of the last listing, whose column
``row`` maps images to rows. Each reading appends the images whose stamp has no row yet. Rows never change. Rows of
deleted images are dead; when most rows are dead, all images are decoded into a new folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from podline.base.progress import alive, counted
from podline.data.decoded_rows import PIXELS, DecodedRows, are_whole, joined, row_bytes, with_checksums
from podline.data.images.arrow_file import TEXT, encoded, texts_in
from podline.data.images.image_table import IMAGE_FACTS, ImageTable, Numbers, write_columns
from podline.data.images.items import NAMED, OF_PLACE, Place, listed
from podline.data.images.parsing import LISTED, Parsed
from podline.data.images.settings import PictureSettings
from podline.data.rawfiles import FACTS, delete_unused, use_of
from podline.data.record_table import digest_column
from podline.data.sources.decoding import DECODING, Decoder, DecodeRequest, FittedPictures, Look
from podline.data.sources.remote import copy_of
from podline.settings import machine
from podline.store import digests, locks, uses
from podline.store.contract import explained
from podline.store.folder import FolderStore

_MOST_DEAD = 0.5  # share of dead rows above which all images are decoded again
# Number of images per write of facts, per enlargement of the pixel file, and per block of requests.
_KEPT, _GROWN, _REQUESTED = 256, 1024, 4096
_DIGITS = 32
_FACTS = np.dtype([("stamp", np.int64), *IMAGE_FACTS.descr])


def decode_images(
    read: Callable[[], Parsed], settings: PictureSettings, form: str, state: str, work: Path, folder: Path
) -> tuple[ImageTable, DecodedRows]:
    """Return the table of a source's images and the rows of pixels; decode the images that are not in the cache.

    One process at a time reads a source with some settings; others wait, then use its decoded images. With an engine,
    its workers decode instead, and the cache is not used.

    Args:
        read: lists the source.
        settings: the conversion settings.
        form: a hash of the source and of everything besides the file that determines a decoded image.
        state: a hash that changes with the source's files.
        work: the cache folder.
        folder: a temporary folder on the same file system, in which ``read`` also places copies of images.

    Raises:
        SourceError: the source or an image file cannot be read.
        StoreError: the cache folder cannot be written.
        ChildKilledError: a process was killed twice by the same image.
    """
    FolderStore(work).sweep()
    hashed, most = settings.near_share < 1, machine.load().parse_pixels
    becoming = FittedPictures(settings.shape, settings.fitting, settings.forgotten, hashed, settings.white, most)
    with explained("write", work), contextlib.ExitStack() as stack:
        if engine := DECODING.get():
            listed, found = _Listed(read(), folder), _Rows(np.zeros(0, _FACTS))
            new = listed.new(found)
            looks, pixels = engine.decode(becoming, listed.requests(new), digests.of_json([form, state]))
            found.add(listed.stamps[new], looks)
            return ImageTable(listed.table(found)), pixels
        stack.enter_context(locks.turn(use_of(work / form[:_DIGITS]), "reads images", lambda *_: alive()))
        newest = _newest(work, form[:_DIGITS])
        stack.enter_context(uses.Lease(use_of(newest).parent).share([newest.name]))
        cache = _Cache(newest, settings.shape)
        path = cache.table(state[:_DIGITS])
        if path is None:
            listed = _Listed(read(), folder)
            cache = cache.without_dead(cache.of(listed.stamps))
            cache.decode(becoming, listed)
            path = cache.publish(listed.table(cache), state[:_DIGITS])
        uses.hold(use_of(cache.folder))
        images = ImageTable(path)
    for older in [*work.glob(f"{form[:_DIGITS]}-*")]:
        if _number(older) < _number(cache.folder):
            delete_unused(older)
    return images, joined([cache.folder / PIXELS], settings.shape)


def _newest(work: Path, form: str) -> Path:
    """Return the newest cache folder of a form, or the path of the first one if none exists."""
    return work / f"{form}-{max(map(_number, work.glob(f'{form}-*')), default=0)}"


def _number(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])


class _Listed:
    """The listing of a source, stored in a file.

    Attributes:
        stamps: a hash, int64 (n,), that changes with an image's file and annotated size; 0 for items without an image.
    """

    def __init__(self, layout: Parsed, folder: Path) -> None:
        self._layout, self._folder = layout, folder
        table, copies = listed(folder / LISTED, layout.unread), f"{folder}/"
        self._table = table
        stamps = (_stamp(place, size, copies) if place.path else 0 for place, size in _places(table))
        self.stamps: Numbers = np.fromiter(stamps, np.int64, len(table))

    def new(self, rows: _Rows) -> Numbers:
        """Return the numbers of images without a row, ascending; only the first of images with equal stamps."""
        stamps, firsts = np.unique(self.stamps, return_index=True)
        return np.sort(firsts[(stamps != 0) & (rows.of(stamps) < 0)])

    def requests(self, numbers: Numbers) -> Iterator[DecodeRequest]:
        """Yield a decode request for each image in ``numbers``."""
        columns = self._table.select(OF_PLACE)
        for first in range(0, len(numbers), _REQUESTED):
            for place, size in _places(columns.take(pa.array(numbers[first : first + _REQUESTED]))):
                yield DecodeRequest(place, size if size[0] >= 0 else None)

    def table(self, rows: _Rows) -> Path:
        """Write the table of all items with the facts about their images; return its path."""
        layout, path = self._layout, self._folder / "images.arrow"
        about = {"layout": layout.words, "splits": json.dumps(sorted(layout.splits)), "facts": json.dumps(layout.facts)}
        write_columns(path, self._parts(rows), about)
        return path

    def _parts(self, found: _Rows) -> Iterator[dict[str, pa.Array]]:
        facts = np.append(found.facts, np.zeros(1, _FACTS))  # the last row (-1) is for items without an image
        every, problems, first = found.of(self.stamps), [*found.problems], 0
        for batch in self._table.to_batches():
            rows = every[first : (first := first + len(batch))]
            reasons, strays = batch["reason"], batch["stray"].to_numpy(zero_copy_only=False) & (rows < 0)
            if odd := np.flatnonzero(np.isin(rows, problems)).tolist():
                texts = reasons.to_pylist()
                for at in odd:
                    look = found.problems[int(rows[at])]
                    texts[at] = texts[at] or encoded(look.reason)
                    strays[at] = batch["stray"][at].as_py() and not look.picture
                reasons = pa.array(texts, TEXT)
            found_facts = {name: facts[name][rows] for name in IMAGE_FACTS.names or ()}
            columns = {
                name: digest_column(values) if values.dtype.kind == "S" else pa.array(values)
                for name, values in found_facts.items()
            }
            columns |= {name: batch[name] for name in NAMED}
            yield {**columns, "reason": reasons, "stray": pa.array(strays), "row": pa.array(rows)}


def _places(table: Any) -> Iterator[tuple[Place, Sequence[int]]]:
    """Yield the location and the annotated size of each item."""
    for batch in table.select(OF_PLACE).to_batches():
        alive()
        lists = (texts_in(each) if each.type == TEXT else each.to_pylist() for each in batch.columns)
        for path, start, length, member, *size in zip(*lists, strict=True):
            yield Place(path, start, length, member), size


def _stamp(place: Place, size: Sequence[int], copies: str) -> int:
    if place.path.startswith(copies):
        file = place.read()
    else:
        try:
            status = os.stat(place.path)  # noqa: PTH116 (millions of them)
            state = f"{status.st_ino} {status.st_ctime_ns} {status.st_size}"
        except OSError:  # decoding it will report the error
            state = ""
        copy = copy_of(place.path)
        file = encoded("\0".join((copy, "") if copy else (place.path, state)) + f"\0{place[1:]}")
    digest = hashlib.blake2b(file, digest_size=8, key=bytes(str([*size]), "ascii")).digest()
    return int.from_bytes(digest, "little", signed=True) or 1


class _Rows:
    """The facts about decoded images, by row.

    Attributes:
        facts: array of dtype ``_FACTS``, (rows,); a stamp of 0 marks a row that no image uses.
        problems: row → outcome for an image that could not be decoded in this reading.
    """

    def __init__(self, facts: npt.NDArray[np.void]) -> None:
        self.facts, self.problems = facts, dict[int, Look]()

    def of(self, stamps: Numbers) -> Numbers:
        """Return the number of the newest row with each stamp, int64 (n,); -1 if no row has it."""
        known = np.append(self.facts["stamp"], 0)
        order = np.argsort(known, kind="stable")
        rows = order[np.searchsorted(known, stamps, "right", order) - 1]
        return np.where((stamps != 0) & (known[rows] == stamps), rows, -1)

    def add(self, stamps: Numbers, looks: Iterable[Look]) -> None:
        """Append rows for images, given their stamps and outcomes; a killed process loses at most a few hundred."""
        found, parts, row = iter(counted(looks, len(stamps), "images")), [self.facts], len(self.facts)
        while part := list(itertools.islice(found, _KEPT)):
            named = stamps[row - len(self.facts) :].tolist()
            parts.append(np.array([(stamp, *look.facts) for stamp, look in zip(named, part, strict=False)], _FACTS))
            odd = {at: look for at, look in enumerate(part) if look.reason}
            kept = parts[-1].copy()
            kept["stamp"][[*odd]] = 0  # so that the next reading tries to decode the image again
            self.keep(kept)
            self.problems |= {row + at: look for at, look in odd.items()}
            row += len(part)
        self.facts = np.concatenate(parts)

    def keep(self, facts: npt.NDArray[np.void]) -> None:
        """Write the facts about new rows to a file; the base class has no file."""


class _Cache(_Rows):
    """The decoded images in a cache folder; :func:`decode_images` ensures that one process at a time uses it.

    Args:
        folder: the cache folder.
        shape: (height, width, channels) of each image.
    """

    def __init__(self, folder: Path, shape: tuple[int, int, int]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (PIXELS, FACTS):
            (folder / name).open("ab").close()
        length = row_bytes((_FACTS.itemsize,))
        stored = np.fromfile(folder / FACTS, np.uint8)
        stored = stored[: len(stored) // length * length].reshape(-1, length)
        os.truncate(folder / FACTS, stored.size)  # a killed reading may have written a partial row
        facts = np.ascontiguousarray(stored[:, : _FACTS.itemsize]).view(_FACTS)[:, 0]
        facts["stamp"][~are_whole(stored)] = 0
        super().__init__(facts)
        self.folder, self._shape = folder, shape

    def table(self, state: str) -> Path | None:
        """Return the path of the undamaged table for a state of the source, or None."""
        for path in self.folder.glob(f"{state}-*.arrow"):
            if path.stem == f"{state}-{digests.of_file(path)}":
                os.utime(self.folder)  # marks the folder as recently used
                return path
        return None

    def publish(self, table: Path, state: str) -> Path:
        """Move a table into the folder, delete older tables, and return its path."""
        for older in self.folder.glob("*.arrow"):
            older.unlink()
        return table.rename(self.folder / f"{state}-{digests.of_file(table)}.arrow")

    def without_dead(self, used: Numbers) -> _Cache:
        """Return this cache, or an empty one in a new folder if most rows are not in ``used``."""
        if len(np.unique(used[used >= 0])) >= (1 - _MOST_DEAD) * len(self.facts):
            return self
        form, _, number = self.folder.name.rpartition("-")
        new = self.folder.with_name(f"{form}-{int(number) + 1}")
        uses.hold(use_of(new))
        return _Cache(new, self._shape)

    def decode(self, becoming: FittedPictures, listed: _Listed) -> None:
        """Decode and append the images without a row."""
        new, pixels, length = listed.new(self), self.folder / PIXELS, row_bytes(self._shape)
        # Child processes of a killed reading may still write into rows assigned to them, so these rows stay dead.
        self.keep(unused := np.zeros(max(0, pixels.stat().st_size // length - len(self.facts)), _FACTS))
        self.facts = np.append(self.facts, unused)
        with Decoder(becoming) as processes:
            asked = zip(itertools.repeat(str(pixels)), self._new_rows(), listed.requests(new), strict=False)
            self.add(listed.stamps[new], processes.looks(asked, machine.load().parse_limits))
        os.truncate(pixels, len(self.facts) * length)

    def _new_rows(self) -> Iterator[int]:
        """Yield the numbers of new rows; enlarge the pixel file before, so that no later reading reuses a row."""
        for row in itertools.count(first := len(self.facts)):
            if (row - first) % _GROWN == 0:
                with explained("write", pixels := self.folder / PIXELS):
                    os.truncate(pixels, (row + _GROWN) * row_bytes(self._shape))
            yield row

    def keep(self, facts: npt.NDArray[np.void]) -> None:
        """Append the facts about new rows to the file of facts."""
        if len(facts):
            with (self.folder / FACTS).open("ab") as stream:
                stream.write(with_checksums(facts.view(np.uint8).reshape(len(facts), -1)).data)
