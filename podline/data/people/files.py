"""Finds COCO's annotations and images, as files and folders or in zip files, without unpacking them."""

from __future__ import annotations

import os
import posixpath
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from podline.data.places import IMAGE_ENDINGS, Place
from podline.data.rawfiles import reading
from podline.documents.manifest import TEST, TRAIN, VALIDATION
from podline.errors import SourceError

YEARS = ("2017", "2014")
_TRAIN, _VAL, _TEST = "train", "val", "test"  # COCO's splits

_SUFFIXES = tuple(IMAGE_ENDINGS)


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


def images_in(place: Path) -> tuple[Callable[[str], Place | str], int]:
    """Find the images of a folder or a zip file; runs in a sandbox.

    Returns:
        A function that maps a file's name to its place, or to the reason why there is none, as a phrase after the
        image's name. The number of image files.

    Raises:
        SourceError: the folder or zip file cannot be read.
    """
    if place.is_dir():
        with reading(place):
            count = sum(name.lower().endswith(_SUFFIXES) for name in os.listdir(place))  # noqa: PTH208 (names alone)
        return partial(_in_folder, place), count
    with reading(place, "a zip file", "fetch it again"), zipfile.ZipFile(place) as archive:
        members = [name for name in archive.namelist() if name.lower().endswith(_SUFFIXES)]
    named = {PurePosixPath(name).name: Place(str(place), member=name) for name in members}
    if len(named) != len(members):
        raise SourceError(f"{place}: {len(members):,} images have {len(named):,} names; each must be there once")
    return lambda name: named.get(name, f"{place.name} has no such file"), len(members)


def inside(folder: Path, name: str) -> str:
    """Return the path of a file in a folder, whose name may have backslashes; empty if it leads out of the folder."""
    path = posixpath.normpath(name.replace("\\", "/"))
    return "" if path.startswith(("/", "..")) or path == "." else f"{folder}/{path}"


def _in_folder(folder: Path, name: str) -> Place | str:
    path = inside(folder, name)
    if not path:
        return "the file name leads out of its folder"
    return Place(path) if os.path.isfile(path) else f"{folder.name} has no such file"  # noqa: PTH113 (a Path for each of many)
