"""Builds and checks frames of TFRecord files; a file whose records have one length is an array of frames.

A frame is what TensorFlow's ``record_writer.cc`` writes: the payload's length (uint64, little-endian), the length's
masked CRC-32C (uint32), the payload, the payload's masked CRC-32C (uint32). The mask (rotate right by 15 bits, add a
constant) keeps a CRC of data that holds CRCs meaningful.
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
from collections.abc import Iterable
from pathlib import Path

import google_crc32c
import numpy as np
import numpy.typing as npt

from podline.errors import ArtifactError
from podline.store.contract import explained

Bytes = npt.NDArray[np.uint8]
Crcs = npt.NDArray[np.uint32]

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
_LENGTH_BYTES = 8

_MASK_DELTA = np.uint32(0xA282EAD8)


def masked(crcs: Crcs) -> Crcs:
    """Return CRC-32C values as TFRecord stores them."""
    return ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + _MASK_DELTA


@functools.lru_cache
def header(record_length: int) -> bytes:
    """Return the first 12 bytes of every frame with a payload of so many bytes."""
    length = struct.pack("<Q", record_length)
    return length + masked_crc(length)


def framed(payload: bytes) -> bytes:
    """Return a payload in its frame."""
    return b"".join((header(len(payload)), payload, masked_crc(payload)))


def empty_frames(count: int, payload: bytes) -> Bytes:
    """Return frames with one and the same payload, not sealed yet.

    Returns:
        uint8, (count, 16 + len(payload)); the payload is columns 12 to 12 + len(payload).
    """
    frame = header(len(payload)) + payload + bytes(FOOTER_BYTES)
    return np.tile(np.frombuffer(frame, np.uint8), (count, 1))


def payloads(frames: Bytes) -> Bytes:
    """Return the payloads in a block of frames: a view, (n, record length)."""
    return frames[:, HEADER_BYTES:-FOOTER_BYTES]


def masked_crcs(payloads: Iterable[Bytes]) -> Crcs:
    """Compute the CRC-32C of payloads as TFRecord stores them, (n,)."""
    return masked(np.fromiter(map(google_crc32c.value, payloads), np.uint32))


def seal(frames: Bytes) -> None:
    """Write the CRC of each frame's payload into the frame."""
    frames[:, -FOOTER_BYTES:] = masked_crcs(payloads(frames)).astype("<u4")[:, None].view(np.uint8)


def count_records(path: Path) -> int:
    """Count the records of a TFRecord file; both checksums of each are checked.

    Raises:
        ArtifactError: a frame is damaged or cut off; it is named by its number and byte.
        StoreError: the file cannot be read.
    """
    data, start, record = map_file(path), 0, 0
    while start < len(data):
        head = data[start : start + HEADER_BYTES].tobytes()
        length = head[:_LENGTH_BYTES]
        if len(head) < HEADER_BYTES or head[_LENGTH_BYTES:] != masked_crc(length):
            raise damaged_record(path, record, start, "is damaged or cut off: its length has another CRC-32C")
        end = start + FRAME_BYTES + struct.unpack("<Q", length)[0]
        if end > len(data):
            raise damaged_record(path, record, start, f"is cut off: it ends at byte {end} of {len(data)}")
        require_sound(path, record, start, data[start:end])
        start, record = end, record + 1
    return record


def require_sound(path: str | Path, record: int, byte: int, frame: Bytes) -> None:
    """Check both checksums of a record.

    Args:
        path: its shard, for the error.
        record: its number there, likewise.
        byte: at which it starts, likewise.
        frame: uint8, (n,): its bytes, from the first of its length to the last of its checksum.

    Raises:
        ArtifactError: one is wrong.
    """
    found, expected = frame[:HEADER_BYTES].tobytes(), header(len(frame) - FRAME_BYTES)
    if found != expected:
        how = f"starts with the bytes {found.hex()} vs {expected.hex()} for its length"
        raise damaged_record(path, record, byte, how)
    made, stored = masked_crc(frame[HEADER_BYTES:-FOOTER_BYTES]), frame[-FOOTER_BYTES:].tobytes()
    if made != stored:
        how = f"has the masked CRC-32C {made[::-1].hex()} vs {stored[::-1].hex()} written after it"
        raise damaged_record(path, record, byte, how)


def damaged_record(path: str | Path, record: int, byte: int, how: str) -> ArtifactError:
    """Return the error for a damaged record, and make its file newer than its completion record says.

    So the next conversion hashes the file, and writes it anew.
    """
    with contextlib.suppress(OSError):  # a store that can only be read
        os.utime(path)
    return ArtifactError(
        f"{path}: record {record}, at byte {byte}, {how}; run `podline convert` again: it writes what is damaged anew, "
        "and nothing else"
    )


def masked_crc(data: bytes | Bytes) -> bytes:
    """Return the CRC-32C of some bytes as TFRecord stores it."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + int(_MASK_DELTA)) & 0xFFFFFFFF)


def map_file(path: Path) -> Bytes:
    """Map a file into memory, uint8 (bytes,), not writable.

    Raises:
        ArtifactError: it is gone.
        StoreError: it cannot be read.
    """
    if not path.exists():
        raise ArtifactError(f"{path} is gone; convert the data again")
    with explained("read", path), path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        return np.asarray(np.memmap(stream, np.uint8, "r")) if size else np.empty(0, np.uint8)
