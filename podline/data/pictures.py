"""Decodes a picture's file: told by its content, checked before it is decoded.

OpenCV decodes JPEG, in half of Pillow's time. Of the other formats it turns some WebP files wrongly and does not read
every GIF, BMP, TIFF and PNG file, so these are Pillow's, as is CMYK. Pixels become 8 bits of red, green and blue in one
way:

- they are turned as EXIF says;
- of 16 bits the upper 8 are taken;
- what is transparent is laid over white;
- of several frames or pages it is the first.

Files of strangers are decoded in a sandbox: :mod:`podline.data.picture_sandbox`, :mod:`podline.data.images.decoding`.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageCms, UnidentifiedImageError

from podline.data import bounds, lfs
from podline.data.coco_pixels import imdecoded, turned
from podline.data.jpeg import ORIENTATION, Jpeg, JpegError, inspect
from podline.entry_points import reason
from podline.sandbox import Limits

Pixels = npt.NDArray[np.uint8]

_JPEG = b"\xff\xd8"
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")
_SIGNS = (_JPEG, b"\x89PNG\r\n\x1a\n", b"RIFF", b"BM", b"GIF8", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
# The other kinds' first bytes, or the last of the first twelve.
_UNDECODED = {
    **dict.fromkeys((b"ftypheic", b"ftypheix", b"ftypmif1", b"ftypmsf1", b"ftyphevc"), "HEIC"),
    b"ftypavif": "AVIF",
    b"\0\0\0\x0cjP  \r\n\x87\n": "JPEG 2000",
    b"\0\0\0\x0cJXL \r\n\x87\n": "JPEG XL",
    b"8BPS": "PSD",
}
_KINDS = "JPEG, PNG, WebP, BMP, TIFF or GIF"
_DEEP = ("I", "I;16", "I;16B", "I;16L")  # Pillow's names of 16 bits of grey
_STRIP_PIXELS = 1 << 20
_AS_STORED = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION

# Pillow's warnings are about fields that do not concern the pixels. A filter for the whole process, since one for a
# block of code (warnings.catch_warnings) is no use among threads.
warnings.filterwarnings("ignore", module=r"PIL\.")


class PictureError(ValueError):
    """Why a file is not a picture that can be decoded; a phrase that follows the file's name."""


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


def declared_pixels(data: bytes) -> int:
    """Return how many pixels a file's header declares, without decoding it.

    Raises:
        PictureError: it is of no kind that is decoded, a truncated JPEG, or larger than anybody's picture.
    """
    found = _inspected(data) if data.startswith(_JPEG) else _opened(data)
    return found.width * found.height


def looks_like_picture(data: bytes) -> bool:
    """Return whether a file begins as one of the kinds that are decoded, or of those that are not."""
    return data.startswith(_SIGNS) or bool(_undecoded(data))


def _undecoded(data: bytes) -> str:
    """Return the name of a picture's kind that is not decoded; empty of other files."""
    return next((kind for sign, kind in _UNDECODED.items() if data[:12].endswith(sign) or data.startswith(sign)), "")


def picture_of(data: bytes, declared: Callable[[int], None] = lambda _pixels: None) -> Picture:
    """Decode a file's content; the caller names the file.

    Args:
        data: the file.
        declared: is called with the number of pixels that the header declares, before the file is decoded.

    Raises:
        PictureError: it is of no kind that is decoded, truncated, damaged, or larger than anybody's picture.
    """
    if not data.startswith(_JPEG):
        return _by_pillow(data, declared)
    jpeg = _inspected(data)
    if jpeg.components == 4:  # CMYK, of which OpenCV makes all a shade lighter
        return _by_pillow(data, declared)
    declared(jpeg.width * jpeg.height)
    pixels = imdecoded(data, _AS_STORED)
    if pixels is None:
        raise PictureError("is damaged: it cannot be decoded")
    return Picture(pixels if jpeg.orientation == 1 else turned(pixels, jpeg.orientation), jpeg.orientation != 1)


def _inspected(data: bytes) -> Jpeg:
    try:
        return inspect(data)
    except JpegError as error:
        raise PictureError(str(error)) from error


def _opened(data: bytes) -> Image.Image:
    """Open a file that Pillow decodes and check its size; of a PNG, which has them, the checksums as well."""
    try:
        picture = Image.open(io.BytesIO(data), formats=_FORMATS)
        if picture.format == "PNG" and picture.tile:
            picture.verify()  # after which it cannot be loaded
            picture = Image.open(io.BytesIO(data), formats=_FORMATS)
    except UnidentifiedImageError as error:
        raise PictureError(_unidentified(data)) from error
    except Image.DecompressionBombError as error:
        raise PictureError(f"has too many pixels vs {bounds.PIXELS:,} at most") from error
    except MemoryError:
        raise
    except Exception as error:
        raise _damaged(error) from error
    if picture.width * picture.height > bounds.PIXELS:
        raise PictureError(f"has {picture.width}×{picture.height} pixels vs {bounds.PIXELS:,} at most")
    return picture


def _damaged(error: Exception) -> PictureError:
    return PictureError(f"is {'truncated' if 'truncated' in str(error).lower() else 'damaged'}: {reason(error)}")


def _unidentified(data: bytes) -> str:
    if lfs.is_lfs_pointer(data):
        return lfs.PROBLEM
    kind = _undecoded(data)
    if kind:
        return f"is {kind} vs {_KINDS}; convert it to one of these"
    return "is damaged: it cannot be decoded" if looks_like_picture(data) else f"is no {_KINDS}"


def _by_pillow(data: bytes, declared: Callable[[int], None]) -> Picture:
    picture = _opened(data)
    declared(picture.width * picture.height)
    first = _orientation(picture)
    try:
        picture.load()  # which turns a TIFF, and finds what a PNG says after its pixels
        pixels = _pillow_pixels(picture)
    except (PictureError, MemoryError):
        raise
    except Exception as error:
        raise _damaged(error) from error
    last = _orientation(picture)
    return Picture(turned(pixels, last), (first, last) != (1, 1))


def _orientation(picture: Image.Image) -> int:
    """EXIF's, 1 … 8; 1 where there is none, or what is there makes no sense."""
    try:
        value = picture.getexif().get(ORIENTATION, 1)
    except Exception:
        return 1
    return value if value in range(1, 9) else 1


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
    if picture.mode == "F":
        raise PictureError("holds floating-point numbers vs whole ones: nothing says which of them is white")
    if picture.mode == "LAB":
        lab, srgb = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
        return np.asarray(ImageCms.profileToProfile(picture, lab, srgb, outputMode="RGB"))
    if picture.has_transparency_data:
        layer = picture.convert("RGBA")
        picture = Image.new("RGB", layer.size, "white")
        picture.paste(layer, mask=layer)
    return np.asarray(picture.convert("RGB"))
