"""Opens images with people as a source: COCO's own, or users' keypoints. docs/how-to/coco.md lists the rules."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from podline.data.images.arrow_file import write_rows
from podline.data.images.image_table import ImageTable, Numbers
from podline.data.images.opening import ImagesSource, open_images
from podline.data.people.doubts import doubts
from podline.data.people.image import BEYOND, People, chosen
from podline.data.people.layouts import COUNTED, STRAYS
from podline.data.people.masks import check_outlines
from podline.data.people.records import TABLE, PeopleByPlace, features_of
from podline.data.people.settings import PeopleSettings
from podline.data.people.truth import publish_truths
from podline.data.planning import ShardPlans, shard_order
from podline.data.records import Feature
from podline.data.sources.left_out import LeftOut
from podline.data.sources.source import ShardTables
from podline.documents.manifest import FileInfo, SourceFile
from podline.documents.skeleton import SKELETON, Skeleton
from podline.errors import SourceError
from podline.frozen import JsonObject
from podline.recipes.datasets import DataSet
from podline.store.contract import Store

_DOUBTED = 2_000  # images that show what the numbers of annotations mean
_UNLABELLED, _TEST = re.compile(r"unlabeled20\d\d"), re.compile(r"(person_keypoints_)?test20\d\d")


class Inspected(NamedTuple):
    """The annotations of all images.

    Attributes:
        rules: image → number of applications of each rule.
        instances: number of annotations with a joint, by image, (n,).
        unseen: how many of them have no joint in the image, (n,).
        annotations: number of all annotations, by image, (n,).
        doubts: lines on annotations that are hardly meant as they are read.
    """

    rules: dict[int, Counter[str]]
    instances: Numbers
    unseen: Numbers
    annotations: Numbers
    doubts: list[str]


@dataclass(frozen=True, kw_only=True)
class PeopleSource(ImagesSource):
    """A source of images with people.

    Attributes:
        settings: the form of the records.
        skeleton: the joints of the people.
        inspected: their annotations.
    """

    grows: ClassVar[bool] = False

    settings: PeopleSettings
    skeleton: Skeleton
    inspected: Inspected

    @property
    def facts(self) -> JsonObject:
        """The skeleton, as the manifest stores it."""
        return {SKELETON: self.skeleton.model_dump(mode="json")}

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of every record."""
        return (self.image_feature, *features_of(self.settings, self.skeleton))

    @property
    def warnings(self) -> dict[str, int]:
        """Return the doubts about images and annotations."""
        return {**super().warnings, **dict.fromkeys(self.inspected.doubts, 1)}

    @property
    def counted(self) -> dict[str, int]:
        """Return the number of applications of each rule."""
        kept = self.images.kept()
        found = Counter(super().counted)
        for number, rules in self.inspected.rules.items():
            if kept[number]:
                found.update(rules)
        for rules in json.loads(self.images.about["facts"])[COUNTED].values():
            found.update(rules)
        found["left as stored in spite of EXIF"] = int(np.count_nonzero(self.images.column("unturned") & kept))
        return {rule: found[rule] for rule in sorted(found) if found[rule]}

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """The left-out images of each split, and instances of each annotation file."""
        strays, files = json.loads(self.images.about["facts"])[STRAYS], self.images.texts("split")
        instances, unseen, annotations = self.inspected[1:4]
        parts = list[LeftOut]()
        for split in files.values:
            mine = files.are({split})
            part = LeftOut(f"instances of the {split} split" if split else "instances", int(instances[mine].sum()))
            part.add("the image is left out", int(instances[mine & self.images.left_out].sum()))
            part.add("none of the joints is labelled and in the image", int(unseen[mine & ~self.images.left_out].sum()))
            part.read += strays[split]
            part.add("of another category_id", strays[split])
            if not part.read:
                part.read = int(annotations[mine].sum())
                part.add("no instance has a joint that is labelled", part.read)
            parts.append(part)
        return (*super().left_out, *parts)

    def publish_truths(self, store: Store, folder: str) -> dict[str, FileInfo]:
        """See :func:`podline.data.people.truth.publish_truths`."""
        splits = {split: self.people(self.images.ordered(self.images.kept(split))) for split in self.sizes}
        return publish_truths(store, folder, self.dataset, splits, self.skeleton)

    def people(self, numbers: Numbers) -> Iterator[People]:
        """Yield the people of some images."""
        return (People.of(text, width, height) for _, width, height, text in self._targets(numbers))

    def shard_tables(self, plans: ShardPlans, _seed: int | None, folder: Path, /) -> ShardTables:
        """See :meth:`RawData.shard_tables`; records are ordered as those of all images."""
        filler = PeopleByPlace(self.splits[0].pixels, self.settings.shape, None, self.settings, self.skeleton)
        numbers = {split: self.images.ordered(self.images.kept(split)) for split in self.sizes}

        def tables() -> Iterator[Path]:
            for plan in plans:
                path, mine = folder / filler.table(plan), numbers[plan.split]
                write_rows(path, TABLE, self._targets(mine[shard_order(None, plan, len(mine))]), {})
                yield path

        return filler, tables()

    def _targets(self, numbers: Numbers) -> Iterator[tuple[int, int, int, str]]:
        """Yield row, width, height and target of some images."""
        columns = (self.images.column(name)[numbers].tolist() for name in ("row", "width", "height"))
        return zip(*columns, (self.images.text("target", number) for number in numbers.tolist()), strict=True)


def open_people(dataset: DataSet, source: str, settings: PeopleSettings, work: Path) -> PeopleSource:
    """Open a source of images with people.

    Args:
        dataset: the data set.
        source: a folder or file, here or ``gs://bucket/prefix``; see :mod:`podline.data.people.layouts`.
        settings: the form of the records, and how to read the annotations.
        work: the cache folder of sources.

    Raises:
        SourceError: the source has no annotations, or a split has no image that can be converted.
        StoreError: the cache folder cannot be written.
    """
    found, wanted = list[Inspected](), _needed(of_coco=settings.official)
    opened = open_images(
        dataset, source, settings, work, wanted, lambda images: found.append(_inspected(images, settings))
    )
    facts = json.loads(opened.images.about["facts"])
    text = json.dumps(facts[SKELETON], sort_keys=True).encode()
    file = SourceFile(name="skeleton", bytes=len(text), sha256=hashlib.sha256(text).hexdigest())
    shared = {each.name: getattr(opened, each.name) for each in fields(opened)}
    shared |= {"files": (*opened.files, file)}
    return PeopleSource(**shared, skeleton=Skeleton.model_validate(facts[SKELETON]), inspected=found[0])


def _needed(*, of_coco: bool) -> Callable[[str], bool]:
    """Return a function that tells whether a file is needed; COCO's test images need annotations before them."""
    annotated = not of_coco

    def is_needed(name: str) -> bool:
        nonlocal annotated
        found = _TEST.search(name)
        annotated = annotated or bool(found and found[1])
        return not (of_coco and _UNLABELLED.search(name)) and (annotated or not found)

    return is_needed


def _inspected(images: ImageTable, settings: PeopleSettings) -> Inspected:
    """Inspect the annotations of all images, and leave out those whose outlines cannot be drawn."""
    whole = images.is_whole() & (images.column("row") >= 0)
    sizes = zip(images.column("width").tolist(), images.column("height").tolist(), strict=True)
    rules, counts = dict[int, Counter[str]](), np.zeros((3, len(images)), np.int64)
    for number, size in enumerate(sizes):
        image = People.of(images.text("target", number), *size)
        instances, unseen, counted = image.instances, 0, Counter[str]()
        if whole[number]:
            people, ignored = chosen(image, settings.max_people, counted)
            unseen = instances - len(people) - counted[BEYOND]
            counted["images without instances"] += not image.annotations
            rules[number] = +counted
            try:
                check_outlines(ignored, image.width, image.height)
            except SourceError as error:
                images.leave_out(number, str(error))
        counts[:, number] = instances, unseen, len(image.annotations)
    instances, unseen, annotations = counts
    found = [] if settings.official else _doubts(images, np.flatnonzero(whole & (instances > 0)))
    return Inspected(rules, instances, unseen, annotations, found)


def _doubts(images: ImageTable, numbers: Numbers) -> list[str]:
    """Return the doubts about annotated images, by some of them."""
    some = numbers[:: max(1, len(numbers) // _DOUBTED)]
    width, height, unturned = (images.column(name)[some].tolist() for name in ("width", "height", "unturned"))
    texts = (images.text("target", number) for number in some.tolist())
    people = (People.of(*given) for given in zip(texts, width, height, strict=True))
    return doubts(zip(people, unturned, strict=True))
