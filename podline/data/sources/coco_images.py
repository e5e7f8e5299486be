"""Finds COCO's images: files of a folder, or members of a zip file, which is never unpacked.

Whoever plans finds each image's place once; workers read there by position, so that nobody but the planner looks
through a zip file's directory. In a bucket an image is one request, for its object or for its part of the zip file.
"""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, NamedTuple

from podline.cores import usable_cores
from podline.data.sources import bounds
from podline.data.sources.image_files import (
    HEADER_BYTES,
    NAME_BYTES,
    ImageFile,
    MemberError,
    content_starts,
    inflated,
)
from podline.data.sources.jpeg import JpegError
from podline.data.sources.ranges import generation, read_confirmed
from podline.data.sources.rawfiles import reading
from podline.data.sources.remote import AnyPath, RemotePath, is_remote
from podline.data.sources.shown import printable
from podline.errors import PodlineError, SourceError
from podline.store.contract import Store

SUFFIXES = (".jpg", ".jpeg", ".png")
"""Of the files that are taken for images before they are read."""

_ENCRYPTED = 1
_REMEDY = "restore it and convert again"
_CORES = usable_cores()


class ImagePlace(NamedTuple):
    """Where an image's bytes are.

    Attributes:
        path: the image's file, or the zip file; in a bucket, ``gs://bucket/name#generation``.
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
        try:
            data = self.read_any()
        except MemberError as error:
            raise SourceError(f"{self.path} is damaged at byte {self.offset:,}: {error}; {_REMEDY}") from error
        if len(data) != self.size or zlib.crc32(data) != self.crc:
            raise SourceError(f"{self.path} changed while it was converted; {_REMEDY}")
        return data

    @property
    def file(self) -> ImageFile | None:
        """The same on this machine; None for an image in a bucket."""
        if is_remote(self.path):
            return None
        return ImageFile(self.path, self.size, self.offset, self.stored, self.deflated)

    def read_any(self) -> bytes:
        """The image's file, whatever its checksum.

        Raises:
            SourceError: it cannot be read.
            MemberError: no such member is there.
        """
        file = self.file
        with reading(self.path):
            return self._read_remote() if file is None else file.read()

    def _read_remote(self) -> bytes:
        store, name, version = generation(self.path)
        if self.offset is None:
            return store.read_bytes(name, version)
        place, length = self.offset, HEADER_BYTES + NAME_BYTES + self.stored

        def read() -> bytes:
            return store.read_range(name, place, length, version)

        def is_right(data: bytes) -> bool:
            try:
                return zlib.crc32(self._member(data, store, name, version)) == self.crc
            except MemberError:
                return False

        return self._member(read_confirmed(read, is_right, self.path), store, name, version)

    def _member(self, data: bytes, store: Store, name: str, version: str) -> bytes:
        """A member's content, out of bytes that begin with its header."""
        start = content_starts(data[:HEADER_BYTES])
        content = data[start : start + self.stored]
        missing = self.stored - len(content)
        if missing > 0 and start > HEADER_BYTES + NAME_BYTES and self.offset is not None:
            content += store.read_range(name, self.offset + len(data), missing, version)
        return inflated(content, self.size) if self.deflated else content


@dataclass(frozen=True)
class FolderImages:
    """The images in a folder."""

    folder: Path
    parallel: ClassVar[int] = _CORES
    generations: ClassVar[tuple[str, ...]] = ()

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
        except OSError as error:
            raise SourceError(f"cannot read {path}: {error.strerror or error}") from error
        return ImagePlace(path, _bounded(found.st_size)) if stat.S_ISREG(found.st_mode) else None

    def count(self) -> int:
        """How many image files there are."""
        return sum(name.lower().endswith(SUFFIXES) for name in os.listdir(self.folder))  # noqa: PTH208 (names alone)


@dataclass(frozen=True)
class BucketImages:
    """The images in a folder of a bucket, each an object."""

    folder: RemotePath

    @property
    def shown(self) -> str:
        """What errors call this."""
        return str(self.folder)

    @property
    def parallel(self) -> int:
        """How many may be read at once."""
        return self.folder.parallel

    @property
    def generations(self) -> tuple[str, ...]:
        """The objects that hold the images."""
        return tuple(path.uri for path in self.folder.iterdir() if path.is_file())

    def place(self, name: str) -> ImagePlace | None:
        """Where an image is, or None.

        Raises:
            JpegError: why it cannot be read.
        """
        _check_name(name)
        file = self.folder / name
        return ImagePlace(file.uri, _bounded(file.bytes)) if file.is_file() else None

    def count(self) -> int:
        """How many image files there are."""
        return sum(path.name.lower().endswith(SUFFIXES) for path in self.folder.iterdir())


@dataclass(frozen=True)
class ZipImages:
    """The images in a zip file, by their names without folders."""

    path: Path | RemotePath
    members: Mapping[str, zipfile.ZipInfo]
    bytes: int

    @property
    def shown(self) -> str:
        """What errors call this."""
        return str(self.path)

    @property
    def parallel(self) -> int:
        """How many may be read at once."""
        return self.path.parallel if isinstance(self.path, RemotePath) else _CORES

    @property
    def generations(self) -> tuple[str, ...]:
        """The object that holds the images, if they are in a bucket."""
        return (self.path.uri,) if isinstance(self.path, RemotePath) else ()

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
        if not 0 <= member.header_offset <= self.bytes - HEADER_BYTES - member.compress_size:
            raise JpegError(f"lies beyond the {self.bytes:,} bytes of {self.path}")
        return ImagePlace(
            path=self.path.uri if isinstance(self.path, RemotePath) else str(self.path),
            size=_bounded(member.file_size),
            crc=member.CRC,
            offset=member.header_offset,
            stored=_bounded(member.compress_size),
            deflated=member.compress_type == zipfile.ZIP_DEFLATED,
        )

    def count(self) -> int:
        """How many image files there are."""
        return len(self.members)


Images = FolderImages | BucketImages | ZipImages


def open_images(place: AnyPath) -> Images:
    """The images of a folder or a zip file.

    Raises:
        SourceError: the zip file cannot be read.
    """
    if place.is_dir():
        return BucketImages(place) if isinstance(place, RemotePath) else FolderImages(place)
    with open_zip(place) as archive:
        members = [member for member in archive.infolist() if member.filename.lower().endswith(SUFFIXES)]
    named = {PurePosixPath(member.filename).name: member for member in members}
    if len(named) != len(members):
        raise SourceError(f"{place}: {len(members):,} images have {len(named):,} names; each must be there once")
    size = place.bytes if isinstance(place, RemotePath) else place.stat().st_size
    packed, unpacked = (sum(getattr(member, kind) for member in members) for kind in ("compress_size", "file_size"))
    if packed > size or unpacked > bounds.unpacked(size):
        raise SourceError(
            f"{place}: images of {unpacked:,} bytes, {packed:,} of them packed, in a file of {size:,} bytes vs "
            f"{bounds.unpacked(size):,} at most; fetch it again"
        )
    return ZipImages(place, named, size)


def open_zip(place: AnyPath) -> zipfile.ZipFile:
    """A zip file; of one in a bucket, what is asked for is read and no more.

    Raises:
        SourceError: it cannot be read.
    """
    try:
        with reading(str(place)):
            return zipfile.ZipFile(place.open("rb") if isinstance(place, RemotePath) else place)
    except PodlineError:
        raise
    except Exception as error:  # zipfile lets many kinds of errors out of a damaged directory
        raise SourceError(f"{place} is truncated, or no zip file ({printable(error)}); fetch it again") from error


def _bounded(size: int) -> int:
    if size > bounds.IMAGE_BYTES:
        raise JpegError(f"has {size:,} bytes vs {bounds.IMAGE_BYTES:,} at most")
    return size


def _check_name(name: Any) -> None:
    if "\\" in name or "\0" in name or not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise JpegError("has a name that leads out of its folder")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise JpegError("has a name that is no text") from error
    if size > bounds.NAME_BYTES:
        raise JpegError(f"has a name of {size:,} bytes vs {bounds.NAME_BYTES} at most")
