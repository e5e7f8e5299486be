"""Decodes image files in sandboxes, fits them and writes their pixels one after another into one file.

An image that crashes a decoder, or takes too much, is left out with its reason; its neighbours are read.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from podline.data import bounds
from podline.data.coco_pixels import ready_for_many
from podline.data.fitting import fitted
from podline.data.headers import looks_like_picture
from podline.data.images.items import Item, Place
from podline.data.pictures import PictureError, limits_of_pixels, picture_of
from podline.data.sources.parser_pool import Parser
from podline.documents.manifest import Fit
from podline.errors import StoreError
from podline.sandbox import Breach, Limits, begin, refusal

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_SHUT = (errno.EACCES, errno.EPERM, errno.EISDIR)
_MAKER = f"{__name__}:decoder"
_WAIT = 120.0  # seconds for a slow disk or network
# Until the header is read, and of small images: to set limits takes a tenth of the time that decoding one takes.
_FIRST = Limits(4 * bounds.IMAGE_BYTES, 2.0, _WAIT)
_SMALL = 1_000_000  # pixels


class Look(NamedTuple):
    """What an image's file is.

    Attributes:
        sha256: of its bytes, hexadecimal.
        pixels_sha256: of its pixels as they were written, likewise.
        bytes: its size.
        width: of the picture as it is shown.
        height: likewise.
        turned: whether EXIF turns it.
        picture: whether it begins as a picture does.
        reason: why it cannot be decoded; empty if it can.
        doubtful: whether a lack of memory may be the reason.
    """

    sha256: str = ""
    pixels_sha256: str = ""
    bytes: int = 0
    width: int = 0
    height: int = 0
    turned: bool = False
    picture: bool = False
    reason: str = ""
    doubtful: bool = False


def decoder(path: str, shape: tuple[int, int, int], fit: Fit) -> Callable[[tuple[int, Place]], Look]:
    """Return what decodes one image; runs in a sandbox.

    Args:
        path: the file of pixels.
        shape: of every image.
        fit: see :func:`podline.data.fitting.fitted`.

    Returns:
        A function of the number of an image's pixels in the file, and of where the image is. It raises OSError if it
        cannot be read, StoreError if nothing can be written.
    """
    ready_for_many()
    return _Decoder(path, shape, fit).look


class _Decoder:
    def __init__(self, path: str, shape: tuple[int, int, int], fit: Fit) -> None:
        self._path, self._shape = path, shape
        self._fit: Fit = fit
        self._pixels = os.open(path, os.O_WRONLY)
        self._archive, self._file = "", -1

    def look(self, request: tuple[int, Place]) -> Look:
        row, place = request
        try:
            data = self._read(place)
        except OSError as error:
            if error.errno in _GONE:
                return Look(reason="there is no such file")
            if error.errno in _SHUT:
                return Look(reason="may not be read")
            raise
        known = Look(hashlib.sha256(data).hexdigest(), bytes=len(data))
        if len(data) > bounds.IMAGE_BYTES:
            known = known._replace(reason=f"has more than {bounds.IMAGE_BYTES:,} bytes")
            return known._replace(picture=looks_like_picture(data))
        decodes = False

        def declared(pixels: int) -> None:
            nonlocal decodes
            decodes = True
            begin(limits_of_pixels(pixels, _WAIT))

        try:
            picture = picture_of(data, declared)
        except PictureError as error:
            reason = str(error) if data else "is empty"
            return known._replace(picture=looks_like_picture(data), reason=reason, doubtful=decodes)
        pixels = np.ascontiguousarray(fitted(picture.pixels, self._shape, self._fit)).data
        self._write(pixels, row * pixels.nbytes)
        height, width = picture.pixels.shape[:2]
        pixels_sha256 = hashlib.sha256(pixels).hexdigest()
        return known._replace(
            pixels_sha256=pixels_sha256, width=width, height=height, turned=picture.turned, picture=True
        )

    def _read(self, place: Place) -> bytes:
        """At most one byte more than an image may have."""
        if place.bytes < 0:
            file = os.open(place.path, os.O_RDONLY)
            try:
                return _read(file, place.path, os.fstat(file).st_size, 0)
            finally:
                os.close(file)
        if place.path != self._archive:
            if self._file >= 0:
                os.close(self._file)
            self._archive, self._file = place.path, os.open(place.path, os.O_RDONLY)
        return _read(self._file, place.path, place.bytes, place.start)

    def _write(self, pixels: memoryview, start: int) -> None:
        left = pixels.cast("B")
        while left:  # where the disk gets full, a part is written, and no error is raised
            try:
                count = os.pwrite(self._pixels, left, start)
            except OSError as error:
                raise StoreError(f"cannot write {self._path}: {error.strerror}") from error
            left, start = left[count:], start + count


def _read(file: int, path: str, size: int, start: int) -> bytes:
    """Return so many bytes of a file, but at most one more than an image may have.

    Raises:
        OSError: it cannot be read, or has become shorter.
    """
    size, parts = min(size, bounds.IMAGE_BYTES + 1), list[bytes]()
    while size > 0:
        part = os.pread(file, size, start)
        if not part:
            raise OSError(errno.EIO, f"{size:,} bytes fewer than it had", path)
        parts.append(part)
        size, start = size - len(part), start + len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _is_doubtful(answer: Any) -> bool:
    return not isinstance(answer, Breach) and Look(*answer).doubtful


def looks(
    items: Iterable[Item], path: str, shape: tuple[int, int, int], fit: Fit, factor: float
) -> Iterator[tuple[Item, int, Look]]:
    """Decode images, in their order.

    Args:
        items: the images.
        path: see :func:`decoder`.
        shape: likewise.
        fit: likewise.
        factor: multiplies all limits: the setting ``parse_limits``.

    Yields:
        Each item, the number of its pixels in the file (-1 of one that is not looked at), and what it is: one that has
        a reason already is looked at if its data are known. Of items with the same data the first is looked at.

    Raises:
        SourceError: a file cannot be read.
        StoreError: nothing can be written.
        ChildKilledError: there is too little memory.
    """
    waiting: deque[tuple[Item, int]] = deque()

    def requests() -> Iterator[tuple[int, Place]]:
        row = 0
        for item in items:
            wanted = isinstance(item.data, Place) and item.same < 0
            waiting.append((item, row if wanted else -1))
            if isinstance(item.data, Place) and wanted:
                yield row, item.data
                row += 1

    def unasked() -> Iterator[tuple[Item, int, Look]]:
        while waiting and waiting[0][1] < 0:
            yield (*waiting.popleft(), Look())

    for answer in Parser(_MAKER, (path, shape, fit), _FIRST, _is_doubtful).parse(requests(), "images", factor):
        yield from unasked()
        item, row = waiting.popleft()
        if isinstance(answer, Breach):
            yield item, row, Look(picture=True, reason=refusal("", answer, factor).strip())
        else:
            yield item, row, Look(*answer)
    yield from unasked()
