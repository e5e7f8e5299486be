"""Finds COCO's images: files of a folder, or members of a zip file, which is never unpacked.

Folders and directories of zip files are read in a sandbox, once. Whoever reads an image later does so by its place.
"""

from __future__ import annotations

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from podline.data import bounds
from podline.data.places import MemberError
from podline.data.rawfiles import reading
from podline.data.shown import printable
from podline.errors import SourceError

SUFFIXES = (".jpg", ".jpeg", ".png")
"""Of the files that are taken for images before they are read."""

_HEADER = struct.Struct("<4s5H3I2H")  # before a member's name in a zip file
_ENCRYPTED = 1


class ImagePlace(NamedTuple):
    """Where an image's file is.

    Attributes:
        path: the image's file, or the zip file.
        size: of the image's file, in bytes.
        changed: when the file at ``path`` changed last, in nanoseconds.
        crc: of a zip file's member, its CRC-32.
        offset: of the member's header in the zip file; None for a file of its own.
        stored: bytes of the member in the zip file.
        deflated: whether they are compressed.
    """

    path: str
    size: int
    changed: int = 0
    crc: int = 0
    offset: int | None = None
    stored: int = 0
    deflated: bool = False

    def read(self) -> bytes:
        """Return the image's file, and no more than a byte too many; a member has its size and checksum.

        Raises:
            OSError: it cannot be read.
            MemberError: the zip file is damaged there.
        """
        with open(self.path, "rb") as stream:  # noqa: PTH123 (a Path for each takes a tenth of the time)
            if self.offset is None:
                return stream.read(self.size + 1)
            data = self._member(stream, self.offset)
        if (len(data), zlib.crc32(data)) != (self.size, self.crc):
            raise self._damaged("size or checksum is not the directory's")
        return data

    def _member(self, stream: BinaryIO, offset: int) -> bytes:
        stream.seek(offset)
        header = stream.read(_HEADER.size)
        if len(header) < _HEADER.size or header[:4] != b"PK\3\4":
            raise self._damaged("no member starts there")
        *_, name, extra = _HEADER.unpack(header)
        stream.seek(name + extra, os.SEEK_CUR)
        data = stream.read(self.stored)
        if not self.deflated:
            return data
        try:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, self.size + 1)
        except zlib.error as error:
            raise self._damaged(f"what is there cannot be unpacked ({error})") from error

    def _damaged(self, why: str) -> MemberError:
        return MemberError(f"cannot be read: {Path(self.path).name} is damaged there, at byte {self.offset:,}: {why}")

    def read_same(self) -> bytes:
        """Return the image's file, which has the size and the checksum of this place.

        Raises:
            SourceError: it cannot be read, or is not what it was.
        """
        try:
            with reading(self.path):
                data = self.read()
        except MemberError:
            data = b""
        if len(data) != self.size or zlib.crc32(data) != self.crc:
            raise SourceError(f"{self.path} changed while it was converted; restore it and convert again")
        return data


class Images(NamedTuple):
    """The images of a folder or a zip file.

    Attributes:
        find: a file's name → its place, or why it cannot be read: a phrase that follows the image.
        files: how many image files there are.
    """

    find: Callable[[str], ImagePlace | str]
    files: int


def images_in(place: Path) -> Images:
    """Return the images of a folder or a zip file.

    Raises:
        SourceError: it cannot be read.
    """
    if place.is_dir():
        with reading(place):
            count = sum(name.lower().endswith(SUFFIXES) for name in os.listdir(place))  # noqa: PTH208 (names alone)
        return Images(lambda name: _problem(name) or _in_folder(place, name), count)
    members, size = _members(place)
    changed = place.stat().st_ctime_ns

    def find(name: str) -> ImagePlace | str:
        problem = _problem(name)
        if problem or name not in members:
            return problem or _gone(place)
        return _member(place, size, changed, members[name])

    return Images(find, len(members))


def open_zip(place: Path) -> zipfile.ZipFile:
    """Open a zip file.

    Raises:
        SourceError: it cannot be read.
    """
    try:
        with reading(place):
            return zipfile.ZipFile(place)
    except (SourceError, MemoryError):
        raise
    except Exception as error:  # zipfile lets many kinds of errors out of a damaged directory
        raise SourceError(f"{place} is truncated, or no zip file ({printable(error)}); fetch it again") from error


def _gone(place: Path) -> str:
    return f"{place.name} has no such file"


def _in_folder(folder: Path, name: str) -> ImagePlace | str:
    path = f"{folder}/{name}"
    try:
        found = os.stat(path)  # noqa: PTH116 (a Path for each of so many images is a tenth of the time)
    except (FileNotFoundError, NotADirectoryError):
        return _gone(folder)
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror or error}") from error
    if not stat.S_ISREG(found.st_mode):
        return _gone(folder)
    return _too_large(found.st_size) or ImagePlace(path, found.st_size, found.st_ctime_ns)


def _members(place: Path) -> tuple[dict[str, zipfile.ZipInfo], int]:
    """Return a zip file's images, by their names without folders, and its size."""
    with open_zip(place) as archive:
        members = [member for member in archive.infolist() if member.filename.lower().endswith(SUFFIXES)]
    named = {PurePosixPath(member.filename).name: member for member in members}
    if len(named) != len(members):
        raise SourceError(f"{place}: {len(members):,} images have {len(named):,} names; each must be there once")
    size = place.stat().st_size
    packed, unpacked = (sum(getattr(member, kind) for member in members) for kind in ("compress_size", "file_size"))
    if packed > size or unpacked > bounds.unpacked(size):
        raise SourceError(
            f"{place}: images of {unpacked:,} bytes, {packed:,} of them packed, in a file of {size:,} bytes vs "
            f"{bounds.unpacked(size):,} at most; fetch it again"
        )
    return named, size


def _member(place: Path, size: int, changed: int, member: zipfile.ZipInfo) -> ImagePlace | str:
    if member.flag_bits & _ENCRYPTED or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "the file is encrypted, or compressed in a way that is not read"
    if not 0 <= member.header_offset <= size - _HEADER.size - member.compress_size:
        return f"the file lies beyond the {size:,} bytes of {place.name}"
    return _too_large(max(member.file_size, member.compress_size)) or ImagePlace(
        path=str(place),
        size=member.file_size,
        changed=changed,
        crc=member.CRC,
        offset=member.header_offset,
        stored=member.compress_size,
        deflated=member.compress_type == zipfile.ZIP_DEFLATED,
    )


def _too_large(size: int) -> str:
    return f"the file has {size:,} bytes vs {bounds.IMAGE_BYTES:,} at most" if size > bounds.IMAGE_BYTES else ""


def _problem(name: str) -> str:
    """Return why a file cannot have a name; empty if it can."""
    if "\\" in name or "\0" in name or not {"", ".", ".."}.isdisjoint(name.split("/")):
        return "the file has a name that leads out of its folder"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "the file has a name that is no text"
    return f"the file has a name of {size:,} bytes vs {bounds.NAME_BYTES} at most" if size > bounds.NAME_BYTES else ""
