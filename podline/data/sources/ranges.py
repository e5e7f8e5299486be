"""Reads parts of an object in a bucket: members of COCO's zip files, and their directories.

A range comes without a checksum, so each is held against another one: an image's CRC-32 in the zip file's directory; a
directory is read until it came twice alike.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO, NamedTuple, cast

from podline.errors import DamagedTransferError
from podline.store.contract import BUCKET_SCHEME, Store
from podline.store.opening import open_store
from podline.store.transfer_retries import with_transfer_retries

_BUFFER_BYTES = 1 << 22


class Generation(NamedTuple):
    """One generation of an object.

    Attributes:
        store: the object's bucket.
        name: in it.
        version: the generation.
    """

    store: Store
    name: str
    version: str


def generation(uri: str) -> Generation:
    """What ``gs://bucket/name#generation`` names."""
    place, _, version = uri.rpartition("#")
    bucket, _, name = place.removeprefix(BUCKET_SCHEME).partition("/")
    return Generation(open_store(f"{BUCKET_SCHEME}{bucket}"), name, version)


def read_confirmed(read: Callable[[], bytes], right: Callable[[bytes], bool], where: str) -> bytes:
    """Bytes that arrived as they are there: those that look right, or else those that came twice.

    Raises:
        DamagedTransferError: they come differently again and again.
    """
    before: list[bytes] = []

    def attempt() -> bytes:
        data = read()
        if data in before or right(data):
            return data
        before.append(data)
        raise _damaged(where)

    return with_transfer_retries(attempt)


def buffered(read: Callable[[int, int], bytes], size: int) -> BinaryIO:
    """A file to read, made of a function that reads ``length`` bytes from ``start`` on."""
    return cast("BinaryIO", io.BufferedReader(_Stream(read, size), _BUFFER_BYTES))


class _Stream(io.RawIOBase):
    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read, self._bytes, self._at = read, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, place: int, whence: int = io.SEEK_SET, /) -> int:
        place += {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._bytes}[whence]
        if place < 0:
            raise ValueError(f"byte {place} of a file")
        self._at = place
        return place

    def readinto(self, buffer: memoryview, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        data = self._read(self._at, min(len(buffer), max(0, self._bytes - self._at)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _damaged(where: str) -> DamagedTransferError:
    return DamagedTransferError(f"{where}: it arrives damaged")
