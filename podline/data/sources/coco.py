"""Opens COCO person keypoints, 2014 or 2017: folders, the official zip files, or both.

This module decides which images are converted, after every image is decoded. docs/how-to/coco.md lists the rules.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from podline.data.decoded_rows import DecodedRows
from podline.data.fitting import SQUEEZE
from podline.data.jpeg_files import SAMPLED, mean_size
from podline.data.planning import ShardPlans
from podline.data.records import Feature
from podline.data.sandbox.pool import Sandbox
from podline.data.sources.coco_annotations import PERSON, ImageEntry, Listed, read_annotations
from podline.data.sources.coco_decoding import decoded
from podline.data.sources.coco_files import ImagePlace, find_coco
from podline.data.sources.coco_image import BEYOND, MASK_STRIDE, CocoImage, PixelPlace, people_of
from podline.data.sources.coco_masks import check_outlines
from podline.data.sources.coco_records import PeopleByPlace, squares_of, tables_of_people
from podline.data.sources.coco_settings import CocoSettings
from podline.data.sources.coco_truth import publish_truths
from podline.data.sources.decoding import Look
from podline.data.sources.left_out import LeftOut
from podline.data.sources.remote import on_this_machine
from podline.data.sources.source import RawData, Remarks, ShardTables
from podline.documents.manifest import APART, SPLITS, TEST, TRAIN, FileInfo, Quarantined, SourceFile
from podline.documents.skeleton import COCO, SKELETON, Skeleton
from podline.errors import SourceError
from podline.frozen import JsonObject
from podline.plurals import plural
from podline.recipes.datasets import DataSet
from podline.store.contract import Store

TEST_SHARE = 0.2
"""With only one file of annotations, the share of its images that become the test split."""

_UNLABELLED, _TEST = re.compile(r"unlabeled20\d\d"), re.compile(r"(person_keypoints_)?test20\d\d")


@dataclass(frozen=True, kw_only=True)
class CocoSource(RawData):
    """An opened source of COCO's kind, with every image decoded.

    Attributes:
        files: the annotation files, and one entry per place with images: a hash of all their names and checksums.
        quarantined: excluded images, and annotations without an image.
        splits: the existing splits, training first; each image occurs once, ascending by id.
        rules: number of applications of each rule.
        parts: excluded records of each annotation file, and people in it with a joint.
        rows: the decoded images of each annotation file.
        notes: log lines on how the annotations were understood.
    """

    splits: dict[str, tuple[CocoImage, ...]]
    rules: dict[str, int]
    parts: tuple[LeftOut, ...]
    settings: CocoSettings
    rows: tuple[DecodedRows, ...]
    skeleton: Skeleton = COCO
    notes: tuple[str, ...] = ()

    @property
    def counted(self) -> dict[str, int]:
        """Number of applications of each rule."""
        return self.rules

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """Excluded records of each annotation file, and people in it with a joint."""
        return self.parts

    @property
    def facts(self) -> JsonObject:
        """The skeleton, as the manifest stores it."""
        return {SKELETON: self.skeleton.model_dump(mode="json")}

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of every record; coordinates are in pixels of the square."""
        side, places, cells = self.settings.side, self.settings.max_people, self.settings.side // MASK_STRIDE
        return (
            Feature("image", "uint8", (side, side, 3), fit=SQUEEZE if self.settings.keep_jpeg else None),
            Feature("keypoints", "float32", (places, len(self.skeleton.joints), 3)),
            Feature("boxes", "float32", (places, 4)),
            Feature("areas", "float32", (places,)),
            Feature("annotation_ids", "int64", (places,)),
            Feature("ignored", "uint8", (cells, cells)),
            Feature("image_id", "int64", (1,)),
            Feature("size", "int64", (2,)),
            Feature("people", "int64", ()),
        )

    @property
    def sizes(self) -> dict[str, int]:
        """Number of records to convert, by split."""
        return {name: len(images) for name, images in self.splits.items()}

    @property
    def bytes_of_a_file(self) -> int:
        """The mean size, rounded up, of an image file in a record."""
        some = next(iter(self.splits.values()))[:SAMPLED]
        return mean_size(squares_of(some, self.rows, self.settings.side)) if self.settings.keep_jpeg else 0

    def remarks(self) -> Remarks:
        """Return how the annotations were understood."""
        return Remarks(notes=self.notes)

    def publish_truths(self, store: Store, folder: str) -> dict[str, FileInfo]:
        """See :func:`podline.data.sources.coco_truth.publish_truths`."""
        return publish_truths(store, folder, self.dataset, self.splits, self.skeleton)

    def shard_tables(self, plans: ShardPlans, seed: int, folder: Path, /) -> ShardTables:
        """See :meth:`podline.data.sources.source.RawData.shard_tables`."""
        filler = PeopleByPlace(self.rows, self.settings, self.skeleton)
        return filler, tables_of_people(self.splits, plans, seed, folder)


def open_people(dataset: DataSet, source: str, settings: CocoSettings, work: Path) -> CocoSource:
    """Open COCO person keypoints.

    Args:
        dataset: the data set.
        source: a folder, here or ``gs://bucket/prefix``, with ``annotations/person_keypoints_train2017.json`` (or
            ``annotations_trainval2017.zip``) and ``train2017/`` (or ``train2017.zip``), and the same for ``val``, of
            2017 or 2014; one split is enough. If ``test`` exists as well, ``val`` becomes the validation split.
        settings: the form of the records.
        work: the cache folder of sources.

    Raises:
        SourceError: the source has no such files, or no convertible image.
        StoreError: the cache folder cannot be written.
    """
    with (
        on_this_machine(source, work, _needed()) as place,
        tempfile.TemporaryDirectory(prefix="annotations") as folder,
    ):
        with Sandbox("podline.data.sources.coco_annotations:lister") as sandbox:
            listed = read_annotations(sandbox, find_coco(place), Path(folder), [PERSON], len(COCO.annotated))
        return open_listed(dataset, listed, settings, work)


def _needed() -> Callable[[str], bool]:
    """Return a function that tells whether a file of a bucket is needed; test images need annotations before them."""
    annotated = False

    def is_needed(name: str) -> bool:
        nonlocal annotated
        found = _TEST.search(name)
        annotated = annotated or bool(found and found[1])
        return not _UNLABELLED.search(name) and (annotated or not found)

    return is_needed


def open_listed(
    dataset: DataSet,
    listed: Sequence[Listed],
    settings: CocoSettings,
    work: Path,
    skeleton: Skeleton = COCO,
    notes: tuple[str, ...] = (),
) -> CocoSource:
    """Decode the images of annotation files, training first, and decide which images are converted.

    Raises:
        SourceError: no image can be converted.
        StoreError: the cache folder cannot be written.
    """
    parts, files, rows = [_Part(one, settings.max_people) for one in listed], [], []
    for number, part in enumerate(parts):
        found = decoded(part.listed, settings.side, work)
        files += [part.listed.file, part.decide(number, found.looks)]
        rows.append(found.rows)
    if len(parts) == 1:
        splits = _cut(parts[0].images)
    else:
        splits = {part.listed.place.split: part.images for part in parts}
        by_split = {part.listed.place.split: part for part in parts}
        for other, kept_in in APART:
            if other in splits and kept_in in splits:
                splits[other], shared = _apart(splits[other], splits[kept_in], kept_in)
                for image, reason in shared:
                    by_split[other].leave_out(f"{image.name} (image {image.id})", reason)
    counted = sum((part.counted for part in parts), Counter[str]())
    return CocoSource(
        dataset=dataset.name,
        kind=dataset.kind,
        files=tuple(files),
        quarantined=tuple(record for part in parts for record in part.quarantined),
        splits={name: tuple(sorted(splits[name], key=lambda image: image.id)) for name in SPLITS if name in splits},
        rules={rule: counted[rule] for rule in sorted(counted) if counted[rule]},
        parts=tuple(left_out for part in parts for left_out in (part.records, part.people)),
        settings=settings,
        rows=tuple(rows),
        skeleton=skeleton,
        notes=notes,
    )


class _Part:
    """Decides about the images of one annotation file."""

    def __init__(self, listed: Listed, max_people: int) -> None:
        self.listed, self._max_people = listed, max_people
        self.records = LeftOut(f"records of {listed.place.name}")
        self.people = LeftOut(f"instances of {listed.place.name}")
        self.images: list[CocoImage] = []
        self.quarantined: list[Quarantined] = []
        self.counted: Counter[str] = Counter()

    def leave_out(self, record: str, reason: str, people: int = 0) -> None:
        """Add a record to the quarantine."""
        self.quarantined.append(Quarantined(split=self.listed.place.split, record=record, reason=reason))
        self.records.add(reason)
        self.people.add("the image is left out", people)

    def decide(self, number: int, looks: Sequence[Look]) -> SourceFile:
        """Decide about every image of part ``number``; return the entry for its image files."""
        listed, digest = self.listed, hashlib.sha256()
        size = there = annotations = 0
        for entry in listed.entries():
            self.records.read += 1
            self.people.read += entry.people
            annotations += len(entry.annotations)
            problem = entry.problem
            if entry.file is not None:
                look = looks[there]
                digest.update(f"{entry.name} {look.identity}\n".encode())
                pixels = PixelPlace(number, there)
                size, there = size + look.bytes, there + 1
                reason = f"the file {look.reason}" if look.reason else ""
                problem = problem or reason or self._convert(entry, entry.file, look, pixels)
            if problem:
                self.leave_out(entry.record, problem, entry.people)
        if not self.images:
            first = f": {self.quarantined[0].record}: {self.quarantined[0].reason}" if self.quarantined else ""
            entries = plural(self.records.read, "record")
            raise SourceError(f"{listed.place.path}: none of {entries} can be converted{first}")
        self.people.read += listed.strays
        self.people.add("of another category_id", listed.strays)
        if not self.people.read:
            self.people.read = annotations
            self.people.add("no instance has a joint that is labelled", annotations)
        self.counted["annotations of other categories"] += listed.others
        self.counted["image files that no entry lists"] += max(0, listed.image_files - there)
        images = listed.place.images  # images beside the annotations have no folder name
        folder = "" if images == listed.place.path.parent else f"{images.name.removesuffix('.zip')}/"
        return SourceFile(name=f"{folder}*.jpg", bytes=size, sha256=digest.hexdigest())

    def _convert(self, entry: ImageEntry, file: ImagePlace, look: Look, pixels: PixelPlace) -> str:
        """Add a decoded image to the images to convert; return the reason if it is excluded, else an empty string."""
        width, height = (entry.width, entry.height) if entry.width else (look.width, look.height)
        counted: Counter[str] = Counter()
        people, ignored = people_of(entry.annotations, width, height, self._max_people, counted)
        try:
            check_outlines(ignored, width, height)
        except SourceError as error:
            return str(error)
        unseen = entry.people - len(people) - counted[BEYOND]
        self.people.add("none of the joints is labelled and in the image", unseen)
        self.counted.update(counted)
        self.counted.update(_unusual(entry, look))
        place = file._replace(size=look.bytes)
        image = CocoImage(entry.id, entry.name, width, height, place, look.identity, pixels, tuple(entry.annotations))
        self.images.append(image)
        return ""


def _unusual(entry: ImageEntry, look: Look) -> Iterator[str]:
    """Yield the rules that apply to an image."""
    if not entry.annotations:
        yield "images without instances"
    if look.turned:
        yield "images with an EXIF rotation, turned"
    if look.unturned:
        yield "images with an EXIF rotation, left as stored"


def _cut(images: list[CocoImage]) -> dict[str, list[CocoImage]]:
    """Divide a single split into two by the names of files, so that a new image does not move others.

    If a split would be empty, it gets the image nearest to it. Images with the same file and two ids go to the same
    split, the tested one.
    """
    draws = [int.from_bytes(hashlib.sha256(image.name.encode()).digest()[:8], "big") / 2**64 for image in images]
    tested = {at for at, draw in enumerate(draws) if draw < TEST_SHARE}
    if not tested and len(images) > 1:
        tested = {draws.index(min(draws))}
    elif len(tested) == len(images):
        tested.remove(draws.index(max(draws)))
    test = [image for at, image in enumerate(images) if at in tested]
    train, _ = _apart([image for at, image in enumerate(images) if at not in tested], test, TEST)
    kept = {image.id for image in train}
    return {TRAIN: train, TEST: [image for image in images if image.id not in kept]}


def _apart(
    images: list[CocoImage], others: list[CocoImage], split: str
) -> tuple[list[CocoImage], list[tuple[CocoImage, str]]]:
    """Separate images that another split also has by content, and return them with the reasons."""
    contents = {image.identity: image for image in others}
    kept, shared = [], []
    for image in images:
        twin = contents.get(image.identity)
        if twin is None:
            kept.append(image)
        else:
            shared.append((image, f"the same file as {twin.name} of the {split} split"))
    return kept, shared
