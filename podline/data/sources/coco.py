"""Opens COCO person keypoints, 2014 or 2017: folders, the official zip files, or both.

Everything that decides what is converted happens here, before a pixel is decoded: each image's file is read once, its
checksum taken and its markers followed to the end. See docs/coco.md for the rules.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from podline.data.coco_masks import check_outlines
from podline.data.coco_pixels import ready_for_many
from podline.data.coco_records import PeopleByPlace, tables_of_people
from podline.data.coco_truth import category_of, publish_truths
from podline.data.order import random_uniform
from podline.data.planning import ShardPlans
from podline.data.records import Feature
from podline.data.sources.annotation_files import open_annotations
from podline.data.sources.coco_annotations import (
    PEOPLE,
    Category,
    ImageEntry,
    Listing,
    annotation_texts,
    has_joints,
    read_listing,
)
from podline.data.sources.coco_image import MASK_STRIDE, CocoImage
from podline.data.sources.coco_images import open_images
from podline.data.sources.coco_layout import Annotated, find_coco
from podline.data.sources.coco_looks import looked_at
from podline.data.sources.coco_people import BEYOND, limbs_of_no_length, packed, people_of, unpacked
from podline.data.sources.coco_settings import CocoSettings
from podline.data.sources.jpeg import Jpeg
from podline.data.sources.left_out import LeftOut
from podline.data.sources.lookers import Lookers
from podline.data.sources.remote import is_remote, open_remote
from podline.data.sources.source import Remarks, ShardTables, Work
from podline.documents.manifest import FileInfo, Quarantined, SourceFile
from podline.documents.skeleton import COCO, Skeleton
from podline.errors import SourceError
from podline.plurals import plural
from podline.recipes.datasets import DataSet
from podline.store.contract import Store

CLASS_NAMES = ("nobody", "unlabelled_people", "people")
"""What a record's label says of its image: the last has at least one person with a labelled joint."""

TEST_SHARE = 0.2
"""Where there is one file of annotations only: the share of its images that is tested on, by their ids."""

_TURNED = (5, 6, 7, 8)  # EXIF orientations that swap width and height
_COLOURS = {1: "grey images", 4: "CMYK images"}  # by components
_AT_ONCE = 1_000  # images whose people are looked at together


@dataclass(frozen=True)
class CocoSource:
    """A source of COCO's kind, looked through.

    Attributes:
        dataset: ``coco`` or ``coco_sample``.
        files: the annotation files, and a line for each place with images: a hash of all their names and checksums.
        splits: ``train`` and ``test``; each image once, ascending by id.
        quarantined: images, and annotations without an image, that are left out.
        counted: how often each rule applied.
        side: of the square that images are put into, in pixels.
        max_people: places for people in a record.
        left_out: records of each file of annotations, and people in it that have a joint.
        keep_files: whether records hold the images' files instead of pixels.
        skeleton: of the people.
        category: what they are called.
        notes: what there is to say of how the annotations were understood.
    """

    dataset: str
    files: tuple[SourceFile, ...]
    splits: dict[str, tuple[CocoImage, ...]]
    quarantined: tuple[Quarantined, ...]
    counted: dict[str, int]
    side: int
    max_people: int
    left_out: tuple[LeftOut, ...] = ()
    keep_files: bool = False
    skeleton: Skeleton = COCO
    category: str = "person"
    notes: tuple[str, ...] = ()

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the label says."""
        return CLASS_NAMES

    @property
    def extra_class_names(self) -> dict[str, tuple[str, ...]]:
        """There is no further label."""
        return {}

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of every record; coordinates are in pixels of the square."""
        places, cells = self.max_people, self.side // MASK_STRIDE
        return (
            Feature("image", "uint8", (self.side, self.side, 3), fit="annotated" if self.keep_files else None),
            Feature("keypoints", "float32", (places, len(self.skeleton.joints), 3)),
            Feature("boxes", "float32", (places, 4)),
            Feature("areas", "float32", (places,)),
            Feature("annotation_ids", "int64", (places,)),
            Feature("ignored", "uint8", (cells, cells)),
            Feature("image_id", "int64", (1,)),
            Feature("size", "int64", (2,)),
            Feature("people", "int64", ()),
            Feature("label", "int64", ()),
        )

    @property
    def sizes(self) -> dict[str, int]:
        """Records of each split to convert."""
        return {name: len(images) for name, images in self.splits.items()}

    @property
    def bytes_of_a_file(self) -> int:
        """Of an image to convert that is kept, on average, rounded up."""
        if not self.keep_files:
            return 0
        sizes = [image.place.size for images in self.splits.values() for image in images]
        return -(-sum(sizes) // len(sizes))

    @property
    def read(self) -> int:
        """Records that the raw files hold: images, and annotations that belong to none."""
        return sum(self.sizes.values()) + len(self.quarantined)

    def looked_at(self) -> tuple[CocoSource, Remarks]:
        """The source itself: every image was looked at when it was opened."""
        return self, Remarks(notes=self.notes)

    def publish_truths(self, store: Store, folder: str) -> dict[str, FileInfo]:
        """See :func:`podline.data.coco_truth.publish_truths`."""
        category = category_of(self.skeleton, self.category)
        return publish_truths(store, folder, self.dataset, self.splits, category)

    def shard_tables(self, plans: ShardPlans, seed: int, folder: Path, work: Work) -> ShardTables:
        """See :class:`podline.data.coco_records.PeopleByPlace`."""
        filler = PeopleByPlace(self.side, self.max_people, work.threads, self.skeleton)
        return filler, tables_of_people(self.splits, plans, seed, folder)


@dataclass
class _Part:
    """What becomes of one file of annotations."""

    records: LeftOut
    people: LeftOut
    images: list[CocoImage] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)


@contextlib.contextmanager
def _collector_at_rest() -> Iterator[None]:
    """No search for cycles: nothing that is made here has any, all of it stays, and looking through it takes time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def open_people(dataset: DataSet, source: str, settings: CocoSettings, work: Path) -> CocoSource:
    """Opens COCO person keypoints as a data set; see :func:`open_coco`."""
    opened = open_coco(dataset.name, source, settings.side, settings.max_people, work)
    return replace(opened, keep_files=settings.keep_files)


@_collector_at_rest()
def open_coco(dataset: str, uri: str, side: int, max_people: int, work: Path | None = None) -> CocoSource:
    """Opens COCO person keypoints.

    Args:
        dataset: what it is called.
        uri: a folder, here or ``gs://bucket/prefix``, with ``annotations/person_keypoints_train2017.json`` (or
            ``annotations_trainval2017.zip``) and ``train2017/`` (or ``train2017.zip``), and the same of ``val``, of
            2017 or of 2014; one split is enough.
        side: of the square that images are put into, in pixels.
        max_people: places for people in a record.
        work: the cache folder of sources, where it is kept what images in a bucket are; None is nowhere.

    Raises:
        SourceError: nothing of the kind is there, or nothing that can be converted.
    """
    found = find_coco(open_remote(uri) if is_remote(uri) else Path(uri).expanduser().resolve())
    return open_listed(dataset, map(read_annotations, found), side, max_people, work, Understood(), tested_by_id)


class Listed(NamedTuple):
    """A file of annotations, read."""

    place: Annotated
    listing: Listing
    file: SourceFile


class Understood(NamedTuple):
    """How annotations are understood; see the attributes of the same names of :class:`CocoSource`."""

    category: Category = PEOPLE
    name: str = "person"
    skeleton: Skeleton = COCO
    notes: tuple[str, ...] = ()


def read_annotations(place: Annotated, category: Category = PEOPLE) -> Listed:
    """Reads a file of annotations.

    Raises:
        SourceError: see :func:`podline.data.sources.coco_annotations.read_listing`.
    """
    with open_annotations(place.annotations, place.member) as stream:
        listing = read_listing(stream, stream.shown, category)
        file = SourceFile(name=place.file, bytes=stream.size, sha256=stream.digest.hexdigest())
    return Listed(place, listing, file)


def tested_by_id(images: Sequence[CocoImage]) -> Sequence[bool]:
    """Which images of a single file are tested on, by their ids alone."""
    tested = random_uniform(0, "coco test split", 0, [image.id for image in images]) < TEST_SHARE
    return tested.tolist()


def open_listed(
    dataset: str,
    listed: Iterable[Listed],
    side: int,
    max_people: int,
    work: Path | None,
    understood: Understood,
    tested: Callable[[Sequence[CocoImage]], Sequence[bool]],
) -> CocoSource:
    """Looks through the images of annotations that were read.

    Args:
        dataset: what it is called.
        listed: the files of annotations, of training first; each is done with before the next is read.
        side: of the square that images are put into, in pixels.
        max_people: places for people in a record.
        work: see :func:`open_coco`.
        understood: how annotations are understood.
        tested: which images are tested on, if there is one file alone.

    Raises:
        SourceError: nothing can be converted.
    """
    ready_for_many()
    parts, files, names = [], [], []
    with Lookers() as lookers:
        for place, listing, file in listed:
            part, images = _look_through(place, listing, max_people, lookers, work, understood)
            parts.append(part)
            files += [file, images]
            names.append(place.split)
    counted = sum((part.counted for part in parts), Counter[str]())
    quarantined = [record for part in parts for record in part.quarantined]
    if len(parts) == 1:
        splits = _cut(parts[0].images, tested)
    else:
        splits = {name: part.images for name, part in zip(names, parts, strict=True)}
        splits["train"], shared = _apart(splits["train"], splits["test"])
        quarantined += shared
        parts[0].records.add("the test split has it too", len(shared))
    return CocoSource(
        dataset,
        tuple(files),
        {name: tuple(sorted(splits[name], key=lambda image: image.id)) for name in ("train", "test")},
        tuple(quarantined),
        {rule: counted[rule] for rule in sorted(counted) if counted[rule]},
        side,
        max_people,
        tuple(left_out for part in parts for left_out in (part.records, part.people)),
        skeleton=understood.skeleton,
        category=understood.name,
        notes=understood.notes,
    )


def _look_through(
    found: Annotated, listing: Listing, max_people: int, lookers: Lookers, work: Path | None, understood: Understood
) -> tuple[_Part, SourceFile]:
    """Decides about every image of a file of annotations."""
    of_file = f"of {found.file}"
    part = _Part(LeftOut(f"records {of_file}"), LeftOut(f"{understood.skeleton.noun.many} {of_file}"))
    images, digest, size, there = open_images(found.images), hashlib.sha256(), 0, 0

    def leave_out(record: str, reason: str, people: int = 0) -> None:
        part.quarantined.append(Quarantined(split=found.split, record=record, reason=reason))
        part.records.add(reason)
        part.people.add("the image is left out", people)

    looks = looked_at(images, [entry.name for entry in listing.images], lookers, work)
    for entry, look in zip(listing.images, looks, strict=True):
        if look.place is not None:
            digest.update(f"{entry.name} {look.place.size} {look.place.crc}\n".encode())
            size, there = size + look.place.size, there + 1
        if look.jpeg is not None and not entry.width:
            entry.width, entry.height = look.jpeg.width, look.jpeg.height
        with_joints = sum(map(has_joints, entry.annotations))
        part.people.read += with_joints
        problem = entry.problem or look.problem
        if not problem and look.jpeg is not None:
            problem = _misfit(entry, look.jpeg)
        if problem or look.place is None or look.jpeg is None:
            leave_out(entry.record, problem, with_joints)
            continue
        counted: Counter[str] = Counter()
        people, ignored = people_of(entry.annotations, entry.width, entry.height, max_people, counted)
        try:
            check_outlines(ignored, entry.width, entry.height)
        except SourceError as error:
            leave_out(entry.record, str(error), with_joints)
            continue
        placed = len(people) + counted[BEYOND]
        part.people.add("none of the joints is labelled and in the image", with_joints - placed)
        _count_looks(entry, look.jpeg, counted)
        part.counted.update(counted)
        part.images.append(
            CocoImage(
                id=entry.id,
                name=entry.name,
                width=entry.width,
                height=entry.height,
                place=look.place,
                people=packed(people),
                ignored=json.dumps(ignored),
                annotations=annotation_texts(entry.annotations),
            )
        )
    if not part.images:
        first = f": {part.quarantined[0].record}: {part.quarantined[0].reason}" if part.quarantined else ""
        raise SourceError(
            f"{found.annotations}: none of {plural(len(listing.images), 'image')} can be converted{first}"
        )
    for record, reason in listing.orphans:
        leave_out(record, reason)
    part.records.read = len(part.images) + len(part.quarantined)
    part.people.read += listing.strays.total()
    for reason, people in listing.strays.items():
        part.people.add(reason, people)
    if not part.people.read:
        part.people.read = sum(len(entry.annotations) for entry in listing.images)
        part.people.add(f"{understood.skeleton.noun.nobody} has a joint that is labelled", part.people.read)
    for start in range(0, len(part.images), _AT_ONCE):
        people = unpacked(
            b"".join(image.people for image in part.images[start : start + _AT_ONCE]), understood.category.joints
        )
        part.counted["limbs of no length"] += limbs_of_no_length(people, understood.skeleton)
    part.counted["annotations of other things than people"] += listing.other_categories
    part.counted["image files that no entry lists"] += max(0, images.count() - there)
    name = found.images.name.removesuffix(".zip")
    return part, SourceFile(name=f"{name}/*.jpg", bytes=size, sha256=digest.hexdigest())


def _misfit(entry: ImageEntry, jpeg: Jpeg) -> str:
    """Says so if an image has not the size that was annotated, as it is stored or turned as its EXIF says."""
    stored, annotated = (jpeg.width, jpeg.height), (entry.width, entry.height)
    if stored == annotated or (stored[::-1] == annotated and jpeg.orientation in _TURNED):
        return ""
    return f"the file has {stored[0]}×{stored[1]} pixels vs {annotated[0]}×{annotated[1]} in the annotations"


def _count_looks(entry: ImageEntry, jpeg: Jpeg, counted: Counter[str]) -> None:
    """Counts what is unusual of an image; of its orientation, what :func:`podline.data.coco_pixels.decode` will do."""
    if not entry.annotations:
        counted["images without people"] += 1
    if jpeg.components in _COLOURS:
        counted[_COLOURS[jpeg.components]] += 1
    if jpeg.orientation != 1:
        turned = (jpeg.width, jpeg.height) != (entry.width, entry.height)
        counted[f"images with an EXIF rotation, {'turned' if turned else 'left as stored'}"] += 1


def _cut(
    images: list[CocoImage], tested: Callable[[Sequence[CocoImage]], Sequence[bool]]
) -> dict[str, list[CocoImage]]:
    """One split cut in two."""
    splits: dict[str, list[CocoImage]] = {"train": [], "test": []}
    for image, test in zip(images, tested(images), strict=True):
        splits["test" if test else "train"].append(image)
    shared_with_test, _ = _apart(splits["train"], splits["test"])
    # The same file under two ids lies on one side: with the one that is tested on.
    kept = {image.id for image in shared_with_test}
    splits["test"] += [image for image in splits["train"] if image.id not in kept]
    return splits | {"train": shared_with_test}


def _apart(train: list[CocoImage], test: list[CocoImage]) -> tuple[list[CocoImage], list[Quarantined]]:
    """Training images without those that are in the test split as well, by id or by content."""
    ids = {image.id: image for image in test}
    contents = {(image.place.size, image.place.crc): image for image in test}
    kept, shared = [], []
    for image in train:
        twin = ids.get(image.id) or contents.get((image.place.size, image.place.crc))
        if twin is None:
            kept.append(image)
        else:
            reason = f"the same {'id' if twin.id == image.id else 'file'} as {twin.name} of the test split"
            shared.append(Quarantined(split="train", record=f"{image.name} (image {image.id})", reason=reason))
    return kept, shared
