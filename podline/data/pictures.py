"""A user's pictures, to train on or to ask a model about: told by their content, checked before they are decoded.

OpenCV decodes JPEG and PNG. Of the other formats it turns some WebP files wrongly and does not read every GIF, BMP and
TIFF file, so these are Pillow's. Pixels become 8 bits of red, green and blue in one way:

- they are turned as EXIF says;
- 16 bits of a PNG or of grey become the nearest 8 (divided by 257);
- what is transparent is laid over white;
- of several frames or pages it is the first.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageCms, UnidentifiedImageError

from podline.data.coco_pixels import imdecoded, turned
from podline.data.sources import bounds, lfs
from podline.data.sources.headers import PNG, Png, inspect_png
from podline.data.sources.jpeg import ORIENTATION, JpegError, inspect
from podline.entry_points import reason
from podline.errors import SourceError

Pixels = npt.NDArray[np.uint8]
Header = TypeVar("Header")

_JPEG = b"\xff\xd8"
_OTHERS = ("WEBP", "BMP", "TIFF", "GIF")
_SIGNS = (_JPEG, PNG, b"RIFF", b"BM", b"GIF8", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
# The other kinds' first bytes, or the last of the first twelve.
_UNDECODED = {
    **dict.fromkeys((b"ftypheic", b"ftypheix", b"ftypmif1", b"ftypmsf1", b"ftyphevc"), "HEIC"),
    b"ftypavif": "AVIF",
    b"\0\0\0\x0cjP  \r\n\x87\n": "JPEG 2000",
    b"\0\0\0\x0cJXL \r\n\x87\n": "JPEG XL",
    b"8BPS": "PSD",
}
_KINDS = "JPEG, PNG, WebP, BMP, TIFF or GIF"
_GREY_OR_COLOUR = (0, 2)
_DEEP = ("I", "I;16", "I;16B", "I;16L")  # Pillow's names of 16 bits of grey
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


def check_picture(path: Path) -> bytes:
    """Read a picture's file; check its header and, of JPEG and PNG, its end.

    Raises:
        SourceError: it cannot be read, is of no kind that is decoded, is truncated, or is larger than anybody's
            picture.
    """
    try:
        if path.stat().st_size > bounds.IMAGE_BYTES:
            raise SourceError(f"{path} has {path.stat().st_size:,} bytes vs {bounds.IMAGE_BYTES:,} at most")
        data = path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error
    picture_pixels(data, str(path))
    return data


def picture_pixels(data: bytes, where: str) -> int:
    """Return how many pixels a file's header declares, without decoding it; ``where`` is what errors call it.

    Raises:
        SourceError: it is of no kind that is decoded, is truncated, or is larger than anybody's picture.
    """
    with _about(where):
        if data.startswith(_JPEG):
            found = _looked_at(inspect, data)
        elif data.startswith(PNG):
            found = _looked_at(inspect_png, data).image
        else:
            found = _opened(data, _OTHERS)
    return found.width * found.height


def read_picture(path: Path) -> Pixels:
    """Read a picture as it is shown: uint8 (height, width, 3), red, green, blue; see :mod:`podline.data.pictures`.

    Raises:
        SourceError: see :func:`check_picture`, or it cannot be decoded.
    """
    return decode_picture(check_picture(path), str(path))


def decode_picture(data: bytes, where: str) -> Pixels:
    """Decode a file's content as :func:`read_picture` does; ``where`` is its name in errors."""
    with _about(where):
        return picture_of(data).pixels


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
    if data.startswith(_JPEG):
        jpeg = _looked_at(inspect, data)
        declared(jpeg.width * jpeg.height)
        if jpeg.components == 4:  # CMYK, of which OpenCV makes all a shade lighter
            return _by_pillow(data, ("JPEG",))
        return _shown(imdecoded(data, _AS_STORED), jpeg.orientation)
    if data.startswith(PNG):
        png = _looked_at(inspect_png, data)
        declared(png.image.width * png.image.height)
        return _decoded_png(data, png)
    return _by_pillow(data, _OTHERS, declared)


@contextmanager
def _about(where: str) -> Iterator[None]:
    try:
        yield
    except PictureError as error:
        raise SourceError(f"{where} {error}") from error


def _shown(pixels: Pixels | None, orientation: int) -> Picture:
    if pixels is None:
        raise PictureError("is damaged: it cannot be decoded")
    return Picture(pixels if orientation == 1 else turned(pixels, orientation), orientation != 1)


def _looked_at(inspect: Callable[[bytes], Header], data: bytes) -> Header:
    """Inspect a JPEG's or PNG's header and end."""
    try:
        return inspect(data)
    except JpegError as error:
        raise PictureError(str(error)) from error


def _decoded_png(data: bytes, png: Png) -> Picture:
    if png.transparent and png.depth <= 8 and png.colour in _GREY_OR_COLOUR:
        return _by_pillow(data, ("PNG",))  # one colour stands for what is transparent: OpenCV passes over that
    if png.depth <= 8 and not png.transparent:
        return _shown(imdecoded(data, _AS_STORED), png.image.orientation)
    pixels: Any = imdecoded(data, cv2.IMREAD_UNCHANGED)
    if pixels is not None:
        coloured: Any = cv2.cvtColor(*_to_rgb(_eight_bits(pixels)))
        pixels = _over_white(coloured)
    return _shown(pixels, png.image.orientation)


def _to_rgb(pixels: Pixels) -> tuple[Pixels, int]:
    """OpenCV's order of channels, (height, width), (…, 3) or (…, 4), and what makes red, green, blue of it."""
    if pixels.ndim == 2:
        return pixels, cv2.COLOR_GRAY2RGB
    return pixels, cv2.COLOR_BGR2RGB if pixels.shape[2] == 3 else cv2.COLOR_BGRA2RGBA


def _eight_bits(pixels: npt.NDArray[Any]) -> Pixels:
    """Round samples of 16 bits to the nearest of 8; leave others as they are."""
    if pixels.dtype == np.uint8:
        return pixels
    return ((pixels.clip(0, 0xFFFF).astype(np.uint32) + 128) // 257).astype(np.uint8)


def _over_white(pixels: Pixels) -> Pixels:
    """Red, green, blue and alpha, (height, width, 4), laid over white; without alpha as they are."""
    if pixels.shape[2] == 3:
        return pixels
    alpha = pixels[..., 3:].astype(np.uint32)
    return ((pixels[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)


def _require_size(width: int, height: int) -> None:
    if width * height > bounds.PIXELS:
        raise PictureError(f"has {width}×{height} pixels vs {bounds.PIXELS:,} at most")


def _opened(data: bytes, formats: tuple[str, ...]) -> Image.Image:
    """Open a file that Pillow decodes and check its size."""
    try:
        picture = Image.open(io.BytesIO(data), formats=formats)
    except UnidentifiedImageError as error:
        raise PictureError(_unidentified(data)) from error
    except Image.DecompressionBombError as error:
        raise PictureError(f"has too many pixels vs {bounds.PIXELS:,} at most") from error
    except MemoryError:
        raise
    except Exception as error:
        raise PictureError(f"is damaged: {reason(error)}") from error
    _require_size(*picture.size)
    return picture


def _unidentified(data: bytes) -> str:
    if lfs.is_lfs_pointer(data):
        return lfs.PROBLEM
    kind = _undecoded(data)
    if kind:
        return f"is {kind} vs {_KINDS}; convert it to one of these"
    return "is damaged: it cannot be decoded" if looks_like_picture(data) else f"is no {_KINDS}"


def _by_pillow(
    data: bytes, formats: tuple[str, ...], declared: Callable[[int], None] = lambda _pixels: None
) -> Picture:
    picture = _opened(data, formats)
    declared(picture.width * picture.height)
    first = _orientation(picture)
    try:
        picture.load()  # which turns a TIFF
        pixels = _pillow_pixels(picture)
    except (PictureError, MemoryError):
        raise
    except Exception as error:
        raise PictureError(f"is damaged: {reason(error)}") from error
    return Picture(turned(pixels, _orientation(picture)), first != 1)


def _orientation(picture: Image.Image) -> int:
    """EXIF's, 1 … 8; 1 where there is none, or what is there makes no sense."""
    try:
        value = picture.getexif().get(ORIENTATION, 1)
    except Exception:
        return 1
    return value if value in range(1, 9) else 1


def _pillow_pixels(picture: Image.Image) -> Pixels:
    if picture.mode in _DEEP:
        return np.repeat(_eight_bits(np.asarray(picture))[..., np.newaxis], 3, axis=2)
    if picture.mode == "F":
        raise PictureError("holds floating-point numbers vs whole ones: nothing says which of them is white")
    if picture.mode == "LAB":
        lab, srgb = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
        return np.asarray(ImageCms.profileToProfile(picture, lab, srgb, outputMode="RGB"))
    if picture.has_transparency_data:
        return _over_white(np.asarray(picture.convert("RGBA")))
    return np.asarray(picture.convert("RGB"))
