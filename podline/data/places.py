"""Locates the bytes of an image file, in a file, a zip file or a bucket, and reads them."""

from __future__ import annotations

import errno
import functools
import os
import zipfile
from typing import NamedTuple

from podline.base.entry_points import reason
from podline.data import bounds
from podline.data.sandbox.child import begin
from podline.data.sandbox.limits import limits_of
from podline.store.opening import open_store

# Extensions of image files, whether Podline decodes the format or not.
IMAGE_ENDINGS = frozenset(
    (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".dib", ".gif", ".tif", ".tiff"),
        *(".heic", ".heif", ".avif", ".jp2", ".jxl", ".psd", ".ppm", ".pgm", ".pbm", ".tga"),
    )
)


class MemberError(ValueError):
    """The reason why a file inside a readable archive cannot be read, as a phrase after the file's name."""


class Place(NamedTuple):
    """A range of bytes in a file, or a member of a zip file.

    Attributes:
        path: path of the file.
        start: position of the first byte.
        bytes: number of bytes; -1 means to the end of the file.
        member: name of the member; empty for a range.
    """

    path: str
    start: int = 0
    bytes: int = -1
    member: str = ""

    def read(self) -> bytes:
        """Return the bytes, at most one more than the limit :data:`podline.data.bounds.IMAGE_BYTES`.

        Raises:
            OSError: the bytes cannot be read, or the file has become shorter.
            MemberError: the zip file is damaged at this member.
        """
        if self.member:
            return _member(self.path, self.member)
        file, parts = os.open(self.path, os.O_RDONLY), list[bytes]()
        try:
            size = self.bytes if self.bytes >= 0 else os.fstat(file).st_size - self.start
            place, left = self.start, min(size, bounds.IMAGE_BYTES + 1)
            while left > 0:
                part = os.pread(file, left, place)
                if not part:
                    raise OSError(errno.EIO, f"the file has become {left:,} bytes shorter", self.path)
                parts.append(part)
                place, left = place + len(part), left - len(part)
        finally:
            os.close(file)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _member(path: str, name: str) -> bytes:
    try:
        with _archive(path, os.stat(path).st_mtime_ns).open(name) as stream:  # noqa: PTH116 (as many as images)
            return stream.read(bounds.IMAGE_BYTES + 1)  # verifies the checksum at the end
    except Exception as error:  # decoders have errors of their own, bz2's is an OSError without errno
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno):
            raise
        raise MemberError(f"cannot be read from {os.path.basename(path)}: {reason(error)}") from error  # noqa: PTH119


@functools.lru_cache(maxsize=4)
def _archive(path: str, _changed: int) -> zipfile.ZipFile:
    """Return a zip file that stays open in this process, since its directory may list a hundred thousand members."""
    begin(limits_of(os.stat(path).st_size))  # noqa: PTH116 (as above)
    return zipfile.ZipFile(path)


class StoredFile(NamedTuple):
    """An object of a bucket.

    Attributes:
        root: URI of the store that contains the object.
        name: name of the object in the store.
        version: generation of the object.
        bytes: number of bytes to read, at most one more than :data:`podline.data.bounds.IMAGE_BYTES`.
    """

    root: str
    name: str
    version: str
    bytes: int

    def read(self) -> bytes:
        """Return the object's bytes.

        Raises:
            ArtifactError: the object was replaced, and has another generation now.
            StoreError: the object cannot be read.
        """
        store = open_store(self.root)
        if self.bytes > bounds.IMAGE_BYTES:
            return store.read_range(self.name, 0, self.bytes, self.version)
        return store.read_bytes(self.name, self.version)
