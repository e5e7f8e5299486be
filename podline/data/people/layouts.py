"""The layouts of people: COCO's own files, and users' own keypoints in COCO's or DeepLabCut's format.

Users' annotations are JSON files in the folder, in ``annotations/``, and in ``train/``, ``val/``, ``valid/``, ``dev/``
and ``test/``. A single file holds all images; among several, the words train, val (or dev) and test in the names show
the splits. Without such a file, all tables of DeepLabCut are read (:mod:`podline.data.people.deeplabcut`).
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from podline.data.images.items import Item, Place
from podline.data.images.layout import NOTES, Layout
from podline.data.images.listing import Files, Found
from podline.data.people.annotations import (
    Entries,
    ImageEntry,
    document_of,
    flat,
    identifier,
    limits_of_annotations,
    read_entries,
    size_of,
)
from podline.data.people.deeplabcut import tables_of
from podline.data.people.files import AnnotationFile, find_coco, images_in, inside
from podline.data.people.image import PERSON, People
from podline.data.people.settings import KeypointSettings
from podline.data.people.skeletons import Joints, Summary, joints_of, skeleton_of
from podline.data.sources.unpacking import unpacking
from podline.documents.manifest import SPLITS, TEST, TRAIN
from podline.documents.skeleton import COCO, SKELETON, Skeleton
from podline.errors import SourceError
from podline.frozen import JsonObject
from podline.plurals import plural
from podline.sandbox.pool import Sandbox

LABEL = "people"
"""The label of every annotated image."""
COUNTED, STRAYS = "counted", "strays"
"""Facts about a source, beside its skeleton: log lines, and by split the number of applications of rules, and of
instances of other categories."""
_FOLDERS = ("annotations", "train", "val", "valid", "validation", "dev", "test")
_IMAGE_FOLDERS = (
    "images",
    "imgs",
    "train",
    "val",
    "valid",
    "validation",
    "test",
    "train2017",
    "val2017",
    "test2017",
    "dev",
)
_ROLE = re.compile(r"(?<![a-z])(train|val|dev|test)(?:ing|id|idation)?(?![a-z])")
_NAMES = 50  # of images, which identify their folder
_MOVE = "restore it or move it away"


@dataclass(frozen=True)
class _Annotated(Layout):
    """Annotation files with images, one or one for each split.

    Attributes:
        place: the source.
        files: the annotation files, training first.
        ids: the ``category_id`` values to read.
        joints: number of joints of an annotation.
        known: facts that :meth:`items` finds.
    """

    place: Path
    files: Sequence[AnnotationFile]
    ids: Collection[int | str]
    joints: int
    known: dict[str, Any] = field(default_factory=dict)

    exclusive = True

    @property
    def facts(self) -> JsonObject:
        """Return the skeleton, and what is to be reported; complete after all items."""
        return self.known

    @property
    def words(self) -> str:
        """Describe the annotation files."""
        named = [(file.path.relative_to(self.place), file.images.relative_to(self.place)) for file in self.files]
        return "; ".join(
            f"{path.as_posix()} {f'with images in {images.as_posix()}/' if images.name else 'beside its images'}"
            for path, images in named
        )

    @property
    def splits(self) -> frozenset[str]:
        """Return the splits of several files."""
        return frozenset(file.split for file in self.files) if self.files[1:] else frozenset()

    def reads(self, _file: Found, /) -> bool:
        """Return True: a file that no annotations name is passed over."""
        return True

    def items(self) -> Iterator[Item]:
        """Yield the images, and the annotations without one, of each file."""
        self.known.update({COUNTED: {}, STRAYS: {}})
        for file in self.files:
            find, count = images_in(file.images)
            entries = read_entries(file, self.ids, self.joints)
            if file is self.files[0]:
                skeleton, notes = self.skeleton(entries)
                self.known.update({SKELETON: skeleton.model_dump(mode="json"), NOTES: notes})
            split, images = file.split if self.files[1:] else "", 0
            for entry in entries.images:
                place = find(entry.name) if entry.name else ""
                if isinstance(place, str):
                    entry.refuse(place)
                else:
                    images += 1
                yield _item(entry, b"" if entry.problem or isinstance(place, str) else place, split)
            counted = {
                "annotations of other categories": entries.others,
                "image files that no entry lists": max(0, count - images),
            }
            self.known[COUNTED][split] = counted
            self.known[STRAYS][split] = entries.strays

    @abstractmethod
    def skeleton(self, entries: Entries, /) -> tuple[Skeleton, list[str]]:
        """Return the skeleton, and log lines on how it was found.

        Args:
            entries: the content of the first file.
        """


def _item(entry: ImageEntry, place: Place | bytes, split: str) -> Item:
    size, annotations = (entry.width, entry.height), tuple(entry.annotations)
    people = People(entry.id, entry.name, *size, entry.people, annotations)
    return Item(entry.record, place, LABEL, split, reason=entry.problem, target=people.text(), size=size)


@dataclass(frozen=True)
class Coco(_Annotated):
    """COCO of 2017 or 2014; see :func:`podline.data.people.files.find_coco`."""

    accepts = "COCO's annotations/person_keypoints_train2017.json beside train2017/"

    @classmethod
    def find(cls, files: Files, _settings: Any, /) -> Self:
        """Find COCO's files.

        Raises:
            SourceError: the folder has no such files, or those of both years.
        """
        place = Path(files.place)
        return cls(files.asked, place, find_coco(place), (PERSON,), len(COCO.annotated))

    def skeleton(self, _entries: Entries, /) -> tuple[Skeleton, list[str]]:
        """Return COCO's skeleton."""
        return COCO, []


@dataclass(frozen=True)
class Keypoints(_Annotated):
    """Users' own keypoints.

    Attributes:
        chosen: the joints.
        settings: how to read the annotations.
    """

    chosen: Joints = field(kw_only=True)
    settings: KeypointSettings = field(kw_only=True)

    accepts = "annotations in COCO's format, or DeepLabCut's tables"

    @classmethod
    def find(cls, files: Files, settings: Any, /) -> Self:
        """Find the annotation files, and their joints and images.

        Raises:
            SourceError: there are no annotations, no labelled joints, or no images of them.
        """
        place = Path(files.place)
        chosen = _chosen(place, _summaries(place))
        joints = _same_joints([*chosen.values()], settings.category)
        found = [AnnotationFile(split, each.path, "", _images(place, each)) for split, each in chosen.items()]
        folder = place.parent if place.is_file() else place
        return cls(files.asked, folder, found, joints.ids, len(joints.names), chosen=joints, settings=settings)

    def skeleton(self, entries: Entries, /) -> tuple[Skeleton, list[str]]:
        """Return the skeleton of the categories, completed from the annotations."""
        annotations = (json.loads(text) for entry in entries.images for text in entry.annotations)
        return skeleton_of(self.chosen, self.settings, annotations, self.files[0].path)


def has_annotations(place: Path) -> bool:
    """Return whether a folder or JSON file has annotations in COCO's format, or a folder has DeepLabCut's tables.

    Raises:
        SourceError: a JSON file cannot be read.
    """
    if place.is_file() and not place.name.lower().endswith(".json"):
        return False
    with Sandbox(f"{__name__}:detector") as sandbox:
        return any(sandbox.one(path, limits_of_annotations(size_of(path)), str(path)) for path in _candidates(place))


def detector() -> Callable[[Path], bool]:
    """Return a function that tells whether a file has annotations; runs in a sandbox."""
    return lambda path: document_of(path, "", _MOVE) is not None


def _candidates(place: Path) -> Iterator[Path]:
    """Yield the files that may have annotations, and a folder with DeepLabCut's tables last."""
    if place.is_file():
        yield place
        return
    for folder in (place, *(place / name for name in _FOLDERS)):
        found = sorted(folder.iterdir(), key=lambda path: path.name) if folder.is_dir() else []
        yield from (path for path in found if path.name.lower().endswith(".json") and path.is_file())
    if tables_of(place):
        yield place


def _summaries(place: Path) -> list[Summary]:
    """Return the summaries of a folder's annotation files, or of a single file."""
    if not place.exists():
        raise SourceError(f"{place} does not exist; give the one with annotations in COCO's format")
    if place.is_file() and (remedy := unpacking([str(place)])):
        raise SourceError(f"{place} is an archive vs annotations in COCO's format, or their folder: {remedy}")
    found = list[Summary]()
    for path in _candidates(place):
        if (path != place or place.is_file() or not found) and (document := document_of(path, "", _MOVE)):
            found.append(_summary(path, document))
    return found


def _summary(path: Path, document: Mapping[str, Any]) -> Summary:
    given = document.get("categories")
    categories = [entry for entry in given if isinstance(entry, dict)] if isinstance(given, list) else []
    categories = [entry | {"id": name} for entry in categories if (name := identifier(entry.get("id"))) is not None]
    known = {entry["id"] for entry in categories}
    values = defaultdict[int | str, Counter[int]](Counter)
    annotations = [entry for entry in document["annotations"] if isinstance(entry, dict)]
    for entry in annotations:
        keypoints, category = flat(entry.get("keypoints")), identifier(entry.get("category_id"))
        labelled = isinstance(keypoints, list) and any(seen not in (0, None) for seen in keypoints[2::3])
        if labelled and category is not None and (category in known or not known):
            values[category][len(keypoints)] += 1
    counts = {category: found.most_common(1)[0][0] for category, found in values.items()}
    names = [entry.get("file_name") for entry in document["images"][:_NAMES] if isinstance(entry, dict)]
    return Summary(path, counts, categories, [name for name in names if isinstance(name, str)], len(annotations))


def _chosen(place: Path, summaries: list[Summary]) -> dict[str, Summary]:
    """Return the annotation file of each split; of two files, COCO's val is the test split."""
    if not summaries:
        raise SourceError(
            f"{place} holds no annotations of keypoints vs a JSON file in COCO's format (lists images, annotations and "
            "categories) in it or in annotations/, or DeepLabCut's CollectedData_*.csv in it or in labeled-data/; give "
            "the folder or the file"
        )
    learned = [summary for summary in summaries if summary.counts]
    if not learned:
        told = "; ".join(f"{each.path}: {plural(each.annotations, 'annotation')}" for each in summaries)
        raise SourceError(
            f"nothing to learn: {told}, none of a category in the file with a labelled joint in keypoints (x, y, "
            "visibility of each); annotate some"
        )
    by_role = {role: [each for each in learned if _role(each.path) == role] for role in ("", "train", "val", "test")}
    held_out = by_role["val"] or by_role["test"]
    if len(learned) == 1:
        return {TRAIN: learned[0]}
    if len(by_role["train"]) == 1 and len(held_out) == 1 and not by_role[""]:
        splits = SPLITS if by_role["val"] and len(by_role["test"]) == 1 else (TRAIN, TEST)
        return dict(zip(splits, [*by_role["train"], *held_out, *by_role["test"]], strict=False))
    names = ", ".join(each.path.name for each in learned)
    raise SourceError(
        f"{place} holds {plural(len(learned), 'file')} of keypoints vs one, or one with train and one with val, test "
        f"or each in its name: {names}; give one of them as the source, or move the others out of the folder"
    )


def _role(path: Path) -> str:
    """Return the split in the name of a file or its folder: ``train``, ``val``, ``test`` or an empty string."""
    found = _ROLE.search(path.name.lower()) or _ROLE.search(path.parent.name.lower())
    return found[1].replace("dev", "val") if found else ""


def _images(place: Path, summary: Summary) -> Path:
    """Return the folder of a file's images: the one that has most of the first images."""
    folder, beside = place.parent if place.is_file() else place, summary.path.parent
    candidates = [beside, *(beside / name for name in _IMAGE_FOLDERS), folder]
    candidates += [each / name for each in (folder, folder / "images") for name in _IMAGE_FOLDERS]
    most, best = max(
        ((sum(Path(inside(each, name)).is_file() for name in summary.names), each) for each in candidates),
        key=lambda found: found[0],
    )
    if most:
        return best
    wanted = ", ".join(summary.names[:2]) or "any"
    raise SourceError(
        f"{summary.path}: of its images ({wanted} …) none is beside it, in {folder} or in images/ there; put them into "
        "images/"
    )


def _same_joints(summaries: Sequence[Summary], wanted: str) -> Joints:
    """Return the joints of the training file, and check that the other files have the same."""
    first, *others = (joints_of(summary, wanted) for summary in summaries)
    for summary, joints in zip(summaries[1:], others, strict=True):
        if joints.names != first.names:
            raise SourceError(
                f"{summary.path} has the joints {', '.join(joints.names)} vs {', '.join(first.names)} of "
                f"{summaries[0].path}"
            )
    return first
