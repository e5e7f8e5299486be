"""Reads the header of a picture file before decoding; the first bytes show the format.

Pillow reads headers. This module follows a JPEG's markers from the first to the last, because Pillow and OpenCV detect
a truncated JPEG only while decoding, or not at all. (ITU-T T.81, annex B: markers are 0xFF and a byte; most begin a
segment whose length follows. Entropy-coded data come after SOS; a 0xFF in them is followed by 0x00 or is a restart
marker.)
"""

from __future__ import annotations

import io
import re
import struct
import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

from PIL import ExifTags, Image, UnidentifiedImageError

from podline.data import bounds, lfs
from podline.entry_points import reason

JPEG = b"\xff\xd8"
"""The first bytes of a JPEG file."""

PNG = b"\x89PNG\r\n\x1a\n"
"""The first bytes of a PNG file."""
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")
_KINDS = "JPEG, PNG, WebP, BMP, TIFF or GIF"
_SIGNS = (JPEG, PNG, b"RIFF", b"BM", b"GIF8", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
# Formats of phone cameras that Podline does not decode, by their brand after "ftyp".
_UNDECODED = {**dict.fromkeys((b"heic", b"heix", b"mif1", b"msf1", b"hevc"), "HEIC"), b"avif": "AVIF"}

_EOI, _SOS, _APP1 = 0xD9, 0xDA, 0xE1
# Baseline, extended sequential and progressive, Huffman-coded: the kinds that every decoder reads.
_FRAMES = (0xC0, 0xC1, 0xC2)
_OTHER_FRAMES = frozenset(range(0xC3, 0xD0)) - {0xC4, 0xC8, 0xCC}
# The pattern begins with a literal byte (the last of several 0xFF), which makes the search twenty times as fast.
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)

# Pillow's warnings concern fields other than the pixels. The filter applies to the whole process, because one for a
# block of code (warnings.catch_warnings) does not work among threads.
warnings.filterwarnings("ignore", module=r"PIL\.")


class PictureError(ValueError):
    """The reason why a file cannot be decoded as a picture, as a phrase after the file's name."""


class Header(NamedTuple):
    """The header of a picture's file.

    Attributes:
        width: width of the stored pixels.
        height: height of the stored pixels.
        components: 1 (grey), 3 or 4 (CMYK).
        orientation: EXIF orientation, 1 … 8: how to turn the stored pixels for display.
    """

    width: int
    height: int
    components: int
    orientation: int


def declared_pixels(data: bytes) -> int:
    """Return the number of pixels in a file's header, without decoding the file.

    Raises:
        PictureError: the format is not supported, a JPEG is truncated, or the picture is too large.
    """
    found = inspect_jpeg(data) if data.startswith(JPEG) else open_picture(data)
    return found.width * found.height


def open_picture(data: bytes) -> Image.Image:
    """Open a file with Pillow; check its size and, for a PNG, its checksums.

    Raises:
        PictureError: the file has another format, is damaged, or is too large.
    """
    try:
        picture = Image.open(io.BytesIO(data), formats=_FORMATS)
        if picture.format == "PNG" and picture.tile:
            picture.verify()  # verify() makes the object unusable
            picture = Image.open(io.BytesIO(data), formats=_FORMATS)
    except UnidentifiedImageError as error:
        raise PictureError(_unidentified(data)) from error
    except Image.DecompressionBombError as error:
        raise PictureError(f"has too many pixels vs {bounds.PIXELS:,} at most") from error
    except MemoryError:
        raise
    except Exception as error:
        raise damaged(error) from error
    _check_size(picture.width, picture.height)
    return picture


def damaged(error: Exception) -> PictureError:
    """Return the error for a file that a decoder refused."""
    return PictureError(f"is {'truncated' if 'truncated' in str(error).lower() else 'damaged'}: {reason(error)}")


def looks_like_picture(data: bytes) -> bool:
    """Return whether a file's first bytes are those of a picture, decodable or not."""
    return data.startswith(_SIGNS) or bool(_undecoded(data))


def _undecoded(data: bytes) -> str:
    """Return the name of a picture format that is not decoded, or an empty string."""
    return _UNDECODED.get(data[8:12], "") if data[4:8] == b"ftyp" else ""


def _unidentified(data: bytes) -> str:
    if lfs.is_lfs_pointer(data):
        return lfs.PROBLEM
    kind = _undecoded(data)
    if kind:
        return f"is {kind} vs {_KINDS}; convert it to one of these"
    return "is damaged: it cannot be decoded" if looks_like_picture(data) else f"is not a {_KINDS}"


def inspect_jpeg(data: bytes) -> Header:
    """Read a JPEG file's markers from the first to the last.

    Raises:
        PictureError: the file is not a JPEG, is truncated, of a rare kind, or exceeds :mod:`podline.data.bounds`.
    """
    if lfs.is_lfs_pointer(data):
        raise PictureError(lfs.PROBLEM)
    if not data.startswith(JPEG):
        raise PictureError(f"is not a JPEG: it starts with {data[:2].hex() or 'nothing'} vs ffd8")
    frame, orientation, scanned = None, 1, False
    for marker, segment, _ in segments(data):
        if marker in _FRAMES:
            frame = _frame(segment)
        elif marker in _OTHER_FRAMES:
            raise PictureError(f"is a JPEG of a rare kind (marker ff{marker:02x}) that is not decoded")
        elif marker == _APP1 and segment.startswith(b"Exif\0\0"):
            orientation = orientation_of(partial(exif_in, segment))
        scanned |= marker == _SOS
    if frame is None or not scanned:
        raise PictureError("is a JPEG without an image")
    return Header(*frame, orientation)


@lru_cache(maxsize=1)
def segments(data: bytes) -> list[tuple[int, bytes, memoryview]]:
    """Return a JPEG file's markers up to the end marker: each with its segment, and with all bytes to the next marker.

    Identity and header of a file need them; ``cache_clear`` frees the file.

    Raises:
        PictureError: the file is truncated.
    """
    found, view, parts = _NEXT_MARKER.search(data, len(JPEG)), memoryview(data), list[tuple[int, bytes, memoryview]]()
    while found and (marker := data[found.end() - 1]) != _EOI:
        segment = _segment(data, start := found.end())
        found = _NEXT_MARKER.search(data, start + 2 + len(segment))
        parts.append((marker, segment, view[start - 1 : found.start() if found else None]))
    if found is None:
        raise PictureError(f"is truncated: {len(data):,} bytes, and no end marker")
    return parts


def _segment(data: bytes, place: int) -> bytes:
    """Return the content of the segment whose length field is at ``place``."""
    length = int.from_bytes(data[place : place + 2], "big")
    if length < 2 or place + length > len(data):
        raise PictureError(f"is truncated or damaged: a segment of {length:,} bytes at byte {place:,} of {len(data):,}")
    return data[place + 2 : place + length]


def _frame(segment: bytes) -> tuple[int, int, int]:
    """Read and check width, height and number of components."""
    if len(segment) < 6:
        raise PictureError("is damaged: its frame header is too short")
    precision, height, width, components = struct.unpack(">BHHB", segment[:6])
    if precision != 8:
        raise PictureError(f"has {precision} bits a sample vs 8")
    _check_size(width, height)
    if components not in (1, 3, 4):
        raise PictureError(f"has {components} components vs 1, 3 or 4")
    return width, height, components


def _check_size(width: int, height: int) -> None:
    if not 0 < width * height <= bounds.PIXELS:
        raise PictureError(f"has {width}×{height} pixels vs {bounds.PIXELS:,} at most")


def exif_in(segment: bytes) -> Image.Exif:
    """Return the EXIF data in the content of a JPEG's APP1."""
    exif = Image.Exif()
    exif.load(segment)
    return exif


def orientation_of(exif: Callable[[], Image.Exif]) -> int:
    """Return the orientation in EXIF data, 1 … 8; 1 if it is missing or unreadable."""
    try:
        value = exif().get(ExifTags.Base.Orientation, 1)
    except Exception:
        return 1
    return value if value in range(1, 9) else 1
