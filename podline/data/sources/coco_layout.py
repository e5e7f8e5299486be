"""Finds COCO's annotations and images of 2014 or 2017 in a folder: as files and folders, as zip files, or both."""

from __future__ import annotations

from dataclasses import dataclass

from podline.data.sources.coco_images import open_zip
from podline.data.sources.remote import AnyPath
from podline.errors import SourceError

YEARS = ("2017", "2014")
SPLITS = {"train": "train", "val": "test"}
"""COCO's splits → ours: what COCO validates on is what is tested on here."""


@dataclass(frozen=True)
class Annotated:
    """Annotations and the images that they are of.

    Attributes:
        split: ``train`` or ``test``.
        title: of the annotations, without a suffix.
        annotations: the file, or the zip file that holds it.
        member: its name in the zip file.
        images: the folder, or the zip file.
    """

    split: str
    title: str
    annotations: AnyPath
    member: str
    images: AnyPath

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.title if self.title.endswith(".csv") else f"{self.title}.json"


def find_coco(place: AnyPath) -> list[Annotated]:
    """The splits that are there, training first.

    Raises:
        SourceError: nothing of the kind is there, or both years are.
    """
    if not place.is_dir():
        raise SourceError(f"{place} is no folder; give one with annotations/ and the images, or with the zip files")
    years = {year: [found for split in SPLITS if (found := _find_split(place, split, year))] for year in YEARS}
    there = [year for year in YEARS if years[year]]
    if len(there) == 1:
        return years[there[0]]
    if there:
        raise SourceError(f"{place} holds COCO of 2014 and of 2017, which share images; give a folder with one of them")
    names = sorted(path.name for path in place.iterdir())
    holds = f"holds {', '.join(names[:6])}{' …' if len(names) > 6 else ''}" if names else "is empty"
    raise SourceError(
        f"{place} {holds} vs annotations/person_keypoints_train2017.json (or annotations_trainval2017.zip) and "
        "train2017/ (or train2017.zip) of COCO, or the same of val or 2014; "
        "`podline sample --dataset coco_sample DIR` draws some"
    )


def _find_split(place: AnyPath, split: str, year: str) -> Annotated | None:
    title, images = f"person_keypoints_{split}{year}", f"{split}{year}"
    member = f"annotations/{title}.json"
    candidates = [(path, "") for path in (place / member, place / f"{title}.json") if path.is_file()]
    for path in (place / f"annotations_trainval{year}.zip", place / "annotations" / f"annotations_trainval{year}.zip"):
        if path.is_file():
            with open_zip(path) as archive:
                candidates += [(path, member)] if member in archive.namelist() else []
    if not candidates:
        return None
    annotations, inside = candidates[0]
    for path in (
        place / images,
        place / "images" / images,
        place / f"{images}.zip",
        place / "images" / f"{images}.zip",
    ):
        if path.exists():
            return Annotated(SPLITS[split], title, annotations, inside, path)
    raise SourceError(f"{place} has {annotations.name} without its images; put {images}/ or {images}.zip beside it")
