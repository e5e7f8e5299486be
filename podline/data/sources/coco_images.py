"""COCO's images where they lie: files of a folder, or members of an official zip file that is never unpacked.

Whoever plans finds each image's place once; workers read there by position, so that nobody but the planner looks
through a zip file's directory.
"""

from __future__ import annotations

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from podline.data.sources.jpeg import JpegError
from podline.data.sources.rawfiles import reading
from podline.errors import SourceError

MAX_BYTES = 64_000_000
"""Of an image's file; COCO's largest has less than a million."""

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_ENCRYPTED = 1
_REMEDY = "restore it and convert again"


class ImagePlace(NamedTuple):
    """Where an image's bytes are.

    Attributes:
        path: the image's file, or the zip file.
        size: of the image's file, in bytes.
        crc: its CRC-32; whoever reads it later gets the same bytes, or an error.
        offset: of the member's header in the zip file; None for a file of its own.
        stored: bytes of the member in the zip file.
        deflated: whether they are compressed.
    """

    path: str
    size: int
    crc: int = 0
    offset: int | None = None
    stored: int = 0
    deflated: bool = False

    def read(self) -> bytes:
        """The image's file.

        Raises:
            SourceError: it cannot be read, or is not what it was.
        """
        data = self.read_any()
        if len(data) != self.size or zlib.crc32(data) != self.crc:
            raise SourceError(f"{self.path} changed while it was converted; {_REMEDY}")
        return data

    def read_any(self) -> bytes:
        """The image's file, whatever its checksum."""
        with reading(self.path), open(self.path, "rb") as stream:  # noqa: PTH123 (as in FolderImages)
            if self.offset is None:
                return stream.read(self.size + 1)
            stream.seek(self.offset)
            header = stream.read(_LOCAL_HEADER.size)
            if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\3\4":
                raise SourceError(f"{self.path} is damaged at byte {self.offset:,}: no member starts there; {_REMEDY}")
            *_, name, extra = _LOCAL_HEADER.unpack(header)
            stream.seek(name + extra, 1)
            data = stream.read(self.stored)
        if not self.deflated:
            return data
        try:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, self.size + 1)
        except zlib.error as error:
            raise SourceError(f"{self.path} is damaged after byte {self.offset:,} ({error}); {_REMEDY}") from error


@dataclass(frozen=True)
class FolderImages:
    """The images in a folder."""

    folder: Path

    @property
    def shown(self) -> str:
        """What errors call this."""
        return str(self.folder)

    def place(self, name: str) -> ImagePlace | None:
        """Where an image is, or None.

        Raises:
            JpegError: why it cannot be read.
        """
        _check_name(name)
        path = f"{self.folder}/{name}"
        try:
            found = os.stat(path)  # noqa: PTH116 (a Path for each of so many images is a tenth of the time)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return ImagePlace(path, _bounded(found.st_size)) if stat.S_ISREG(found.st_mode) else None

    def count(self) -> int:
        """How many JPEG files there are."""
        return sum(1 for _ in self.folder.glob("*.jpg"))


@dataclass(frozen=True)
class ZipImages:
    """The images in a zip file, by their names without folders."""

    path: Path
    members: Mapping[str, zipfile.ZipInfo]

    @property
    def shown(self) -> str:
        """What errors call this."""
        return str(self.path)

    def place(self, name: str) -> ImagePlace | None:
        """Where an image is, or None.

        Raises:
            JpegError: why it cannot be read.
        """
        _check_name(name)
        member = self.members.get(name)
        if member is None:
            return None
        if member.flag_bits & _ENCRYPTED or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise JpegError("is encrypted, or compressed in a way that is not read")
        return ImagePlace(
            path=str(self.path),
            size=_bounded(member.file_size),
            crc=member.CRC,
            offset=member.header_offset,
            stored=_bounded(member.compress_size),
            deflated=member.compress_type == zipfile.ZIP_DEFLATED,
        )

    def count(self) -> int:
        """How many JPEG files there are."""
        return len(self.members)


def open_images(place: Path) -> FolderImages | ZipImages:
    """The images of a folder or a zip file.

    Raises:
        SourceError: the zip file cannot be read.
    """
    if place.is_dir():
        return FolderImages(place)
    with open_zip(place) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith(".jpg")]
    named = {PurePosixPath(member.filename).name: member for member in members}
    if len(named) != len(members):
        raise SourceError(f"{place}: {len(members):,} images have {len(named):,} names; each must be there once")
    return ZipImages(place, named)


def open_zip(place: Path) -> zipfile.ZipFile:
    """A zip file.

    Raises:
        SourceError: it cannot be read.
    """
    try:
        with reading(place):
            return zipfile.ZipFile(place)
    except (zipfile.BadZipFile, ValueError, EOFError, struct.error, NotImplementedError) as error:
        raise SourceError(f"{place} is truncated, or no zip file ({error}); fetch it again") from error


def _bounded(size: int) -> int:
    if size > MAX_BYTES:
        raise JpegError(f"has {size:,} bytes vs {MAX_BYTES:,} at most")
    return size


def _check_name(name: Any) -> None:
    if "/" in name or "\\" in name or "\0" in name or name in ("", ".", ".."):
        raise JpegError("has a name that leads out of its folder")
