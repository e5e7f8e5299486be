"""Opens COCO person keypoints, 2014 or 2017: folders, the official zip files, or both.

Everything that decides what is converted happens here, once every image is decoded. See docs/coco.md for the rules.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from podline.data.decoded_rows import DecodedRows
from podline.data.planning import ShardPlans
from podline.data.records import Feature
from podline.data.sources.annotation_files import Listed, read_annotations
from podline.data.sources.coco_annotations import PEOPLE, Category, ImageEntry, annotation_texts, has_joints
from podline.data.sources.coco_decoding import decoded
from podline.data.sources.coco_image import MASK_STRIDE, CocoImage, PixelPlace
from podline.data.sources.coco_layout import Annotated, find_coco
from podline.data.sources.coco_masks import check_outlines
from podline.data.sources.coco_people import BEYOND, limbs_of_no_length, packed, people_of, unpacked
from podline.data.sources.coco_records import PeopleByPlace, tables_of_people
from podline.data.sources.coco_settings import CocoSettings
from podline.data.sources.coco_truth import category_of, publish_truths
from podline.data.sources.decoding import Look
from podline.data.sources.left_out import LeftOut
from podline.data.sources.remote import on_this_machine
from podline.data.sources.source import Remarks, ShardTables, Work
from podline.documents.manifest import FileInfo, Quarantined, SourceFile
from podline.documents.skeleton import COCO, Skeleton
from podline.errors import SourceError
from podline.plurals import plural
from podline.recipes.datasets import DataSet
from podline.store.contract import Store
from podline.store.prefetch import in_order

CLASS_NAMES = ("nobody", "unlabelled_people", "people")
"""What a record's label says of its image: the last has at least one person with a labelled joint."""

TEST_SHARE = 0.2
"""Where there is one file of annotations only: the share of its images that is tested on."""

_COLOURS = {1: "grey images", 4: "CMYK images"}  # by components
_AT_ONCE = 1_000  # images whose people are looked at together
_NOT_NEEDED = re.compile(r"(?:test|unlabeled)20\d\d")  # of what lies beside COCO's people in a bucket


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
        rows: decoded images, of each file of annotations.
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
    rows: tuple[DecodedRows, ...] = ()
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
        """Return the source itself: every image was looked at when it was opened."""
        return self, Remarks(notes=self.notes)

    def publish_truths(self, store: Store, folder: str) -> dict[str, FileInfo]:
        """See :func:`podline.data.sources.coco_truth.publish_truths`."""
        category = category_of(self.skeleton, self.category)
        return publish_truths(store, folder, self.dataset, self.splits, category)

    def shard_tables(self, plans: ShardPlans, seed: int, folder: Path, _work: Work) -> ShardTables:
        """See :meth:`podline.data.sources.source.RawData.shard_tables`; decoded images are where workers see them."""
        filler = PeopleByPlace(self.rows, self.side, self.max_people, self.keep_files, self.skeleton)
        return filler, tables_of_people(self.splits, plans, seed, folder)


@dataclass
class _Part:
    """What becomes of one file of annotations."""

    records: LeftOut
    people: LeftOut
    images: list[CocoImage] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    annotations: int = 0


def open_people(dataset: DataSet, source: str, settings: CocoSettings, work: Path) -> CocoSource:
    """Open COCO person keypoints as a data set; see :func:`open_coco`."""
    opened = open_coco(dataset.name, source, settings.side, settings.max_people, work)
    return replace(opened, keep_files=settings.keep_files)


def open_coco(dataset: str, uri: str, side: int, max_people: int, work: Path) -> CocoSource:
    """Open COCO person keypoints.

    Args:
        dataset: what it is called.
        uri: a folder, here or ``gs://bucket/prefix``, with ``annotations/person_keypoints_train2017.json`` (or
            ``annotations_trainval2017.zip``) and ``train2017/`` (or ``train2017.zip``), and the same of ``val``, of
            2017 or of 2014; one split is enough.
        side: of the square that images are put into, in pixels.
        max_people: places for people in a record.
        work: the cache folder of sources.

    Raises:
        SourceError: nothing of the kind is there, or nothing that can be converted.
        StoreError: the cache folder cannot be written.
    """
    with (
        on_this_machine(uri, work, lambda name: not _NOT_NEEDED.search(name)) as place,
        annotations_of_all(find_coco(place)) as listed,
    ):
        return open_listed(dataset, listed, side, max_people, work, Understood())


@contextlib.contextmanager
def annotations_of_all(found: Sequence[Annotated], category: Category = PEOPLE) -> Iterator[list[Listed]]:
    """Yield what some files of annotations list; it is deleted when the body ends.

    Raises:
        SourceError: see :func:`podline.data.sources.annotation_files.read_annotations`.
    """
    with tempfile.TemporaryDirectory(prefix="annotations") as folder:

        def read(place: Annotated) -> Listed:
            (Path(folder) / place.split).mkdir()
            return read_annotations(place, Path(folder) / place.split, category)

        yield list(in_order(read, found, len(found)))


class Understood(NamedTuple):
    """How annotations are understood; see the attributes of the same names of :class:`CocoSource`."""

    category: Category = PEOPLE
    name: str = "person"
    skeleton: Skeleton = COCO
    notes: tuple[str, ...] = ()


def open_listed(
    dataset: str, listed: Sequence[Listed], side: int, max_people: int, work: Path, understood: Understood
) -> CocoSource:
    """Decode the images of annotations that were read, and decides about each.

    Args:
        dataset: what it is called.
        listed: the files of annotations, of training first.
        side: of the square that images are put into, in pixels.
        max_people: places for people in a record.
        work: the cache folder of sources.
        understood: how annotations are understood.

    Raises:
        SourceError: nothing can be converted.
        StoreError: the cache folder cannot be written.
    """
    parts, files, rows = [], [], []
    for number, one in enumerate(listed):
        found = decoded(one, side, work)
        part, images = _decided(one, number, found.looks, max_people, understood)
        parts.append(part)
        files += [one.file, images]
        rows.append(found.rows)
    counted = sum((part.counted for part in parts), Counter[str]())
    quarantined = [record for part in parts for record in part.quarantined]
    if len(parts) == 1:
        splits = _cut(parts[0].images)
    else:
        splits = {one.place.split: part.images for one, part in zip(listed, parts, strict=True)}
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
        tuple(rows),
        tuple(left_out for part in parts for left_out in (part.records, part.people)),
        skeleton=understood.skeleton,
        category=understood.name,
        notes=understood.notes,
    )


def _decided(
    listed: Listed, number: int, looks: Sequence[Look], max_people: int, understood: Understood
) -> tuple[_Part, SourceFile]:
    """Decides about every image of a file of annotations."""
    file, split = listed.place.file, listed.place.split
    part = _Part(LeftOut(f"records of {file}"), LeftOut(f"{understood.skeleton.noun.many} of {file}"))
    digest, size, entries, there = hashlib.sha256(), 0, 0, 0

    def leave_out(record: str, reason: str, people: int = 0) -> None:
        part.quarantined.append(Quarantined(split=split, record=record, reason=reason))
        part.records.add(reason)
        part.people.add("the image is left out", people)

    for entry in listed.entries():
        with_joints = sum(map(has_joints, entry.annotations))
        part.people.read += with_joints
        entries += 1
        part.annotations += len(entry.annotations)
        problem = entry.problem
        if entry.file is not None:
            look = looks[there]
            digest.update(f"{entry.name} {look.bytes} {look.crc}\n".encode())
            pixels = PixelPlace(number, there)
            size, there = size + look.bytes, there + 1
            reason = f"the file {look.reason}" if look.reason else ""
            problem = problem or reason or _convert(part, entry, look, pixels, max_people)
        if problem:
            leave_out(entry.record, problem, with_joints)
    if not part.images:
        first = f": {part.quarantined[0].record}: {part.quarantined[0].reason}" if part.quarantined else ""
        raise SourceError(f"{listed.place.annotations}: none of {plural(entries, 'image')} can be converted{first}")
    for record, reason in listed.orphans:
        leave_out(record, reason)
    part.records.read = len(part.images) + len(part.quarantined)
    part.people.read += listed.strays.total()
    for reason, people in listed.strays.items():
        part.people.add(reason, people)
    if not part.people.read:
        part.people.read = part.annotations
        part.people.add(f"{understood.skeleton.noun.nobody} has a joint that is labelled", part.people.read)
    for start in range(0, len(part.images), _AT_ONCE):
        people = b"".join(image.people for image in part.images[start : start + _AT_ONCE])
        unlimbed = limbs_of_no_length(unpacked(people, understood.category.joints), understood.skeleton)
        part.counted["limbs of no length"] += unlimbed
    part.counted["annotations of other things than people"] += listed.other_categories
    part.counted["image files that no entry lists"] += max(0, listed.image_files - there)
    name = listed.place.images.name.removesuffix(".zip")
    return part, SourceFile(name=f"{name}/*.jpg", bytes=size, sha256=digest.hexdigest())


def _convert(part: _Part, entry: ImageEntry, look: Look, pixels: PixelPlace, max_people: int) -> str:
    """Add a decoded image to those that are converted; return why it cannot be, or nothing."""
    file = entry.file
    if file is None:
        return "the file cannot be decoded"
    width, height = (entry.width, entry.height) if entry.width else (look.width, look.height)
    counted: Counter[str] = Counter()
    people, ignored = people_of(entry.annotations, width, height, max_people, counted)
    try:
        check_outlines(ignored, width, height)
    except SourceError as error:
        return str(error)
    placed = len(people) + counted[BEYOND]
    joints = sum(map(has_joints, entry.annotations))
    part.people.add("none of the joints is labelled and in the image", joints - placed)
    part.counted.update(counted)
    part.counted.update(_unusual(entry, look, (width, height)))
    part.images.append(
        CocoImage(
            id=entry.id,
            name=entry.name,
            width=width,
            height=height,
            place=file._replace(size=look.bytes, crc=look.crc),
            pixels=pixels,
            people=packed(people),
            ignored=json.dumps(ignored),
            annotations=annotation_texts(entry.annotations),
        )
    )
    return ""


def _unusual(entry: ImageEntry, look: Look, size: tuple[int, int]) -> Iterator[str]:
    """Yield the rules that an image's kind meets; its orientation is that of :func:`coco_pixels.decode`."""
    if not entry.annotations:
        yield "images without people"
    if look.components in _COLOURS:
        yield _COLOURS[look.components]
    if look.orientation != 1:
        as_stored = size == (look.width, look.height)
        yield f"images with an EXIF rotation, {'left as stored' if as_stored else 'turned'}"


def _cut(images: list[CocoImage]) -> dict[str, list[CocoImage]]:
    """One split cut in two, by the names of files alone: a new image changes no other one's split.

    Of so few images that a split would be empty, the one nearest to it is put there. The same file under two ids lies
    on one side: with the one that is tested on.
    """
    draws = [int.from_bytes(hashlib.sha256(image.name.encode()).digest()[:8], "big") / 2**64 for image in images]
    tested = {at for at, draw in enumerate(draws) if draw < TEST_SHARE}
    if not tested and len(images) > 1:
        tested = {draws.index(min(draws))}
    elif len(tested) == len(images):
        tested.remove(draws.index(max(draws)))
    test = [image for at, image in enumerate(images) if at in tested]
    train, _ = _apart([image for at, image in enumerate(images) if at not in tested], test)
    kept = {image.id for image in train}
    return {"train": train, "test": [image for image in images if image.id not in kept]}


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
