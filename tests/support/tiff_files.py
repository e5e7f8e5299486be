"""Writes TIFF and PNG files of any numbers, which Pillow and OpenCV do not write."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

PHOTOMETRIC, EXTRA, LARGEST = 262, 338, 341
"""Tags: the meaning of the channels, of those beyond, and the largest value."""
_KINDS = {"u": 1, "i": 2, "f": 3}
_LONG = (256, 257, 273, 278, 279)


def tiff(
    pixels: np.ndarray,
    *,
    planes: bool = False,
    big_endian: bool = False,
    tags: Mapping[int, Sequence[int]] | None = None,
) -> bytes:
    """An uncompressed TIFF of one strip, or one for each plane; with further or other tags."""
    pixels = pixels if pixels.ndim == 3 else pixels[..., np.newaxis]
    (tall, wide, channels), order = pixels.shape, ">" if big_endian else "<"
    stored = pixels.transpose(2, 0, 1) if planes else pixels
    content = np.ascontiguousarray(stored).astype(pixels.dtype.newbyteorder(order)).tobytes()
    strips = channels if planes else 1
    found: dict[int, Sequence[int]] = {
        256: [wide],
        257: [tall],
        258: [8 * pixels.dtype.itemsize] * channels,
        259: [1],
        PHOTOMETRIC: [2 if channels > 2 else 1],
        273: [0] * strips,
        277: [channels],
        278: [tall],
        279: [len(content) // strips] * strips,
        284: [2 if planes else 1],
        339: [_KINDS[pixels.dtype.kind]] * channels,
    }
    found = dict(sorted({**found, **(tags or {})}.items()))
    packed = {tag: struct.pack(f"{order}{len(of)}{'I' if tag in _LONG else 'H'}", *of) for tag, of in found.items()}
    beyond = 8 + 2 + 12 * len(found) + 4
    start = beyond + sum(len(of) for of in packed.values() if len(of) > 4)
    places = [start + strip * len(content) // strips for strip in range(strips)]
    packed[273] = struct.pack(f"{order}{strips}I", *places)
    entries, tail = b"", b""
    for tag, of in packed.items():
        entries += struct.pack(f"{order}HHI", tag, 4 if tag in _LONG else 3, len(found[tag]))
        entries += of.ljust(4, b"\0") if len(of) <= 4 else struct.pack(f"{order}I", beyond + len(tail))
        tail += of if len(of) > 4 else b""
    head = struct.pack(f"{order}2sHIH", b"MM" if big_endian else b"II", 42, 8, len(found))
    return head + entries + bytes(4) + tail + content


def deep_png(pixels: np.ndarray, clear: Sequence[int] = ()) -> bytes:
    """A PNG of 16 bits: grey, grey and opacity, colours, or these and opacity; a value may be transparent (tRNS)."""
    pixels = pixels if pixels.ndim == 3 else pixels[..., np.newaxis]
    tall, wide, channels = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", wide, tall, 16, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    chunks = [(b"IHDR", head), *([(b"tRNS", struct.pack(f">{len(clear)}H", *clear))] if clear else [])]
    chunks += [(b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
