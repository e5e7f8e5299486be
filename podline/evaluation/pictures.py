"""Lists the pictures to predict for, from single files and whole sources, and decodes them in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from podline.base.arrays import Array
from podline.base.errors import SourceError
from podline.data.decoded_rows import joined
from podline.data.headers import looks_like_picture
from podline.data.images import arrow_file
from podline.data.images.items import listed
from podline.data.images.listing import folders_around, source_files
from podline.data.images.parsing import LISTED, parsed
from podline.data.images.settings import ImagesSettings
from podline.data.places import IMAGE_ENDINGS, Place
from podline.data.rawfiles import reading
from podline.data.sources.decoding import Decoder, DecodeRequest, FittedPictures, Look
from podline.data.sources.remote import on_this_machine
from podline.settings import machine as settings

BATCH = 1_024
"""Number of pictures whose pixels are decoded into one file."""
_HEAD = 32  # bytes by which a picture is recognized


class Asked(NamedTuple):
    """A picture to predict for.

    Attributes:
        name: the picture's path as given by the caller, or its key in a source; if several paths are given, the
            source's path precedes the key.
        place: the location of the picture's file, or the reason why it cannot be read.
        label: the picture's class in the source, or None.
    """

    name: str
    place: Place | str
    label: str | None = None

    def read(self) -> bytes:
        """Return the bytes of the picture's file; empty if :attr:`place` is a reason."""
        return self.place.read() if isinstance(self.place, Place) else b""


Found = Callable[[], Iterator[Asked]]


def is_picture_file(path: Path) -> bool:
    """Return whether a path is a single picture, by its name or first bytes, and not a source."""
    if not path.is_file():
        return False
    with reading(path), path.open("rb") as stream:
        return path.suffix.lower() in IMAGE_ENDINGS or looks_like_picture(stream.read(_HEAD))


def asked_for(paths: Sequence[str], layouts: ImagesSettings, folder: Path, opened: ExitStack) -> Found:
    """Return a function that yields the pictures of files and sources, in their order.

    A source is a folder, an archive or a table in any layout, here or in a bucket, or any folder with images.

    Args:
        paths: files and sources.
        layouts: settings that may name the layout and the columns of a source.
        folder: an existing folder for lists and downloads.
        opened: closes downloads at the end.

    Raises:
        SourceError: a source cannot be read, or has no images.
    """
    found = list[tuple[str, Found]]()
    for number, path in enumerate(paths):
        if is_picture_file(Path(path)):
            found.append(("", partial(_single, path)))
        else:
            start = f"{path.rstrip('/')}/" if len(paths) > 1 else ""
            found.append((start, _listed(path, layouts, folder / str(number), opened)))
    return lambda: (picture._replace(name=start + picture.name) for start, pictures in found for picture in pictures())


def _single(path: str) -> Iterator[Asked]:
    yield Asked(path, Place(path))


def _listed(path: str, layouts: ImagesSettings, folder: Path, opened: ExitStack) -> Found:
    folder.mkdir()
    place = opened.enter_context(on_this_machine(path, folder))
    if not all(around.is_dir() for around in folders_around(place, layouts)):
        layouts = layouts.model_copy(update={"images": ""})  # it belongs to the source of the training
    files = source_files(place, layouts, folder)
    try:
        listing = parsed(path, files, layouts, folder)
    except SourceError:
        if not any(file.is_image and not file.hidden for file in files.asked):
            raise
        return lambda: (Asked(file.name, Place(file.path)) for file in files.asked if file.is_image and not file.hidden)
    return partial(_of_items, folder / LISTED, listing.unread)


def _of_items(path: Path, unread: Sequence[str]) -> Iterator[Asked]:
    for batch in listed(path, unread).to_batches():
        for item in batch.to_pylist():
            key, label, reason, file, member = (
                arrow_file.decoded(item[name] or b"") for name in ("key", "label", "reason", "path", "member")
            )
            place = Place(file, item["start"], item["length"], member) if file else reason or "has no content"
            if not item["stray"]:
                yield Asked(key, place, None if reason or item["label"] is None else label)


class Batch(NamedTuple):
    """Some decoded pictures.

    Attributes:
        first: number of the first picture among all pictures, from 1.
        asked: all pictures of the batch.
        looks: the facts about each picture; ``reason`` is why a picture is left out.
        kept: indices in ``asked`` of the pictures that were decoded, (n,).
        images: the pixels of the decoded pictures, uint8 (n, height, width, channels).
    """

    first: int
    asked: Sequence[Asked]
    looks: Sequence[Look]
    kept: Sequence[int]
    images: Array


def decoded(pictures: Iterable[Asked], becoming: FittedPictures, folder: Path) -> Iterator[Batch]:
    """Decode pictures in sandboxes, like a conversion; yield them in batches, in order.

    Args:
        pictures: the pictures to decode, in order.
        becoming: the shape of the model's input, and how pictures are fitted into it.
        folder: a folder for temporary files of pixels.

    Raises:
        SourceError: a file cannot be read; a picture that cannot be decoded only gets a reason.
        StoreError: the folder has no space.
    """
    waiting = deque[Asked]()

    def requests() -> Iterator[tuple[str, int, DecodeRequest]]:
        for number, picture in enumerate(pictures):
            part, row = divmod(number, BATCH)
            path = folder / f"{part}.pixels"
            if row == 0:
                path.touch()
            waiting.append(picture)
            yield str(path), row, DecodeRequest(picture.place)

    with Decoder(becoming) as processes:
        looks = processes.looks(requests(), settings.load().parse_limits)
        for part in count():
            some = list(islice(looks, BATCH))
            if not some:
                return
            kept = [at for at, look in enumerate(some) if not look.reason]
            path = folder / f"{part}.pixels"
            pixels = joined([path], becoming.shape).read(np.array(kept, np.int64), int(np.prod(becoming.shape)))
            path.unlink()
            yield Batch(
                1 + part * BATCH, [waiting.popleft() for _ in some], some, kept, pixels.reshape(-1, *becoming.shape)
            )
