"""Finds COCO's annotations and images, as files and folders or in zip files, without unpacking them.

A sandbox reads folders and directories of zip files once. Later each image is read by its place.
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
from podline.documents.manifest import TEST, TRAIN, VALIDATION
from podline.errors import SourceError

YEARS = ("2017", "2014")
_TRAIN, _VAL, _TEST = "train", "val", "test"  # COCO's splits

_SUFFIXES = (".jpg", ".jpeg", ".png")  # file names that count as images before the files are read
_HEADER = struct.Struct("<4s5H3I2H")  # the header before a member's name in a zip file
_ENCRYPTED = 1


class AnnotationFile(NamedTuple):
    """An annotation file and the place of its images.

    Attributes:
        split: see :data:`podline.documents.manifest.SPLITS`.
        path: the file, the zip file that holds it, or a folder with DeepLabCut's tables.
        member: the file's name in the zip file.
        images: the folder or the zip file of images.
    """

    split: str
    path: Path
    member: str
    images: Path

    @property
    def name(self) -> str:
        """The file's name without folders."""
        return PurePosixPath(self.member).name or self.path.name


def find_coco(place: Path) -> list[AnnotationFile]:
    """Find the splits of COCO 2014 or 2017 in a folder, training first, without opening a file.

    COCO's validation split becomes the test split, unless annotations of test images exist.

    Raises:
        SourceError: the folder has no such files, or those of both years.
    """
    if not place.is_dir():
        raise SourceError(f"{place} is not a folder; give one with annotations/ and the images, or with the zip files")
    years = [_find_splits(place, year) for year in YEARS]
    if all(years):
        raise SourceError(f"{place} holds COCO of 2014 and of 2017, which share images; give a folder with one of them")
    if any(years):
        return years[0] or years[1]
    names = sorted(path.name for path in place.iterdir())
    holds = f"holds {', '.join(names[:6])}{' …' if len(names) > 6 else ''}" if names else "is empty"
    raise SourceError(
        f"{place} {holds} vs annotations/person_keypoints_train2017.json (or annotations_trainval2017.zip) and "
        "train2017/ (or train2017.zip) of COCO, or the same of val or 2014; "
        "`podline data draw DIR --dataset coco_sample` draws some"
    )


def _find_splits(place: Path, year: str) -> list[AnnotationFile]:
    found = [_find_split(place, split, year, ours) for split, ours in ((_TRAIN, TRAIN), (_VAL, TEST))]
    if found[0] and (test := _find_split(place, _TEST, year, TEST)):
        found = [found[0], found[1] and found[1]._replace(split=VALIDATION), test]
    return [split for split in found if split]


def _find_split(place: Path, split: str, year: str, ours: str) -> AnnotationFile | None:
    """Find a split; in the official zip file with both splits, annotations without images are ignored."""
    name, folder, archive = f"person_keypoints_{split}{year}.json", f"{split}{year}", f"annotations_trainval{year}.zip"
    member = f"annotations/{name}"
    archives = (archive, f"annotations/{archive}") if split != _TEST else ()
    annotations = _first(place, member, name, *archives)
    images = _first(place, folder, f"{folder}.zip", f"images/{folder}", f"images/{folder}.zip")
    if annotations is None:
        return None
    packed = annotations.name == archive
    if images is not None:
        return AnnotationFile(ours, annotations, member if packed else "", images)
    if packed:
        return None
    raise SourceError(f"{place} has {annotations.name} without its images; put {folder}/ or {folder}.zip beside it")


def _first(place: Path, *names: str) -> Path | None:
    return next((place / name for name in names if (place / name).exists()), None)


class ImagePlace(NamedTuple):
    """The location of an image file.

    Attributes:
        path: path of the image file, or of the zip file.
        size: size of the image file, in bytes.
        changed: time of the last change of ``path``, in nanoseconds.
        crc: CRC-32 of a zip file's member.
        offset: position of the member's header in the zip file; None for a separate file.
        stored: bytes of the member in the zip file, compressed if ``deflated``.
    """

    path: str
    size: int
    changed: int = 0
    crc: int = 0
    offset: int | None = None
    stored: int = 0
    deflated: bool = False

    def read(self) -> bytes:
        """Return the image file, cut to one byte above the size limit; a member's size and checksum are verified.

        Raises:
            OSError: the file cannot be read.
            MemberError: the zip file is damaged at this place.
        """
        with open(self.path, "rb") as stream:  # noqa: PTH123 (a Path for each takes a tenth of the time)
            if self.offset is None:
                return stream.read(self.size + 1)
            data = self._member(stream, self.offset)
        if (len(data), zlib.crc32(data)) != (self.size, self.crc):
            raise self._damaged("size or checksum differs from the directory's")
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


def images_in(place: Path) -> tuple[Callable[[str], ImagePlace | str], int]:
    """Find the images of a folder or a zip file; runs in a sandbox.

    Returns:
        A function that maps a file's name to its place, or to the reason why it cannot be read, as a phrase after the
        image's name. The number of image files.

    Raises:
        SourceError: the folder or zip file cannot be read.
    """
    if place.is_dir():
        with reading(place):
            count = sum(name.lower().endswith(_SUFFIXES) for name in os.listdir(place))  # noqa: PTH208 (names alone)
        return lambda name: _in_folder(place, name), count
    with reading(place, "a zip file", "fetch it again"), zipfile.ZipFile(place) as archive:
        members = [member for member in archive.infolist() if member.filename.lower().endswith(_SUFFIXES)]
        found = place.stat()
    named = {PurePosixPath(member.filename).name: member for member in members}
    if len(named) != len(members):
        raise SourceError(f"{place}: {len(members):,} images have {len(named):,} names; each must be there once")

    def find(name: str) -> ImagePlace | str:
        return _in_zip(place, found, named[name]) if name in named else f"{place.name} has no such file"

    return find, len(members)


def _in_folder(folder: Path, name: str) -> ImagePlace | str:
    if "\\" in name or not {"", ".", ".."}.isdisjoint(name.split("/")):
        return "the file name leads out of its folder"
    path = f"{folder}/{name}"
    try:
        found = os.stat(path)  # noqa: PTH116 (a Path for each of many images is a tenth of the time)
    except (FileNotFoundError, NotADirectoryError):
        return f"{folder.name} has no such file"
    except (OSError, ValueError) as error:  # the name is too long, or is no text
        return f"the file cannot be read ({getattr(error, 'strerror', None) or 'its name is no text'})"
    if not stat.S_ISREG(found.st_mode):
        return f"{folder.name} has no such file"
    return _too_large(found.st_size) or ImagePlace(path, found.st_size, found.st_ctime_ns)


def _in_zip(place: Path, found: os.stat_result, member: zipfile.ZipInfo) -> ImagePlace | str:
    if member.flag_bits & _ENCRYPTED or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "the file is encrypted, or compressed in a way that is not read"
    if not 0 <= member.header_offset <= found.st_size - _HEADER.size - member.compress_size:
        return f"the file lies beyond the {found.st_size:,} bytes of {place.name}"
    return _too_large(max(member.file_size, member.compress_size)) or ImagePlace(
        path=str(place),
        size=member.file_size,
        changed=found.st_ctime_ns,
        crc=member.CRC,
        offset=member.header_offset,
        stored=member.compress_size,
        deflated=member.compress_type == zipfile.ZIP_DEFLATED,
    )


def _too_large(size: int) -> str:
    return f"the file has {size:,} bytes vs {bounds.IMAGE_BYTES:,} at most" if size > bounds.IMAGE_BYTES else ""
