"""TFRecord files whose records all have one length: a file is an array of frames, built and checked as one.

A frame is what TensorFlow's ``record_writer.cc`` writes: the payload's length (uint64, little-endian), the length's
masked CRC-32C (uint32), the payload, the payload's masked CRC-32C (uint32). The mask (rotate right by 15 bits, add a
constant) keeps a CRC of data that holds CRCs meaningful.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from pathlib import Path

import google_crc32c
import numpy as np
import numpy.typing as npt

from podline.errors import ArtifactError
from podline.plurals import plural
from podline.store.contract import explained

Bytes = npt.NDArray[np.uint8]
Crcs = npt.NDArray[np.uint32]

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES

_MASK_DELTA = np.uint32(0xA282EAD8)


def masked(crcs: Crcs) -> Crcs:
    """CRC-32C values as TFRecord stores them."""
    return ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + _MASK_DELTA


def header(record_length: int) -> bytes:
    """The first 12 bytes of every frame with a payload of so many bytes."""
    length = struct.pack("<Q", record_length)
    crc = np.array([google_crc32c.value(length)], np.uint32)
    return length + masked(crc).astype("<u4").tobytes()


def empty_frames(count: int, payload: bytes) -> Bytes:
    """Frames with one and the same payload, not sealed yet.

    Returns:
        uint8, (count, 16 + len(payload)); the payload is columns 12 to 12 + len(payload).
    """
    frame = header(len(payload)) + payload + bytes(FOOTER_BYTES)
    return np.tile(np.frombuffer(frame, np.uint8), (count, 1))


def payloads(frames: Bytes) -> Bytes:
    """The payloads in a block of frames: a view, (n, record length)."""
    return frames[:, HEADER_BYTES:-FOOTER_BYTES]


def payload_crcs(frames: Bytes) -> Crcs:
    """The masked CRC-32C that each frame's payload has, (n,)."""
    return masked(np.fromiter(map(google_crc32c.value, payloads(frames)), np.uint32, len(frames)))


def stored_crcs(frames: Bytes) -> Crcs:
    """The masked CRC-32C of its payload that each frame says, (n,)."""
    return np.ascontiguousarray(frames[:, -FOOTER_BYTES:]).view("<u4")[:, 0].astype(np.uint32)


def seal(frames: Bytes) -> None:
    """Writes the CRC of each frame's payload into the frame."""
    frames[:, -FOOTER_BYTES:] = payload_crcs(frames).astype("<u4")[:, None].view(np.uint8)


def map_frames(path: Path, record_length: int, records: int) -> Bytes:
    """A shard's file as an array, mapped into memory and read only where it is touched.

    Args:
        path: the file.
        record_length: bytes of every payload.
        records: how many the file must hold.

    Returns:
        uint8, (records, 16 + record_length), not writable.

    Raises:
        ArtifactError: the file is gone or has another size.
        StoreError: it cannot be read.
    """
    with _opened(path, record_length, records) as stream:
        return np.asarray(np.memmap(stream, np.uint8, "r", shape=(records, FRAME_BYTES + record_length)))


def read_frames(path: Path, record_length: int, records: int, step: int) -> Iterator[Bytes]:
    """A shard's file from its beginning to its end; what comes next is read while a block of frames is used.

    Args:
        path: the file.
        record_length: bytes of every payload.
        records: how many the file must hold, one at least.
        step: frames in a block.

    Yields:
        uint8, (up to ``step``, 16 + record_length), valid until the next block but one is asked for.

    Raises:
        ArtifactError: the file is gone or has another size.
        StoreError: it cannot be read.
    """
    shape = min(step, records), FRAME_BYTES + record_length
    ring = itertools.cycle([np.empty(shape, np.uint8) for _ in range(3)])
    with _opened(path, record_length, records) as stream, ThreadPoolExecutor(1) as ahead:

        def read(start: int) -> Bytes:
            block = next(ring)[: records - start]
            if stream.readinto(block.data.cast("B")) < block.size:
                raise ArtifactError(f"{path} was cut off while it was read; convert the data again")
            return block

        coming = ahead.submit(read, 0)
        for start in range(step, records, step):
            block, coming = coming.result(), ahead.submit(read, start)
            yield block
        yield coming.result()


@contextlib.contextmanager
def _opened(path: Path, record_length: int, records: int) -> Iterator[BufferedReader]:
    """A shard's file, which has as many bytes as so many records take."""
    if not path.exists():
        raise ArtifactError(f"{path} is gone; convert the data again")
    with explained("read", path), path.open("rb") as stream:
        frame = FRAME_BYTES + record_length
        size = path.stat().st_size
        if size != records * frame:
            raise ArtifactError(
                f"{path} has {size} bytes vs {records * frame} for {plural(records, 'record')} of {frame}; "
                "convert the data again"
            )
        yield stream
