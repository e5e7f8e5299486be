"""Inspects, decodes and letter-boxes COCO's images in sandboxes, once: their pixels go to a file in the cache.

An image that is damaged, crashes its decoder or takes too much is left out with its reason; its neighbours are read.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from podline import settings
from podline.data import bounds
from podline.data.coco_letterbox import LetterBox
from podline.data.coco_pixels import decode, ready_for_many
from podline.data.headers import Header, PictureError, inspect_image
from podline.data.pictures import limits_of_pixels
from podline.data.rawfiles import RawFile, made_once, raw_file
from podline.data.sources.coco_annotations import Listed
from podline.data.sources.coco_files import ImagePlace, MemberError
from podline.data.sources.parser_pool import Parser
from podline.sandbox import Breach, Limits, begin, refusal
from podline.store import digests
from podline.store.contract import explained

Request = tuple[int, ImagePlace, int, int]

_FORM = "letter-boxed 1"  # of what is kept in the cache folder
_PIXELS, _LOOKS = "pixels", "looks.jsonl"
_WAIT = 120.0  # seconds for a slow disk
_FIRST = Limits(4 * bounds.IMAGE_BYTES, 2.0, _WAIT)  # until the header is read
_UNDECODED = "the file is damaged: it cannot be decoded"
_TURNED = (5, 6, 7, 8)  # EXIF orientations that swap width and height


class Look(NamedTuple):
    """What an image's file is.

    Attributes:
        size: its bytes.
        crc: their CRC-32.
        header: what the file says of itself; None if it is of no use.
        pixels_crc: the CRC-32C of its letter-boxed pixels.
        problem: why it cannot be converted; a phrase that follows the image, empty if it can.
    """

    size: int
    crc: int
    header: Header | None = None
    pixels_crc: int = 0
    problem: str = ""


class Decoded(NamedTuple):
    """The images of a file of annotations.

    Attributes:
        path: of the file of pixels, uint8 (side, side, 3) an image.
        looks: of the entries that have a file, in their order; an image's number is its row among the pixels.
    """

    path: str
    looks: list[Look]


def decoded(listed: Listed, side: int, work: Path) -> Decoded:
    """Decode the images that a file of annotations lists, or find what an earlier call decoded.

    Args:
        listed: the file.
        side: of the square that images are put into.
        work: the cache folder of sources.

    Raises:
        SourceError: an image cannot be read.
        StoreError: the cache folder cannot be written.
        ChildKilledError: there is too little memory.
    """
    factor = settings.load().parse_limits  # more of them may decode what was left out
    key = digests.of_json([_FORM, side, factor, pixels_version(), listed.entries_sha256])
    [looks] = made_once(work, key, partial(_decode, listed, side, factor))
    with explained("read", looks.path), looks.path.open() as lines:
        return Decoded(str(looks.path.parent / _PIXELS), [_look(json.loads(line)) for line in lines])


def pixels_version() -> str:
    """Return what pixels depend on beside the files: another version of the decoder may round one differently."""
    return version("opencv-python-headless")


def _decode(listed: Listed, side: int, factor: float, folder: Path) -> list[RawFile]:
    def requests() -> Iterator[Request]:
        there = ((entry.file, entry.width, entry.height) for entry in listed.entries() if entry.file is not None)
        for row, request in enumerate(there):
            yield row, *request

    with explained("write", folder):
        (folder / _PIXELS).touch()
        parser = Parser(f"{__name__}:decoder", (str(folder / _PIXELS), side), _FIRST, _is_doubtful)
        with (folder / _LOOKS).open("w") as lines:
            for answer in parser.parse(requests(), "images", factor):
                look = answer
                if isinstance(answer, Breach):
                    look = Look(0, 0, problem=f"the file {refusal('', answer, factor).strip()}")
                lines.write(f"{json.dumps(look)}\n")
    return [raw_file(_LOOKS, folder / _LOOKS)]


def _look(values: list[Any]) -> Look:
    size, crc, header, *rest = values
    return Look(size, crc, header and Header(*header), *rest)


def _is_doubtful(answer: Any) -> bool:
    """Whether a lack of memory may be the reason that an image was not decoded."""
    return not isinstance(answer, Breach) and _look(answer).problem == _UNDECODED


def decoder(path: str, side: int) -> Callable[[Request], Look]:
    """Return what decodes one image; runs in a sandbox.

    Args:
        path: the file of pixels.
        side: of the square.

    Returns:
        A function of an image's row, its place, and its annotated width and height, 0 if they are the file's. It raises
        OSError if the file cannot be read, StoreError if nothing can be written.
    """
    ready_for_many()
    square = np.empty((side, side, 3), np.uint8)

    def look(request: Request) -> Look:
        row, place, *annotated = request
        try:
            data = place.read()
        except MemberError as error:
            return Look(0, 0, problem=f"{_archive(place)}, at byte {place.offset:,}: {error}")
        found = Look(len(data), zlib.crc32(data))
        if place.offset is not None and (found.size, found.crc) != (place.size, place.crc):
            return found._replace(problem=f"{_archive(place)}: size or checksum is not the directory's")
        try:
            header = inspect_image(data)
        except PictureError as error:
            return found._replace(problem=f"the file {error}")
        found = found._replace(header=header)
        width, height = annotated if annotated[0] else header[:2]
        if problem := _misfit(header, width, height):
            return found._replace(problem=problem)
        begin(limits_of_pixels(width * height, _WAIT))
        pixels = decode(data, width, height)
        if pixels is None or pixels.shape != (height, width, 3):
            return found._replace(problem=_UNDECODED)
        LetterBox(width, height, side).place(pixels, out=square)
        with explained("write", path), Path(path).open("r+b") as stream:
            stream.seek(row * square.nbytes)
            stream.write(square.data)
        return found._replace(pixels_crc=google_crc32c.value(square))

    return look


def _archive(place: ImagePlace) -> str:
    return f"{Path(place.path).name} is damaged there"


def _misfit(header: Header, width: int, height: int) -> str:
    """Say so if an image has not the size that was annotated, as it is stored or turned as its EXIF says."""
    stored = (header.width, header.height)
    if stored == (width, height) or (stored == (height, width) and header.orientation in _TURNED):
        return ""
    return f"the file has {stored[0]}×{stored[1]} pixels vs {width}×{height} in the annotations"
