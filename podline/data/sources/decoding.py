"""Decodes image files in sandboxes, and puts what they become one after another into a file.

An image that is damaged, crashes its decoder or takes too much is left out with its reason; its neighbours are read.
This machine decodes, unless :data:`DECODING` says otherwise: a conversion on an engine lets its workers do it.
"""

from __future__ import annotations

import errno
import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from podline import settings
from podline.data import bounds
from podline.data.coco_letterbox import LetterBox
from podline.data.coco_pixels import decode, ready_for_many
from podline.data.decoded_rows import PIXELS, DecodedRows, rows_of, write_row
from podline.data.fitting import fitted
from podline.data.headers import Header, PictureError, inspect_image, looks_like_picture
from podline.data.pictures import limits_of_pixels, picture_of
from podline.data.places import MemberError, Readable
from podline.data.sources.parser_pool import Parser
from podline.documents.manifest import Fit
from podline.sandbox import Breach, Limits, begin, refusal

Pixels = npt.NDArray[np.uint8]

FORGOTTEN = "forgotten"
"""How the reason of a file begins that is not decoded because a person said so."""

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_SHUT = (errno.EACCES, errno.EPERM, errno.EISDIR)
_MAKER = f"{__name__}:decoder"
_WAIT = 120.0  # seconds for a slow disk or network
# Until the header is read, and of small images: to set limits takes a tenth of the time that decoding one takes.
_FIRST = Limits(4 * bounds.IMAGE_BYTES, 2.0, _WAIT)
_UNDECODED = "is damaged: it cannot be decoded"
_TURNED = (5, 6, 7, 8)  # EXIF orientations that swap width and height


class Look(NamedTuple):
    """The facts about an image's file.

    Attributes:
        sha256: of its bytes, hexadecimal; of a picture.
        pixels: the sha256 of what it became; of a picture.
        bytes: its size.
        width: of the picture as it is shown; of an annotated image as it is stored.
        height: of the same.
        turned: whether a picture was turned as EXIF says.
        components: of an annotated image's pixels: 1, 3 or 4.
        orientation: of an annotated image: EXIF's, 1 … 8.
        crc: the CRC-32 of its bytes; of an annotated image.
        picture: whether it begins as a picture does.
        reason: why it cannot be decoded, a phrase that follows the file's name; empty if it can.
        doubtful: whether a lack of memory may be the reason.
    """

    sha256: str = ""
    pixels: str = ""
    bytes: int = 0
    width: int = 0
    height: int = 0
    turned: bool = False
    components: int = 0
    orientation: int = 1
    crc: int = 0
    picture: bool = False
    reason: str = ""
    doubtful: bool = False


class Request(NamedTuple):
    """An image to decode.

    Attributes:
        place: where its file is; a reason where it cannot be read.
        size: its annotated width and height; zeros if they are the file's.
    """

    place: Readable | str
    size: tuple[int, int] = (0, 0)


Decoded = tuple[Look, Pixels | None]


class Pictures(NamedTuple):
    """Decodes pictures of any kind, and fits them into a shape.

    Attributes:
        shape: of every image.
        fit: see :func:`podline.data.fitting.fitted`.
        forgotten: the sha256 of each file that is not decoded, and why.
    """

    shape: tuple[int, int, int]
    fit: Fit
    forgotten: tuple[tuple[str, str], ...]

    def decoded(self, data: bytes, _size: tuple[int, int]) -> Decoded:
        """Return a file's format and its converted image; runs in a sandbox."""
        look = Look(hashlib.sha256(data).hexdigest(), bytes=len(data))
        if (why := dict(self.forgotten).get(look.sha256)) is not None:
            return look._replace(reason=f"{FORGOTTEN}: {why}", picture=True), None
        declared: list[int] = []

        def declare(pixels: int) -> None:
            declared.append(pixels)
            begin(limits_of_pixels(pixels, _WAIT))

        try:
            if len(data) > bounds.IMAGE_BYTES:
                raise PictureError(f"has more than {bounds.IMAGE_BYTES:,} bytes")  # noqa: TRY301 (as the others)
            picture = picture_of(data, declare)
        except PictureError as error:
            reason, begins = str(error) if data else "is empty", looks_like_picture(data)
            return look._replace(reason=reason, picture=begins, doubtful=bool(declared)), None
        pixels = np.ascontiguousarray(fitted(picture.pixels, self.shape, self.fit))
        height, width = picture.pixels.shape[:2]
        sha256 = hashlib.sha256(pixels.data).hexdigest()
        look = look._replace(pixels=sha256, width=width, height=height, turned=picture.turned, picture=True)
        return look, pixels


class Squares(NamedTuple):
    """Decodes images as they were annotated, and letter-boxes them.

    Attributes:
        side: of the square, in pixels.
    """

    side: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the shape of every image."""
        return self.side, self.side, 3

    def decoded(self, data: bytes, size: tuple[int, int]) -> Decoded:
        """Return a file's format and its converted image; runs in a sandbox."""
        look = Look(bytes=len(data), crc=zlib.crc32(data), picture=True)
        try:
            header = inspect_image(data)
        except PictureError as error:
            return look._replace(reason=str(error)), None
        look = look._replace(**header._asdict())
        width, height = size if size[0] else header[:2]
        if misfit := _misfit(header, width, height):
            return look._replace(reason=misfit), None
        begin(limits_of_pixels(width * height, _WAIT))
        pixels = decode(data, width, height)
        if pixels is None or pixels.shape != (height, width, 3):
            return look._replace(reason=_UNDECODED, doubtful=True), None
        square = np.empty(self.shape, np.uint8)
        LetterBox(width, height, self.side).place(pixels, out=square)
        return look, square


Becoming = Pictures | Squares
"""What images become."""


def _misfit(header: Header, width: int, height: int) -> str:
    """Say so if an image has not the size that was annotated, as it is stored or turned as its EXIF says."""
    stored = (header.width, header.height)
    if stored == (width, height) or (stored == (height, width) and header.orientation in _TURNED):
        return ""
    return f"has {stored[0]}×{stored[1]} pixels vs {width}×{height} in the annotations"


def content(place: Readable | str) -> bytes | str:
    """Return an image's file; or why there is none.

    Raises:
        OSError: it cannot be read now.
    """
    if isinstance(place, str):
        return place
    try:
        return place.read()
    except MemberError as error:
        return str(error)
    except OSError as error:
        if error.errno in _GONE:
            return "there is no such file"
        if error.errno in _SHUT:
            return "may not be read"
        raise


def decoder(becoming: Becoming) -> Callable[[tuple[str, int, Request]], Look]:
    """Return what decodes one image; runs in a sandbox.

    Args:
        becoming: what images become.

    Returns:
        A function of the file of decoded images, an image's number in it, and where the image is. It raises OSError if
        the image cannot be read, StoreError if nothing can be written.
    """
    ready_for_many()

    def look(given: tuple[str, int, Request]) -> Look:
        path, row, request = given
        data = content(request.place)
        if isinstance(data, str):
            return Look(reason=data)
        found, pixels = becoming.decoded(data, request.size)
        if pixels is not None:
            write_row(path, row, pixels)
        return found

    return look


def parser_of(becoming: Becoming) -> Parser:
    """Return what decodes images in sandboxes."""
    return Parser(_MAKER, (becoming,), _FIRST, _is_doubtful)


def _is_doubtful(answer: Any) -> bool:
    return not isinstance(answer, Breach) and Look(*answer).doubtful


def look_of(answer: Any, factor: float) -> Look:
    """Return what a sandbox says of an image."""
    if isinstance(answer, Breach):
        return Look(picture=True, reason=refusal("", answer, factor).strip())
    return Look(*answer)


class Decoding(Protocol):
    """A way to decode images: on this machine, or on an engine's workers.

    Attributes:
        key: tells apart where what is decoded stays; empty if it is the folder.
    """

    @property
    def key(self) -> str: ...  # noqa: D102

    def looks(self, becoming: Becoming, requests: Iterable[Request], folder: Path) -> Iterator[Look]:
        """Decode images into a folder; image ``n`` that is asked for gets row ``n``.

        Yields:
            What each is, in their order.

        Raises:
            SourceError: a file cannot be read.
            StoreError: nothing can be written.
            ChildKilledError: there is too little memory.
        """
        ...

    def rows(self, folder: Path, shape: tuple[int, int, int], /) -> DecodedRows:
        """Return the images that were decoded into a folder, wherever it is by now."""
        ...


class Here:
    """Decodes on this machine."""

    key = ""

    def looks(self, becoming: Becoming, requests: Iterable[Request], folder: Path) -> Iterator[Look]:
        """See :meth:`Decoding.looks`."""
        factor, path = settings.load().parse_limits, folder / PIXELS
        path.touch()
        asked = ((str(path), row, request) for row, request in enumerate(requests))
        for answer in parser_of(becoming).parse(asked, "images", factor):
            yield look_of(answer, factor)

    def rows(self, folder: Path, shape: tuple[int, int, int]) -> DecodedRows:
        """See :meth:`Decoding.rows`."""
        return rows_of(folder, shape)


_HERE = Here()
DECODING: ContextVar[Decoding] = ContextVar("decoding", default=_HERE)
"""Who decodes images while a source is opened."""
