"""Finds COCO's annotations and images of 2014 or 2017 in a folder: as files and folders, as zip files, or both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
    annotations: Path
    member: str
    images: Path

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.title if self.title.endswith(".csv") else f"{self.title}.json"


def find_coco(place: Path) -> list[Annotated]:
    """Find the splits that are there, training first; no file is opened.

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


def _find_split(place: Path, split: str, year: str) -> Annotated | None:
    """Find a split; the official zip file has annotations of both, so there those without images do not count."""
    title, images = f"person_keypoints_{split}{year}", f"{split}{year}"
    member, archive = f"annotations/{title}.json", f"annotations_trainval{year}.zip"
    files = [(place / member, ""), (place / f"{title}.json", "")]
    files += [(place / archive, member), (place / "annotations" / archive, member)]
    annotations, inside = next((found for found in files if found[0].is_file()), (None, ""))
    if annotations is None:
        return None
    for folder in (place, place / "images"):
        for path in (folder / images, folder / f"{images}.zip"):
            if path.exists():
                return Annotated(SPLITS[split], title, annotations, inside, path)
    if inside:
        return None
    raise SourceError(f"{place} has {annotations.name} without its images; put {images}/ or {images}.zip beside it")
