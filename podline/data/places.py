"""The location of the bytes of an image's file."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple, Protocol

from podline.data import bounds
from podline.store.opening import open_store

# Of images, whether they are decoded or not.
IMAGE_ENDINGS = frozenset(
    (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".dib", ".gif", ".tif", ".tiff"),
        *(".heic", ".heif", ".avif", ".jp2", ".jxl", ".psd", ".ppm", ".pgm", ".pbm", ".tga"),
    )
)


class MemberError(ValueError):
    """Why a file cannot be read, though all that it lies in can be: a phrase that follows the file's name."""


class Readable(Protocol):
    """A place of any kind."""

    def read(self) -> bytes:
        """Return an image's file: at most one byte more than an image may have.

        Raises:
            OSError: it cannot be read.
            MemberError: what it lies in is damaged there.
        """
        ...


class Place(NamedTuple):
    """Bytes of a file.

    Attributes:
        path: the file's.
        start: the first byte.
        bytes: how many; -1 is to the file's end.
    """

    path: str
    start: int = 0
    bytes: int = -1

    def read(self) -> bytes:
        """Return the bytes; see :meth:`Readable.read`.

        Raises:
            OSError: they cannot be read, or the file has become shorter.
        """
        file, parts = os.open(self.path, os.O_RDONLY), list[bytes]()
        try:
            size = self.bytes if self.bytes >= 0 else os.fstat(file).st_size
            place, left = self.start, min(size, bounds.IMAGE_BYTES + 1)
            while left > 0:
                part = os.pread(file, left, place)
                if not part:
                    raise OSError(errno.EIO, f"{left:,} bytes fewer than it had", self.path)
                parts.append(part)
                place, left = place + len(part), left - len(part)
        finally:
            os.close(file)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class StoredFile(NamedTuple):
    """An object of a bucket.

    Attributes:
        root: the store that it is in, as a URI.
        name: its name there.
        version: its generation.
        bytes: how many are read: at most one more than an image may have.
    """

    root: str
    name: str
    version: str
    bytes: int

    def read(self) -> bytes:
        """Return the object's bytes.

        Raises:
            ArtifactError: it has another generation by now.
            StoreError: it cannot be read.
        """
        store = open_store(self.root)
        if self.bytes > bounds.IMAGE_BYTES:
            return store.read_range(self.name, 0, self.bytes, self.version)
        return store.read_bytes(self.name, self.version)
