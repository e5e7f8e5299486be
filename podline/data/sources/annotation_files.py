"""Reads files of annotations in a sandbox: COCO's JSON, plain or in a zip file, and DeepLabCut's tables."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podline.data import bounds
from podline.data.lfs import refuse_lfs_pointer
from podline.data.rawfiles import reading
from podline.data.shown import printable
from podline.data.sources.coco_annotations import PEOPLE, Category, ImageEntry, listing_of
from podline.data.sources.coco_files import images_in, open_zip
from podline.data.sources.coco_layout import Annotated
from podline.data.sources.deeplabcut import as_coco, is_table
from podline.documents.manifest import SourceFile
from podline.errors import SourceError
from podline.sandbox import Limits, begin, confined, limits_of
from podline.store.contract import explained

_IMAGES, _REST = "images.jsonl", "rest.json"
_MOST_DIGITS = 4_000  # of a whole number: Python does not read one of more than 4,300


def limits_of_annotations(size: int) -> Limits:
    """Return what reading so many bytes of annotations may take: their values become objects."""
    return limits_of(size, memory=12, rate=4e6)._replace(wait=60.0)


@dataclass(frozen=True)
class Listed:
    """A file of annotations that was read and checked.

    Attributes:
        place: where it is, and its images.
        file: its content.
        folder: where its entries are kept.
        sha256: of these.
        orphans: annotations that belong to no image: what to call them, and why.
        other_categories: annotations of other things than people, which are passed over.
        strays: people with joints who belong to no image, or are of another category: how many, by what is wrong.
        image_files: how many image files there are, listed or not.
    """

    place: Annotated
    file: SourceFile
    folder: Path
    sha256: str
    orphans: list[tuple[str, str]]
    other_categories: int
    strays: Counter[str]
    image_files: int

    def entries(self) -> Iterator[ImageEntry]:
        """Yield what is listed, in the file's order; entries that cannot be converted have a problem."""
        with explained("read", self.folder), (self.folder / _IMAGES).open() as lines:
            yield from map(ImageEntry.from_json, lines)


def read_annotations(place: Annotated, folder: Path, category: Category = PEOPLE) -> Listed:
    """Read a file of annotations and find its images.

    Args:
        place: where they are.
        folder: an empty one, for what is read.
        category: whose annotations are meant; others are passed over.

    Raises:
        SourceError: the annotations or the images cannot be read, or take too much.
        StoreError: the folder cannot be written.
    """
    archive = 0 if place.images.is_dir() else _size_of(place.images)
    limits = limits_of_annotations(_size_of(place.annotations) + archive)
    with explained("write", folder):
        confined(f"{__name__}:list_images", place, str(folder), category, what=str(place.annotations), limits=limits)
        file, sha256, orphans, others, strays, files = json.loads((folder / _REST).read_text())
    file = SourceFile(name=place.file, bytes=file[0], sha256=file[1])
    return Listed(place, file, folder, sha256, orphans, others, Counter(strays), files)


def list_images(place: Annotated, folder: str, category: Category) -> None:
    """Write what a file of annotations lists into a folder; runs in a sandbox."""
    images = images_in(place.images)
    data = content_of(place.annotations, place.member)
    document = document_of(data, _shown(place.annotations, place.member), "fetch the official annotations again")
    if document is None:
        raise SourceError(
            f"{_shown(place.annotations, place.member)} is no COCO annotation file: an object with lists images and "
            "annotations is needed"
        )
    listing, digest = listing_of(document, category), hashlib.sha256()
    with Path(folder, _IMAGES).open("wb") as stream:
        for entry in listing.images:
            found = images.find(entry.name) if entry.name else ""
            if isinstance(found, str):
                entry.problem = entry.problem or found
            else:
                entry.file = found
            line = f"{entry.to_json()}\n".encode()
            digest.update(line)
            stream.write(line)
    file = (len(data), hashlib.sha256(data).hexdigest())
    rest = (file, digest.hexdigest(), listing.orphans, listing.other_categories, listing.strays, images.files)
    Path(folder, _REST).write_text(json.dumps(rest))


def content_of(path: Path, member: str = "") -> bytes:
    """Return a file of annotations, within limits that grow with it; runs in a sandbox.

    Args:
        path: the file, a zip file, or DeepLabCut's table or a folder with its tables.
        member: its name in the zip file.

    Raises:
        SourceError: it cannot be read.
    """
    shown = _shown(path, member)
    with reading(shown):
        begin(limits_of_annotations(_size_of(path)), shown)
        if member:
            data = _member(path, member, shown)
        else:
            data = as_coco(path) if is_table(path) or path.is_dir() else path.read_bytes()
    refuse_lfs_pointer(data, shown)
    return data


def document_of(data: bytes, shown: str, remedy: str) -> dict[str, Any] | None:
    """Return a document with lists ``images`` and ``annotations``; None for another one.

    Outlines that no record needs, which are most of a file, are not kept.

    Raises:
        SourceError: it is no JSON.
    """
    try:
        try:
            document = json.loads(data, object_hook=_without_outline)
        except json.JSONDecodeError:
            raise
        except ValueError:  # a whole number that is too long
            document = json.loads(data, object_hook=_without_outline, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{shown} is not valid JSON ({error}); {remedy}") from error
    if not isinstance(document, dict):
        return None
    lists = [document.get("images"), document.get("annotations")]
    if not all(isinstance(found, list) for found in lists):
        return None
    entries, most = sum(len(found) for found in lists if found), bounds.entries(len(data))
    if entries > most:
        raise SourceError(
            f"{shown} lists {entries:,} images and annotations in {len(data):,} bytes vs {most:,} at most"
        )
    return document


def _without_outline(found: dict[str, Any]) -> dict[str, Any]:
    if found.get("num_keypoints") and found.get("bbox") and not found.get("iscrowd"):
        found.pop("segmentation", None)
    return found


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) < _MOST_DIGITS else float(digits)


def _member(path: Path, member: str, shown: str) -> bytes:
    with open_zip(path) as archive:
        if member not in archive.namelist():
            raise SourceError(f"{path} has no {member}; fetch it again")
        found = archive.getinfo(member)
        most = bounds.unpacked(found.compress_size)
        if found.file_size > most:
            raise SourceError(f"{shown} has {found.file_size:,} bytes vs {most:,} at most")
        begin(limits_of_annotations(found.file_size), shown)
        try:
            return archive.read(found)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # zipfile lets many kinds of errors out of a damaged member
            raise SourceError(f"{shown} is damaged ({printable(error)}); fetch it again") from error


def _shown(path: Path, member: str) -> str:
    return f"{path}/{member}" if member else str(path)


def _size_of(path: Path) -> int:
    """Return bytes of a file, or of the files in a folder that has tables."""
    with reading(path):
        files = path.rglob("*.csv") if path.is_dir() else [path]
        return sum(file.stat().st_size for file in files)
