"""Decodes picture files: finds the format by the content, and checks the header before decoding.

OpenCV decodes JPEG, in half of Pillow's time. Pillow decodes CMYK and all other formats: OpenCV rotates some WebP files
wrongly and does not read every GIF, BMP, TIFF and PNG file. Pixels of every format become 8 bits of red, green and
blue:

- EXIF's orientation is applied;
- 16-bit values keep their upper 8 bits;
- transparent pixels are drawn over white;
- the first of several frames or pages is decoded.

Untrusted files are decoded in a sandbox: :mod:`podline.data.picture_sandbox`, :mod:`podline.data.images.decoding`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from podline.data.coco_pixels import imdecoded, turned
from podline.data.headers import JPEG, PictureError, damaged, inspect_jpeg, open_picture, orientation_of
from podline.sandbox import Limits

Pixels = npt.NDArray[np.uint8]

_DEEP = ("I", "I;16", "I;16B", "I;16L")  # Pillow's names of 16 bits of grey
_OTHER = {"F": "floating-point numbers", "LAB": "L*a*b* colours"}
_STRIP_PIXELS = 1 << 20
_AS_STORED = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION


class Picture(NamedTuple):
    """A decoded picture.

    Attributes:
        pixels: as it is shown: uint8 (height, width, 3), red, green, blue.
        turned: whether EXIF says that the stored pixels are to be turned.
    """

    pixels: Pixels
    turned: bool


def limits_of_pixels(pixels: int, wait: float = 10.0) -> Limits:
    """Return what decoding pictures may take.

    Args:
        pixels: what their headers declare.
        wait: see :class:`Limits`.

    Returns:
        8 bytes for a pixel beside 64 MB, and a second of CPU time for 5 million beside 0.4 s: the slowest decoder
        takes half of the time.
    """
    return Limits(64_000_000 + 8 * pixels, 0.4 + pixels / 5e6, wait)


def picture_of(data: bytes, declared: Callable[[int], None] = lambda _pixels: None) -> Picture:
    """Decode a file's content; the caller names the file.

    Args:
        data: the file.
        declared: is called with the number of pixels that the header declares, before the file is decoded.

    Raises:
        PictureError: it is of no kind that is decoded, truncated, damaged, or larger than anybody's picture.
    """
    if not data.startswith(JPEG):
        return _by_pillow(data, declared)
    jpeg = inspect_jpeg(data)
    if jpeg.components == 4:  # CMYK, of which OpenCV makes all a shade lighter
        return _by_pillow(data, declared)
    declared(jpeg.width * jpeg.height)
    pixels = imdecoded(data, _AS_STORED)
    if pixels is None:
        raise PictureError("is damaged: it cannot be decoded")
    return Picture(pixels if jpeg.orientation == 1 else turned(pixels, jpeg.orientation), jpeg.orientation != 1)


def _by_pillow(data: bytes, declared: Callable[[int], None]) -> Picture:
    picture = open_picture(data)
    declared(picture.width * picture.height)
    first = orientation_of(picture.getexif)
    try:
        picture.load()  # which turns a TIFF, and finds what a PNG says after its pixels
        pixels = _pillow_pixels(picture)
    except (PictureError, MemoryError):
        raise
    except Exception as error:
        raise damaged(error) from error
    last = orientation_of(picture.getexif)
    return Picture(turned(pixels, last), (first, last) != (1, 1))


def _pillow_pixels(picture: Image.Image) -> Pixels:
    """Return all pixels; those of a large picture strip by strip, since each step of the way takes memory."""
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
