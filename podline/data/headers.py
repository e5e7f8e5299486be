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

from PIL import ExifTags, Image, TiffImagePlugin, UnidentifiedImageError

from podline.base.entry_points import reason
from podline.data import lfs

JPEG = b"\xff\xd8"
"""The first bytes of a JPEG file."""

PNG = b"\x89PNG\r\n\x1a\n"
"""The first bytes of a PNG file."""
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")
_KINDS = "JPEG, PNG, WebP, BMP, TIFF or GIF"
_SIGNS = (JPEG, PNG, b"RIFF", b"BM", b"GIF8", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
# Formats of phone cameras that Podline does not decode, by their brand after "ftyp".
_UNDECODED = {**dict.fromkeys((b"heic", b"heix", b"mif1", b"msf1", b"hevc"), "HEIC"), b"avif": "AVIF"}

_TIFF = _SIGNS[5:]
_Tags = TiffImagePlugin.ImageFileDirectory_v2
# Tags of a TIFF, and its sample formats other than unsigned integers.
_BITS, _PHOTOMETRIC, _SAMPLES, _PLANES, _EXTRA, _SAMPLE_FORMAT, _LARGEST = 258, 262, 277, 284, 338, 339, 341
_SAMPLE_FORMATS = {2: "signed integer", 3: "floating-point", 5: "complex", 6: "complex"}
_SIXTEEN, _PNG_DEPTH = 0xFFFF, 24  # the largest 16-bit value; the byte of a PNG file with the number of bits
_ZEROS = 64  # zero bytes at the end of a file show an incomplete download into reserved space: no encoder writes them

_EOI, _SOS, _APP1, _PROGRESSIVE = 0xD9, 0xDA, 0xE1, 0xC2
# Baseline, extended sequential and progressive, Huffman-coded: the kinds that every decoder reads.
_FRAMES = (0xC0, 0xC1, 0xC2)
_OTHER_FRAMES = frozenset(range(0xC3, 0xD0)) - {0xC4, 0xC8, 0xCC}
# The pattern begins with a literal byte (the last of several 0xFF), which makes the search twenty times as fast.
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)

# Pillow's warnings concern fields other than the pixels. The filter applies to the whole process, because
# warnings.catch_warnings, a filter for a block of code, is not thread-safe.
warnings.filterwarnings("ignore", module=r"PIL\.")


class PictureError(ValueError):
    """The reason why a file cannot be decoded as a picture, as a phrase after the file's name."""


class Header(NamedTuple):
    """The header of a picture's file.

    Attributes:
        width: width of the stored pixels.
        height: height of the stored pixels.
        components: 1 (grey), 3 or 4 (CMYK).
        progressive: whether the file is a progressive JPEG, coded in several scans.
        orientation: EXIF orientation, 1 … 8: how to turn the stored pixels for display.
    """

    width: int
    height: int
    components: int
    progressive: bool
    orientation: int


class Deep(NamedTuple):
    """The interpretation of a 16-bit picture's values.

    Attributes:
        white: the value of white: 65,535, or the ``SMaxSampleValue`` of a TIFF if that is 2^n - 1 for n = 9 … 15. Any
            other ``SMaxSampleValue`` is a statistic of the picture.
        is_inverted: whether zero is white.
        has_alpha: whether the fourth channel, if there is one, is the opacity.
    """

    white: int
    is_inverted: bool
    has_alpha: bool


def open_picture(data: bytes) -> Image.Image:
    """Open a file with Pillow; check the checksums of a PNG, the end of a WebP, and the sample format of a TIFF.

    Raises:
        PictureError: the file's format or sample format is not supported, or the file is damaged.
    """
    if data.startswith(_TIFF):
        _check_tiff(data)
    try:
        picture = Image.open(io.BytesIO(data), formats=_FORMATS)
        if picture.format == "PNG" and picture.tile:
            picture.verify()  # verify() makes the object unusable
            picture = Image.open(io.BytesIO(data), formats=_FORMATS)
    except UnidentifiedImageError as error:
        raise PictureError(_unidentified(data)) from error
    except Image.DecompressionBombError as error:
        raise PictureError(f"has more than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels") from error
    except MemoryError:
        raise
    except Exception as error:
        raise damaged(error) from error
    if picture.format == "WEBP" and data.endswith(bytes(_ZEROS)):
        raise PictureError("is truncated: it ends in zeros")
    return picture


def _check_tiff(data: bytes) -> None:
    """Refuse a TIFF if neither Pillow nor OpenCV decodes the samples or channels of its first page correctly."""
    try:
        tags, stream = _Tags(data[: 16 if data[2:4] in (b"+\0", b"\0+") else 8]), io.BytesIO(data)
        stream.seek(tags.next)
        tags.load(stream)
        bits, kinds = _numbers(tags, _BITS), _numbers(tags, _SAMPLE_FORMAT)
        channels, planes = int(tags.get(_SAMPLES, 1)), tags.get(_PLANES, 1) == 2
        extra = len(_numbers(tags, _EXTRA, ()))
    except Exception as error:
        raise damaged(error) from error
    expected = "expected unsigned integers of 1 to 16 bits, grey, RGB or CMYK; convert the file"
    kind = next((kind for kind in kinds if kind in _SAMPLE_FORMATS), 1)
    if kind in _SAMPLE_FORMATS:
        raise PictureError(f"has {_SAMPLE_FORMATS[kind]} samples, {expected}")
    if max(bits) > 16:
        raise PictureError(f"has samples of {max(bits)} bits, {expected}")
    if channels == 2 and (max(bits) == 16 or not extra or _numbers(tags, _EXTRA) == (0,)):
        raise PictureError(f"has 2 channels of {max(bits)} bits, {expected}")
    if max(bits) == 16 and channels > 1 and planes:
        raise PictureError(f"has a separate plane for each 16-bit channel, {expected} with interleaved channels")
    if max(bits) == 16 and tags.get(_PHOTOMETRIC) not in (0, 1, 2):
        raise PictureError(f"has 16-bit samples in other colours than grey and RGB, {expected}")


def _numbers(tags: _Tags, tag: int, default: tuple[int, ...] = (1,)) -> tuple[int, ...]:
    found = tags.get(tag, default)
    return tuple(map(int, found)) if isinstance(found, tuple) else (int(found),)


def deep_of(data: bytes, picture: Image.Image) -> Deep | None:
    """Return the interpretation of a 16-bit picture's values; None for a picture of fewer bits."""
    if picture.format == "PNG" and data[_PNG_DEPTH] == 16:
        return Deep(_SIXTEEN, is_inverted=False, has_alpha=True)
    if not isinstance(picture, TiffImagePlugin.TiffImageFile) or max(_numbers(picture.tag_v2, _BITS)) != 16:
        return None
    tags = picture.tag_v2
    largest = max(_numbers(tags, _LARGEST, (_SIXTEEN,)))
    white = largest if largest & (largest + 1) == 0 and 255 < largest < _SIXTEEN else _SIXTEEN
    return Deep(white, tags.get(_PHOTOMETRIC) == 0, _numbers(tags, _EXTRA, (0,))[0] in (1, 2))


def damaged(error: Exception) -> PictureError:
    """Return the error for a file that a decoder cannot read."""
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
        return f"is a {kind} file, expected {_KINDS}; convert it to one of these formats"
    if data.startswith(_TIFF):
        return "is a TIFF variant that is not supported; convert it to PNG"
    return "is damaged: it cannot be decoded" if looks_like_picture(data) else f"is not a {_KINDS}"


def inspect_jpeg(data: bytes) -> Header:
    """Return a JPEG file's header; read all markers, to detect a truncated file.

    Raises:
        PictureError: the file is not a JPEG, is truncated, damaged, or has an unsupported coding.
    """
    if lfs.is_lfs_pointer(data):
        raise PictureError(lfs.PROBLEM)
    if not data.startswith(JPEG):
        raise PictureError(f"is not a JPEG: it starts with {data[:2].hex() or 'nothing'}, expected ffd8")
    frame, progressive, orientation, scanned = None, False, 1, False
    missing = dict[int, int]()  # component → a set bit for each DCT coefficient that the scans have not completed
    for marker, segment, _ in segments(data):
        if marker in _FRAMES:
            frame, progressive = _frame(segment), marker == _PROGRESSIVE
            missing = dict.fromkeys(segment[6::3], (1 << 64) - 1)
        elif marker in _OTHER_FRAMES:
            raise PictureError(f"is a JPEG with an unsupported coding (marker ff{marker:02x}); convert it to PNG")
        elif marker == _APP1 and segment.startswith(b"Exif\0\0"):
            orientation = orientation_of(partial(exif_in, segment))
        elif marker == _SOS and frame:
            scanned = True
            _remove_scanned(missing, segment, progressive=progressive)
    if frame is None or not scanned:
        raise PictureError("is a JPEG without an image")
    if any(missing.values()):
        raise PictureError("is truncated: its last scans are missing")
    return Header(*frame, progressive, orientation)


def _remove_scanned(missing: dict[int, int], segment: bytes, *, progressive: bool) -> None:
    """Clear the bits in ``missing`` (component → bits) of the DCT coefficients that a scan completes.

    ``segment`` is the content of the scan's SOS segment.
    """
    first, last, bits = segment[-3:] if progressive and len(segment) > 3 else (0, 63, 0)
    for component in segment[1 : 1 + 2 * segment[0] : 2] if segment and not bits & 0xF else ():
        if component in missing:
            missing[component] &= ~((2 << last) - 1) | (1 << first) - 1


@lru_cache(maxsize=1)
def segments(data: bytes) -> list[tuple[int, bytes, memoryview]]:
    """Return (marker, segment's content, bytes up to the next marker) for each marker of a JPEG before the end marker.

    The result is cached, since :mod:`podline.data.identity` and :func:`inspect_jpeg` both need it; ``cache_clear``
    frees the file's memory.

    Raises:
        PictureError: the file is truncated or damaged.
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
    """Return the content of the segment whose length field is at byte ``place``."""
    length = int.from_bytes(data[place : place + 2], "big")
    if length < 2 or place + length > len(data):
        raise PictureError(f"is truncated or damaged: a segment of {length:,} bytes at byte {place:,} of {len(data):,}")
    return data[place + 2 : place + length]


def _frame(segment: bytes) -> tuple[int, int, int]:
    """Return the width, height and number of components in a frame header, and check them."""
    if len(segment) < 6:
        raise PictureError("is damaged: its frame header is too short")
    precision, height, width, components = struct.unpack(">BHHB", segment[:6])
    if precision != 8:
        raise PictureError(f"has {precision} bits per sample, expected 8; convert it")
    if not width * height:
        raise PictureError(f"has {width}×{height} pixels, expected at least 1×1")
    if components not in (1, 3, 4):
        raise PictureError(f"has {components} components, expected 1, 3 or 4; convert it")
    return width, height, components


def check_size(width: int, height: int, held: int, most: int) -> None:
    """Refuse a picture that needs memory for ``held`` pixels while it is decoded, if ``held`` exceeds ``most``.

    Raises:
        PictureError: the picture is too large; the message has its width and height.
    """
    if held > most:
        raise PictureError(
            f"has {width}×{height} pixels vs {most:,} at most; if you trust it, raise the setting parse_pixels"
        )


def exif_in(segment: bytes) -> Image.Exif:
    """Return the EXIF data in the content of a JPEG's APP1 segment."""
    exif = Image.Exif()
    exif.load(segment)
    return exif


def orientation_of(exif: Callable[[], Image.Exif]) -> int:
    """Return the orientation in EXIF data, 1 … 8; 1 if the orientation is missing or the data are unreadable."""
    try:
        value = exif().get(ExifTags.Base.Orientation, 1)
    except Exception:
        return 1
    return value if value in range(1, 9) else 1
