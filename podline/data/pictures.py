"""Decodes picture files: detects the format by the content, and checks the header before decoding.

OpenCV decodes JPEG, in half of Pillow's time, and 16-bit pictures, which Pillow reduces to 8 bits. Pillow decodes CMYK
and all other formats, because OpenCV rotates some WebP files wrongly and cannot read every GIF, BMP, TIFF and PNG file.
Every picture becomes 8-bit red, green and blue:

- the EXIF orientation is applied. An annotated picture stays as stored, unless it has the annotated size only after a
  rotation by 90 degrees;
- 16-bit values keep their upper 8 bits, or are scaled so that a given value becomes 255;
- transparent pixels are drawn over white;
- the first of several frames or pages is decoded;
- a JPEG file is decoded at a half, a quarter or an eighth of its size if this is at least twice the size of the result.

Untrusted files are decoded in a sandbox: :mod:`podline.data.picture_sandbox`.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from podline.base.arrays import Pixels
from podline.data import bounds
from podline.data.fitting import SQUEEZE, fitted, reduction
from podline.data.headers import (
    JPEG,
    Deep,
    Header,
    PictureError,
    check_size,
    damaged,
    deep_of,
    inspect_jpeg,
    open_picture,
    orientation_of,
)
from podline.data.sandbox.limits import ParseLimits
from podline.documents.manifest import Fit

DARK, CLEAR = 1, 2
"""Flags of a picture: all its 16-bit values are below 4,096, though white is 65,535; all its pixels are transparent."""
_OTHER = {"F": "floating-point samples", "I": "samples of 32 bits", "LAB": "L*a*b* colours"}
_STRIP_PIXELS = 1 << 20
_LARGE_BLOCK = 31 << 20
_UNKNOWN = (0, 0)
_REDUCED = {
    1: cv2.IMREAD_COLOR_RGB,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}
_LIMITED_BY = 8  # a JPEG that is reduced while decoding may have this many times the allowed number of pixels
# After these warnings, libjpeg fills a part of the picture with grey.
_CUT = re.compile(rb"premature end of data|found marker 0xd9 instead of RST", re.IGNORECASE)
_BROKEN = re.compile(rb"bad Huffman code|found marker .* instead of RST")
_DARKEST, _BLACK, _SIXTEEN = 1 << 12, 1 << 8, 0xFFFF


class Form(NamedTuple):
    """The shape and value range of a decoded picture.

    Attributes:
        shape: shape of the pixels, (height, width, channels); empty for the picture's own height and width, in colour.
        fit: how the picture is resized to the shape; see :func:`podline.data.fitting.fitted`.
        white: the 16-bit value that becomes 255; 0 for the file's own, :attr:`podline.data.headers.Deep.white`.
        most: largest number of pixels held in memory; a JPEG that is reduced may have eight times as many.
    """

    shape: tuple[int, ...] = ()
    fit: Fit = SQUEEZE
    white: int = 0
    most: int = bounds.PIXELS


AS_IT_IS = Form()


class DecodedPicture(NamedTuple):
    """A decoded picture.

    Attributes:
        pixels: pixels as displayed: uint8 (height, width, 3), red, green, blue; or of the form's shape.
        width: width of the whole picture as displayed.
        height: height of the whole picture as displayed.
        turned: whether the EXIF orientation turned the stored pixels.
        unturned: whether the pixels stay as stored although the EXIF orientation would turn them.
        marks: bitwise or of :data:`DARK` and :data:`CLEAR`; 0 for most pictures.
    """

    pixels: Pixels
    width: int
    height: int
    turned: bool
    unturned: bool = False
    marks: int = 0


Declared = Callable[[int, int], None]
"""A function called before decoding, with the picture's number of pixels and the number of pixels held in memory."""


def limits_of_pixels(pixels: int, held: int, wait: float = 10.0) -> ParseLimits:
    """Return the limits for decoding pictures.

    Args:
        pixels: number of pixels of all pictures, by their headers.
        held: number of pixels held in memory during decoding.
        wait: see :class:`ParseLimits`.

    Returns:
        Memory of 64 MB and 8 bytes per pixel in memory, and CPU time of 0.4 s and a second per 5 million pixels: twice
        the time of the slowest decoder.
    """
    return ParseLimits(64_000_000 + 8 * held, 0.4 + pixels / 5e6, wait)


def picture_of(
    data: bytes,
    declared: Declared = lambda _pixels, _held: None,
    annotated: tuple[int, int] | None = None,
    form: Form = AS_IT_IS,
) -> DecodedPicture:
    """Decode the content of a file; the caller adds the file's name to errors.

    Args:
        data: the content of the file.
        declared: see :data:`Declared`.
        annotated: width and height in the picture's annotations, zeros if the annotations lack them; None for a picture
            without annotations.
        form: shape and value range of the result.

    Raises:
        PictureError: the format is not supported, or the file is truncated, damaged or too large.
    """
    header = inspect_jpeg(data) if data.startswith(JPEG) else None
    if header is None or header.components == 4:  # CMYK, which OpenCV decodes too light
        found = _by_pillow(data, header, declared, annotated, form)
    else:
        factor = _factor(header, form)
        declared(header.width * header.height, _held(header, form))
        pixels = imdecoded(data, _REDUCED[factor] | cv2.IMREAD_IGNORE_ORIENTATION)
        if pixels is None:
            raise PictureError("is damaged: it cannot be decoded")
        pixels = pixels[..., ::-1] if factor > 1 else pixels  # red, green, blue
        found = _oriented(_aligned(pixels, header, factor), header[:2], header.orientation, annotated)
    if not form.shape:
        return found
    return found._replace(pixels=fitted(found.pixels, form.shape, form.fit, (found.height, found.width)))


def held_of(data: bytes, form: Form) -> int:
    """Return the number of pixels held in memory while a picture of 8 bits is decoded, from its header.

    Raises:
        PictureError: see :func:`picture_of`.
    """
    if data.startswith(JPEG):
        return _held(inspect_jpeg(data), form)
    picture = open_picture(data)
    check_size(picture.width, picture.height, picture.width * picture.height, form.most)
    return picture.width * picture.height


def _held(jpeg: Header, form: Form) -> int:
    factor, pixels = _factor(jpeg, form), jpeg.width * jpeg.height
    # A progressive file's coefficients are in memory, two bytes each.
    coefficients = pixels * 2 * jpeg.components // 8 if jpeg.progressive and factor > 1 else 0
    held = pixels // factor**2 + coefficients
    check_size(jpeg.width, jpeg.height, max(held, pixels // _LIMITED_BY), form.most)
    return held


def _factor(header: Header, form: Form) -> int:
    """Return the factor by which a JPEG is reduced during decoding: 1, 2, 4 or 8."""
    if not form.shape or header.components == 4:
        return 1
    turned = reduction(header.width, header.height, form.shape, form.fit)
    return min(reduction(header.height, header.width, form.shape, form.fit), turned)


def _aligned(pixels: Pixels, header: Header, factor: int) -> Pixels:
    """Resample a reduced picture whose last column or row lies partly outside the picture.

    The pixels become slightly larger, so that a whole number of pixels covers the picture exactly.
    """
    columns, rows = header.width // factor, header.height // factor
    if pixels.shape[:2] == (rows, columns) or factor == 1:
        return pixels
    wide, tall = header.width / factor / columns, header.height / factor / rows
    moved = np.array([[wide, 0, wide / 2 - 0.5], [0, tall, tall / 2 - 0.5]])
    how = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    warped: Any = cv2.warpAffine(pixels, moved, (columns, rows), flags=how, borderMode=cv2.BORDER_REPLICATE)
    return warped


def _oriented(
    pixels: Pixels, size: tuple[int, int], orientation: int, annotated: tuple[int, int] | None, marks: int = 0
) -> DecodedPicture:
    if orientation == 1 or (annotated is not None and (annotated in (size, _UNKNOWN) or annotated != size[::-1])):
        return DecodedPicture(pixels, *size, turned=False, unturned=orientation != 1, marks=marks)
    width, height = size[::-1] if orientation >= 5 else size
    return DecodedPicture(turned(pixels, orientation), width, height, turned=True, marks=marks)


def _by_pillow(
    data: bytes, header: Header | None, declared: Declared, annotated: tuple[int, int] | None, form: Form
) -> DecodedPicture:
    picture = open_picture(data)
    deep, pixels = deep_of(data, picture), picture.width * picture.height
    check_size(picture.width, picture.height, pixels, form.most)
    declared(pixels, 2 * pixels if deep else pixels)
    first = orientation_of(picture.getexif)
    try:
        picture.load()  # applies a TIFF's orientation, and reads PNG fields after the pixels
        found, marks = _deep_pixels(data, picture, deep, form.white) if deep else _pillow_pixels(picture)
    except (PictureError, MemoryError):
        raise
    except Exception as error:
        raise damaged(error) from error
    if header and _messages:  # Pillow keeps libjpeg's warnings to itself
        imdecoded(data, cv2.IMREAD_REDUCED_GRAYSCALE_8)
    last = orientation_of(picture.getexif)
    shown = _oriented(found, (found.shape[1], found.shape[0]), last, annotated, marks)
    return shown._replace(turned=shown.turned or (last == 1 and first != 1))


def _deep_pixels(data: bytes, picture: Image.Image, deep: Deep, given: int) -> tuple[Pixels, int]:
    """Decode a 16-bit picture: uint8 (height, width, 3), and the flags :data:`DARK` and :data:`CLEAR`.

    ``given`` is the 16-bit value that becomes 255; 0 takes the file's own.
    """
    values = imdecoded(data, cv2.IMREAD_UNCHANGED)
    if values is None or values.dtype != np.uint16:
        raise PictureError("cannot be decoded as a 16-bit picture: it is damaged, or its compression is not supported")
    values = values if values.ndim == 3 else values[..., np.newaxis]
    alpha = values[..., 3:] if deep.has_alpha and values.shape[2] == 4 else None
    clear = picture.info.get("transparency")
    if values.shape[2] == 1 and isinstance(clear, int):
        alpha = (values != clear) * np.uint16(_SIXTEEN)
    colours: Any = values[..., 2::-1] if values.shape[2] > 1 else values
    white, brightest = given or deep.white, int(colours.max())
    is_whole = white == _SIXTEEN and not given and not deep.is_inverted
    if is_whole and 0 < brightest < _BLACK:
        raise PictureError(f"has 16-bit values up to {brightest}, which would all be black; set conversion.white=255")
    pixels = np.empty((*values.shape[:2], 3), np.uint8)
    rows = max(1, _STRIP_PIXELS // values.shape[1])
    for top in range(0, len(values), rows):
        strip = colours[top : top + rows].astype(np.uint32)
        strip = np.minimum(strip, white) * 255 // white if white != _SIXTEEN else strip >> 8
        strip = 255 - strip if deep.is_inverted else strip
        if alpha is not None:
            opaque = alpha[top : top + rows].astype(np.uint32)
            strip = (strip * opaque + 255 * (_SIXTEEN - opaque)) // _SIXTEEN
        pixels[top : top + rows] = strip
    is_clear = alpha is not None and not alpha.any()
    return pixels, (DARK if is_whole and 0 < brightest < _DARKEST else 0) | (CLEAR if is_clear else 0)


def _pillow_pixels(picture: Image.Image) -> tuple[Pixels, int]:
    """Return RGB pixels, and :data:`CLEAR` or 0; convert a large picture in strips, since conversions take memory."""
    width, height = picture.size
    rows = max(1, _STRIP_PIXELS // width)
    pixels, is_clear = np.empty((height, width, 3), np.uint8), True
    for top in range(0, height, rows):
        strip = picture if height <= rows else picture.crop((0, top, width, min(height, top + rows)))
        pixels[top : top + rows], strip_is_clear = _strip_pixels(strip)
        is_clear &= strip_is_clear
    return pixels, CLEAR if is_clear else 0


def _strip_pixels(picture: Image.Image) -> tuple[Pixels, bool]:
    """Return RGB pixels, and whether all of them are transparent."""
    if picture.mode in _OTHER:
        raise PictureError(f"has {_OTHER[picture.mode]}, expected grey, RGB or CMYK of 8 or 16 bits; convert the file")
    is_clear = False
    if picture.has_transparency_data:
        layer = picture.convert("RGBA")
        is_clear = layer.getchannel("A").getbbox() is None
        picture = Image.new("RGB", layer.size, "white")
        picture.paste(layer, mask=layer)
    return np.asarray(picture.convert("RGB")), is_clear


class _Messages:
    """Captures this process's stderr while a decoder runs, since libjpeg writes its warnings only there."""

    def __init__(self) -> None:
        self._lock, self._own = threading.Lock(), -1
        with tempfile.TemporaryFile() as file:
            self._file = os.dup(file.fileno())

    def __enter__(self) -> None:
        self._lock.acquire()
        self._own = os.dup(2)
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        os.dup2(self._file, 2)

    def __exit__(self, *_given: object) -> None:
        os.dup2(self._own, 2)
        os.close(self._own)
        self._lock.release()

    def read(self) -> bytes:
        """Return the bytes written to stderr since the ``with`` block began."""
        size = os.lseek(self._file, 0, os.SEEK_CUR)
        return os.pread(self._file, size, 0) if size else b""


_messages: _Messages | None = None  # set by ready_for_many


def imdecoded(data: bytes | npt.NDArray[np.uint8], how: int) -> Any:
    """Decode an image file with OpenCV and its flags ``how``; return None if OpenCV fails.

    Raises:
        PictureError: a JPEG's data end too early, or are damaged; detected only after :func:`ready_for_many`.
        MemoryError: the memory is too small for the pixels.
    """
    try:
        with _messages or contextlib.nullcontext():
            pixels: Any = cv2.imdecode(np.frombuffer(data, np.uint8), how)
            warned = _messages.read() if _messages else b""
    except cv2.error as error:
        if error.code == cv2.Error.StsNoMem:
            raise MemoryError(str(error)) from error
        return None
    if _CUT.search(warned):
        raise PictureError("is truncated: its data end before the picture is complete")
    if _BROKEN.search(warned):
        raise PictureError("is damaged: its data are not valid JPEG code")
    return pixels


def ready_for_many() -> None:
    """Configure this process to decode many images, one at a time, while other processes decode images too.

    The C library glibc returns freed memory to the kernel above a threshold: twice the largest freed block. Getting
    this memory back took a quarter of the decoding time, so one freed block of 31 MB raises the threshold. From now on
    libjpeg's warnings are read too, which show a JPEG whose data end too early.
    """
    global _messages  # noqa: PLW0603 (one process, one file at a time)
    _messages = _messages or _Messages()
    cv2.setNumThreads(1)
    np.empty(_LARGE_BLOCK, np.uint8)


def turned(pixels: Pixels, orientation: int) -> Pixels:
    """Rotate or mirror stored pixels by an EXIF orientation, 1 … 8."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)
