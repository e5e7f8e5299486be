"""Counts the records of a TFRecord file frame by frame, with all checksums."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import google_crc32c
import numpy as np

from podline.data.tfrecord import FOOTER_BYTES, HEADER_BYTES, masked
from podline.documents.manifest import Manifest
from podline.errors import ArtifactError
from podline.plurals import plural
from podline.progress import Reporter
from podline.store.contract import Store, explained

_LENGTH_BYTES = 8


def count_records(path: Path) -> int:
    """How many records a TFRecord file holds; both checksums of each are verified.

    Raises:
        ArtifactError: a frame that is damaged or cut off, named by its number and place.
        StoreError: the file cannot be read.
    """
    with explained("read", path), path.open("rb") as stream:
        size = path.stat().st_size
        if size == 0:
            return 0
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            records = place = 0
            while place < size:
                place = _end_of_frame(path, data, records, place)
                records += 1
    return records


def verify_counts(store: Store, folder: str, manifest: Manifest, reporter: Reporter) -> dict[str, int]:
    """The number of records of each split, counted in its files.

    Raises:
        ArtifactError: a damaged record, or a file with another number of records than the manifest says.
        StoreError: a file cannot be read.
    """
    shards = [(split, shard) for split in manifest.splits for shard in split.shards]
    counts = {split.name: 0 for split in manifest.splits}
    for done, (split, shard) in enumerate(shards, start=1):
        path = store.local(f"{folder}/{shard.file}")
        found = count_records(path)
        if found != shard.records:
            raise ArtifactError(
                f"{path} holds {plural(found, 'record')} vs {shard.records} in the manifest; convert again"
            )
        counts[split.name] += found
        reporter.progress(done, len(shards), "shards")
    return counts


def _end_of_frame(path: Path, data: mmap.mmap, number: int, start: int) -> int:
    """Checks the frame that starts at a byte; returns the byte after it."""
    payload = start + HEADER_BYTES
    head = data[start:payload]
    if len(head) == HEADER_BYTES and head[_LENGTH_BYTES:] == _checksum(head[:_LENGTH_BYTES]):
        end = payload + struct.unpack("<Q", head[:_LENGTH_BYTES])[0]
        if data[end : end + FOOTER_BYTES] == _checksum(data[payload:end]):
            return end + FOOTER_BYTES
    raise ArtifactError(f"{path}: record {number}, at byte {start}, is damaged or cut off; convert again")


def _checksum(data: bytes) -> bytes:
    return masked(np.array([google_crc32c.value(data)], np.uint32)).astype("<u4").tobytes()
