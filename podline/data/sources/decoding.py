"""Decodes image files in sandboxes, and writes the pixels one after another into a file.

An image that is damaged, crashes its decoder or exceeds the limits is left out with its reason; the others are decoded.
This machine decodes unless a conversion on an engine sets :data:`DECODING`.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import NamedTuple, Protocol

import numpy as np

from podline.base.arrays import Pixels
from podline.data import bounds
from podline.data.decoded_rows import DecodedRows, write_row
from podline.data.fitting import shown_size
from podline.data.headers import PictureError, looks_like_picture, segments
from podline.data.identity import IDENTITY_BYTES, identified
from podline.data.images.hashing import hash_of
from podline.data.pictures import Form, limits_of_pixels, picture_of, ready_for_many
from podline.data.places import MemberError, Place
from podline.data.rawfiles import reading
from podline.data.reasons import FORGOTTEN, Reason
from podline.data.sandbox.child import begin
from podline.data.sandbox.limits import Breach, ParseLimits
from podline.data.sandbox.pool import Sandbox
from podline.documents.manifest import Fit

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_SHUT = (errno.EACCES, errno.EPERM, errno.EISDIR)
_MAKER = f"{__name__}:decoder"
_WAIT = 120.0  # seconds for a slow disk or network
# Limits until the header is read. Small images keep them: setting limits takes a tenth of the time of a decoding.
_FIRST, _SMALL = ParseLimits(4 * bounds.IMAGE_BYTES, 2.0, _WAIT), 1_000_000


class Look(NamedTuple):
    """The facts about an image file.

    Attributes:
        identity: a picture's identity, hexadecimal; see :mod:`podline.data.identity`.
        pixels: digest of a picture's converted pixels.
        bytes: size of a picture without metadata.
        width: width of a picture as it was decoded.
        height: height of a picture as it was decoded.
        turned: whether the EXIF orientation turned a picture.
        unturned: whether an annotated picture stayed as stored although it has an EXIF orientation.
        marks: see :class:`podline.data.pictures.DecodedPicture`.
        hash: see :mod:`podline.data.images.hashing`.
        contrast: see :mod:`podline.data.images.hashing`.
        picture: whether the file's first bytes are those of a picture format.
        reason: why the file was not decoded, as a phrase after the file's name; empty if decoded.
        doubtful: whether a lack of memory may be the reason.
    """

    identity: str = ""
    pixels: str = ""
    bytes: int = 0
    width: int = 0
    height: int = 0
    turned: bool = False
    unturned: bool = False
    marks: int = 0
    hash: int = 0
    contrast: float = 0.0
    picture: bool = False
    reason: str = ""
    doubtful: bool = False

    @property
    def facts(self) -> tuple[object, ...]:
        """Return the values of the columns :data:`podline.data.images.image_table.IMAGE_FACTS`."""
        return (*map(bytes.fromhex, self[:2]), *self[2:-3])


class DecodeRequest(NamedTuple):
    """A request to decode one image.

    Attributes:
        place: the location of the image's file, or the reason why the file cannot be read.
        size: see :class:`podline.data.images.items.Item`.
    """

    place: Place | str
    size: Sequence[int] | None = None


Decoded = tuple[Look, Pixels | None]


class FittedPictures(NamedTuple):
    """Decodes pictures of any format, and resizes them to one shape.

    Attributes:
        shape: shape of every result.
        fit: see :func:`podline.data.fitting.fitted`.
        forgotten: identity of an image that must not be decoded → the reason.
        hashed: whether results get a perceptual hash.
        white: see :class:`podline.data.pictures.Form`.
        most: see :class:`podline.data.pictures.Form`.
    """

    shape: tuple[int, int, int]
    fit: Fit
    forgotten: Mapping[str, str] = {}
    hashed: bool = True
    white: int = 0
    most: int = bounds.PIXELS

    def decoded(self, data: bytes, size: Sequence[int] | None) -> Decoded:
        """Decode a file; return its facts, and the converted pixels or None; runs in a sandbox.

        Args:
            data: content of the file.
            size: see :class:`podline.data.images.items.Item`.
        """
        found = identified(data)
        look = Look(found.identity.hex(), bytes=found.bytes)
        why = self.forgotten.get(look.identity)
        if why is None and self.forgotten:  # Podline 1.0 identified images by the checksum of their file
            why = self.forgotten.get(hashlib.sha256(data).hexdigest())
        if why is not None:
            return look._replace(reason=str(Reason(FORGOTTEN, why)), picture=True), None
        declared: list[int] = []

        def declare(pixels: int, held: int) -> None:
            declared.append(pixels)
            if pixels > _SMALL:
                begin(limits_of_pixels(pixels, held, _WAIT))

        try:
            if len(data) > bounds.IMAGE_BYTES:
                raise PictureError(f"has more than {bounds.IMAGE_BYTES:,} bytes")  # noqa: TRY301 (as the others)
            form = Form(self.shape, self.fit, self.white, self.most)
            picture = picture_of(data, declare, (size[0], size[1]) if size and not size[2] else None, form)
        except PictureError as error:
            reason, begins = str(error) if data else "is empty", looks_like_picture(data)
            return look._replace(reason=reason, picture=begins, doubtful=bool(declared)), None
        width, height = picture.width, picture.height
        stored = (height, width) if size and size[2] and picture.turned else (width, height)
        if size and size[0] and (size[0], size[1]) not in ((width, height), stored):
            reason = f"has {width}×{height} pixels vs {size[0]}×{size[1]} in the annotations"
            return look._replace(reason=reason, picture=True), None
        pixels = np.ascontiguousarray(picture.pixels)
        digest = hashlib.sha256(pixels.data).digest()[:IDENTITY_BYTES].hex()
        shown = shown_size(height, width, self.shape, self.fit)
        perceived, contrast = hash_of(pixels, *shown) if self.hashed else (0, 0.0)
        look = look._replace(pixels=digest, width=width, height=height, hash=perceived, contrast=contrast, picture=True)
        return look._replace(turned=picture.turned, unturned=picture.unturned, marks=picture.marks), pixels


def content(place: Place | str) -> bytes | str:
    """Return the content of an image file, or the reason why it cannot be read.

    Raises:
        OSError: a temporary reading error.
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
            return "is not readable by this user"
        raise


def decoder(becoming: FittedPictures) -> Callable[[tuple[str, int, DecodeRequest]], Look]:
    """Return a function that decodes one image; runs in a sandbox.

    Args:
        becoming: the conversion of the images.

    Returns:
        A function of (path of the file for decoded images, row in this file, request). It raises OSError if the image
        cannot be read, StoreError if the pixels cannot be written.
    """
    ready_for_many()

    def look(given: tuple[str, int, DecodeRequest]) -> Look:
        path, row, request = given
        segments.cache_clear()  # frees the previous file
        data = content(request.place)
        if isinstance(data, str):
            return Look(reason=data)
        found, pixels = becoming.decoded(data, request.size)
        if pixels is not None:
            write_row(path, row, pixels)
        return found

    return look


class Decoder(Sandbox):
    """Processes that decode images."""

    def __init__(self, becoming: FittedPictures) -> None:
        super().__init__(_MAKER, becoming)

    def looks(
        self, asked: Iterable[tuple[str, int, DecodeRequest]], factor: float, processes: int = 0
    ) -> Iterator[Look]:
        """Decode images; yield the facts about each, in order.

        Args:
            asked: see :func:`decoder`.
            factor: factor for all limits: the setting ``parse_limits``.
            processes: see :meth:`Sandbox.parse`.

        Raises:
            SourceError: a file cannot be read.
            StoreError: the pixels cannot be written.
            ChildKilledError: a process was killed twice by the same image.
        """
        with reading("images"):
            for answer in self.parse(asked, _FIRST, "images", factor, lambda answer: Look(*answer).doubtful, processes):
                if isinstance(answer, Breach):
                    yield Look(picture=True, reason=answer.refusal("", factor).strip())
                else:
                    yield Look(*answer)


class Engine(Protocol):
    """Workers that decode images, instead of this machine."""

    def decode(
        self, becoming: FittedPictures, requests: Iterable[DecodeRequest], name: str, /
    ) -> tuple[Iterator[Look], DecodedRows]:
        """Decode images; the n-th requested one gets row n.

        Args:
            becoming: the conversion of the images.
            requests: the images.
            name: identifies the requests, so that the results of an interrupted job are reused.

        Returns:
            The facts about each image, in order; and the decoded images.

        Raises:
            SourceError: a file cannot be read.
            StoreError: a file cannot be written.
            OutOfMemoryError: the memory is too small.
        """
        ...

    def shared(self, rows: DecodedRows, shape: tuple[int, int, int], name: str, /) -> DecodedRows:
        """Copy images that this machine decoded to where all workers can read them, and return the copies.

        Raises:
            StoreError: the store cannot be written.
        """
        ...


DECODING: ContextVar[Engine | None] = ContextVar("decoding", default=None)
"""The engine that decodes images while a source is opened; None for this machine."""
