"""Builds and checks frames of TFRecord files; a file with records of one length is an array of frames.

A frame equals the output of TensorFlow's ``record_writer.cc``: the payload's length (uint64, little-endian), the
length's masked CRC-32C (uint32), the payload, the payload's masked CRC-32C (uint32). The mask (rotate right by 15 bits,
add a constant) keeps CRCs useful for data that contain CRCs.
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

from podline.base.errors import ArtifactError
from podline.store.contract import explained

Bytes = npt.NDArray[np.uint8]

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
_MASK_DELTA = np.uint32(0xA282EAD8)


def masked_crcs(payloads: Iterable[bytes | Bytes]) -> npt.NDArray[np.uint32]:
    """Compute the masked CRC-32C of payloads for TFRecord, little-endian, (n,)."""
    crcs = np.fromiter(map(google_crc32c.value, payloads), "<u4")
    return ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + _MASK_DELTA


def masked_crc(data: bytes | Bytes) -> bytes:
    """Return the masked CRC-32C of some bytes for TFRecord."""
    return masked_crcs([data]).tobytes()


@functools.lru_cache
def header(record_length: int) -> bytes:
    """Return the first 12 bytes of every frame with a payload of ``record_length`` bytes."""
    length = struct.pack("<Q", record_length)
    return length + masked_crc(length)


def framed(payload: bytes) -> bytes:
    """Return the TFRecord frame of a payload: length, payload and checksums."""
    return b"".join((header(len(payload)), payload, masked_crc(payload)))


def payloads(frames: Bytes) -> Bytes:
    """Return a view of the payloads in a block of frames, (n, record length)."""
    return frames[:, HEADER_BYTES:-FOOTER_BYTES]


def seal(frames: Bytes) -> None:
    """Write the CRC of each frame's payload into the frame."""
    frames[:, -FOOTER_BYTES:] = masked_crcs(payloads(frames))[:, None].view(np.uint8)


def check_records(path: Path) -> None:
    """Verify both checksums of each record of a TFRecord file.

    Raises:
        ArtifactError: a frame is damaged or cut off; the message has its number and byte.
        StoreError: the file cannot be read.
    """
    start, record = 0, 0
    with explained("read", path), path.open("rb") as stream:
        while head := stream.read(HEADER_BYTES):
            if head[8:] != masked_crc(head[:8]):
                raise damaged_record(
                    path, record, start, "is damaged or cut off: the CRC-32C of its length does not match"
                )
            size = struct.unpack("<Q", head[:8])[0] + FRAME_BYTES
            frame = head + stream.read(size - HEADER_BYTES)
            if len(frame) != size:
                raise damaged_record(path, record, start, f"is cut off: {len(frame)} of its {size} bytes exist")
            require_sound(path, record, start, np.frombuffer(frame, np.uint8))
            start, record = start + size, record + 1


def require_sound(path: str | Path, record: int, byte: int, frame: Bytes) -> None:
    """Verify both checksums of a record's frame, uint8 (n,).

    Raises:
        ArtifactError: a checksum is wrong; the message has the file, the record's number and its first byte.
    """
    found, expected = frame[:HEADER_BYTES].tobytes(), header(len(frame) - FRAME_BYTES)
    if found != expected:
        how = f"starts with the bytes {found.hex()}, expected {expected.hex()} for its length"
        raise damaged_record(path, record, byte, how)
    made, stored = masked_crc(frame[HEADER_BYTES:-FOOTER_BYTES]), frame[-FOOTER_BYTES:].tobytes()
    if made != stored:
        how = f"has the masked CRC-32C {made[::-1].hex()} vs {stored[::-1].hex()} written after it"
        raise damaged_record(path, record, byte, how)


def damaged_record(path: str | Path, record: int, byte: int, how: str) -> ArtifactError:
    """Return the error for a damaged record, and set its file's modification time to now.

    The time then differs from the completion record, so the next conversion hashes the file and writes it again.
    """
    with contextlib.suppress(OSError):  # a read-only store
        os.utime(path)
    return ArtifactError(
        f"{path}: record {record}, at byte {byte}, {how}; run `podline convert` again, which replaces only missing and "
        "damaged files"
    )
