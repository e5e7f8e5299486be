"""Decodes picture files: detects the format by the content, and checks the header before decoding.

OpenCV decodes JPEG in half of Pillow's time. Pillow decodes CMYK and all other formats, because OpenCV rotates some
WebP files wrongly and cannot read every GIF, BMP, TIFF and PNG file. Every picture becomes 8-bit red, green and blue:

- EXIF's orientation is applied, but annotated pixels stay as stored unless only the turned picture has the annotated
  size;
- 16-bit values keep their upper 8 bits;
- transparent pixels are drawn over white;
- the first of several frames or pages is decoded.

Untrusted files are decoded in a sandbox: :mod:`podline.data.picture_sandbox`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from podline.data.headers import JPEG, PictureError, damaged, inspect_jpeg, open_picture, orientation_of
from podline.data.sandbox.limits import Limits

Pixels = npt.NDArray[np.uint8]

_DEEP = ("I", "I;16", "I;16B", "I;16L")  # Pillow's modes with 16 bits of grey
_OTHER = {"F": "floating-point numbers", "LAB": "L*a*b* colours"}
_STRIP_PIXELS = 1 << 20
_LARGE_BLOCK = 31 << 20
_UNKNOWN = (0, 0)
_AS_STORED = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION


class Picture(NamedTuple):
    """A decoded picture.

    Attributes:
        pixels: pixels as displayed: uint8 (height, width, 3), red, green, blue.
        turned: whether the EXIF orientation turned the stored pixels.
        unturned: whether they stay as stored in spite of an EXIF orientation.
    """

    pixels: Pixels
    turned: bool
    unturned: bool = False


def limits_of_pixels(pixels: int, wait: float = 10.0) -> Limits:
    """Return the limits for decoding pictures.

    Args:
        pixels: number of pixels in their headers.
        wait: see :class:`Limits`.

    Returns:
        Memory of 64 MB and 8 bytes per pixel, and CPU time of 0.4 s and a second per 5 million pixels: twice the time
        of the slowest decoder.
    """
    return Limits(64_000_000 + 8 * pixels, 0.4 + pixels / 5e6, wait)


def picture_of(
    data: bytes, declared: Callable[[int], None] = lambda _pixels: None, annotated: tuple[int, int] | None = None
) -> Picture:
    """Decode the content of a file; the caller adds the file's name to errors.

    Args:
        data: the content of the file.
        declared: called with the number of pixels in the header, before the file is decoded.
        annotated: width and height in the annotations of a picture, zeros if these do not say; None without
            annotations.

    Raises:
        PictureError: the format is not supported, or the file is truncated, damaged or too large.
    """
    if not data.startswith(JPEG):
        return _by_pillow(data, declared, annotated)
    jpeg = inspect_jpeg(data)
    if jpeg.components == 4:  # CMYK, which OpenCV decodes too light
        return _by_pillow(data, declared, annotated)
    declared(jpeg.width * jpeg.height)
    pixels = imdecoded(data, _AS_STORED)
    if pixels is None:
        raise PictureError("is damaged: it cannot be decoded")
    return _oriented(pixels, jpeg.orientation, annotated)


def _oriented(pixels: Pixels, orientation: int, annotated: tuple[int, int] | None) -> Picture:
    size = pixels.shape[1::-1]
    if orientation == 1 or (annotated is not None and (annotated in (size, _UNKNOWN) or annotated != size[::-1])):
        return Picture(pixels, turned=False, unturned=orientation != 1)
    return Picture(turned(pixels, orientation), turned=True)


def _by_pillow(data: bytes, declared: Callable[[int], None], annotated: tuple[int, int] | None) -> Picture:
    picture = open_picture(data)
    declared(picture.width * picture.height)
    first = orientation_of(picture.getexif)
    try:
        picture.load()  # applies a TIFF's orientation, and reads PNG fields after the pixels
        pixels = _pillow_pixels(picture)
    except (PictureError, MemoryError):
        raise
    except Exception as error:
        raise damaged(error) from error
    last = orientation_of(picture.getexif)
    found = _oriented(pixels, last, annotated)
    return found._replace(turned=found.turned or (last == 1 and first != 1))


def _pillow_pixels(picture: Image.Image) -> Pixels:
    """Return all pixels as RGB; convert a large picture in strips, since each conversion step takes memory."""
    width, height = picture.size
    rows = max(1, _STRIP_PIXELS // width)
    if height <= rows:
        return _strip_pixels(picture)
    pixels = np.empty((height, width, 3), np.uint8)
    for top in range(0, height, rows):
        pixels[top : top + rows] = _strip_pixels(picture.crop((0, top, width, min(height, top + rows))))
    return pixels


def _strip_pixels(picture: Image.Image) -> Pixels:
    if picture.mode in _DEEP:
        grey = (np.asarray(picture).clip(0, 0xFFFF) >> 8).astype(np.uint8)
        return np.repeat(grey[..., np.newaxis], 3, axis=2)
    if picture.mode in _OTHER:
        raise PictureError(f"holds {_OTHER[picture.mode]} vs grey, RGB or CMYK of whole numbers; convert it")
    if picture.has_transparency_data:
        layer = picture.convert("RGBA")
        picture = Image.new("RGB", layer.size, "white")
        picture.paste(layer, mask=layer)
    return np.asarray(picture.convert("RGB"))


def imdecoded(data: bytes | npt.NDArray[np.uint8], how: int) -> Pixels | None:
    """Decode an image file with OpenCV; return None if OpenCV fails.

    Raises:
        MemoryError: the memory is too small for the pixels.
    """
    try:
        pixels: Any = cv2.imdecode(np.frombuffer(data, np.uint8), how)
    except cv2.error as error:
        if error.code == cv2.Error.StsNoMem:
            raise MemoryError(str(error)) from error
        return None
    return pixels


def ready_for_many() -> None:
    """Configure this process to decode many images, one at a time, beside other such processes.

    Linux's C library returns freed memory to the kernel if it exceeds twice the largest freed block. Getting it back
    page by page took a quarter of the time. One freed block of up to 32 MB raises this limit; it need not be written
    to.
    """
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
