"""Open images with people as a source: COCO's own, or users' keypoints. docs/how-to/coco.md lists the rules."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.base.errors import SourceError
from podline.base.frozen import JsonObject
from podline.data.images.arrow_file import encoded, write_rows
from podline.data.images.image_table import ImageTable, Numbers
from podline.data.images.opening import open_images
from podline.data.people.doubts import doubts
from podline.data.people.image import BEYOND, People, chosen
from podline.data.people.layouts import COUNTED, STRAYS
from podline.data.people.masks import check_outlines
from podline.data.people.records import TABLE, PeopleByPlace, features_of
from podline.data.people.settings import PeopleSettings
from podline.data.people.truth import publish_truths
from podline.data.planning import ShardPlans
from podline.data.reasons import Reason
from podline.data.shards import SourceSplit
from podline.data.sources.left_out import LeftOut
from podline.data.sources.source import Source
from podline.documents.manifest import FileInfo, SourceFile
from podline.documents.skeleton import ONE, SEVERAL, SKELETON, SUBJECTS, Skeleton
from podline.recipes.datasets import DataSet
from podline.store.contract import Store

_DOUBTED = 2_000  # largest number of images whose annotations are checked for plausibility
_UNLABELLED, _TEST = re.compile(r"unlabeled20\d\d"), re.compile(r"(person_keypoints_)?test20\d\d")


@dataclass(frozen=True, kw_only=True)
class PeopleSource(Source):
    """A source whose targets are the people in its images."""

    settings: PeopleSettings
    skeleton: Skeleton

    def targets_of(self, split: SourceSplit) -> tuple[npt.NDArray[Any], list[npt.NDArray[Any]]]:
        """Return a digest of each image's annotations; see :meth:`Source.targets_of`."""
        annotations = (encoded(self.images.text("target", number)) for number in split.numbers.tolist())
        texts = np.array([f"annotations {hashlib.sha256(text).hexdigest()[:32]}".encode() for text in annotations])
        return texts, [texts]

    def shard_tables(self, plans: ShardPlans, folder: Path, /) -> tuple[PeopleByPlace, Iterator[Path]]:
        """See :meth:`Source.shard_tables`."""
        filler = PeopleByPlace(self.splits[0].pixels, self.settings.shape, self.settings, self.skeleton)
        numbers = {split.name: split.numbers for split in self.splits}

        def tables() -> Iterator[Path]:
            for plan in plans:
                path, mine = folder / filler.table(plan), numbers[plan.split][plan.first : plan.first + plan.records]
                write_rows(path, TABLE, _rows(self.images, mine))
                yield path

        return filler, tables()

    def publish_truths(self, store: Store, folder: str, /) -> dict[str, FileInfo]:
        """See :meth:`Source.publish_truths`."""
        people = {split.name: people_of(self.images, split.numbers) for split in self.splits}
        return publish_truths(store, folder, self.dataset, people, self.skeleton)


def people_of(images: ImageTable, numbers: Numbers) -> Iterator[People]:
    """Yield the people of each image in ``numbers``."""
    return (People.of(text, width, height) for _, width, height, text in _rows(images, numbers))


def _rows(images: ImageTable, numbers: Numbers) -> Iterator[tuple[int, int, int, str]]:
    """Yield row, width, height and target of each image in ``numbers``."""
    columns = (images.column(name)[numbers].tolist() for name in ("row", "width", "height"))
    return zip(*columns, (images.text("target", number) for number in numbers.tolist()), strict=True)


class _Inspected(NamedTuple):
    """Findings about the annotations of all images.

    Attributes:
        rules: image number → how often each rule applied, for images that were decoded.
        instances: see :class:`People`, per image, (n,).
        unseen: how many of these have no labelled joint inside the image, (n,); 0 for images that were not decoded.
        annotations: number of all annotations per image, (n,).
        doubts: warnings about annotations that are probably wrong.
    """

    rules: dict[int, Counter[str]]
    instances: Numbers
    unseen: Numbers
    annotations: Numbers
    doubts: list[str]


def _rules(images: ImageTable, inspected: _Inspected, about: JsonObject) -> dict[str, int]:
    """Return how often each rule applied to the converted images and to the annotation files, without zeros."""
    kept, found = images.kept(), Counter[str]()
    for number, rules in inspected.rules.items():
        if kept[number]:
            found.update(rules)
    for rules in about[COUNTED].values():
        found.update(rules)
    found["left as stored in spite of EXIF"] = int(np.count_nonzero(images.column("unturned") & kept))
    return dict(+found)


def _left_out(images: ImageTable, inspected: _Inspected, strays: Mapping[str, int]) -> Iterator[LeftOut]:
    """Yield the number of instances in each split of the source, and how many are left out, by reason."""
    files, (instances, unseen, annotations) = images.texts("split"), inspected[1:4]
    for split in files.values:
        mine = files.are({split})
        part = LeftOut(f"instances of the {split} split" if split else "instances", int(instances[mine].sum()))
        part.add("the image is left out", int(instances[mine & images.left_out].sum()))
        part.add("none of the joints is labelled and in the image", int(unseen[mine & ~images.left_out].sum()))
        part.read += strays[split]
        part.add("of another category_id", strays[split])
        if not part.read:
            part.read = int(annotations[mine].sum())
            part.add("no instance has a joint that is labelled", part.read)
        yield part


def open_people(dataset: DataSet, source: str, settings: PeopleSettings, work: Path) -> Source:
    """Open a source of images with people; leave out images with invalid annotations.

    The source is a local folder or file, or ``gs://bucket/prefix``; see :mod:`podline.data.people.layouts`. ``work`` is
    the cache folder of sources.

    Raises:
        SourceError: the source has no annotations, the skeleton is invalid, or a split has no image that can be
            converted; or see :func:`open_images`.
        StoreError: the cache folder cannot be written, or a bucket cannot be read.
    """
    found, wanted = list[_Inspected](), _needed(of_coco=settings.official)
    opened = open_images(
        dataset, source, settings, work, wanted, lambda images: found.append(_inspected(images, settings))
    )
    images, [inspected] = opened.images, found
    about = json.loads(images.about["facts"])
    text = json.dumps(about[SKELETON], sort_keys=True).encode()
    skeleton = Skeleton.model_validate(about[SKELETON])
    subjects = ONE if inspected.annotations[images.kept()].max(initial=0) == 1 else SEVERAL
    common: dict[str, Any] = {each.name: getattr(opened, each.name) for each in fields(opened)}
    people: dict[str, Any] = {
        "files": (*opened.files, SourceFile(name="skeleton", bytes=len(text), sha256=hashlib.sha256(text).hexdigest())),
        "targets": features_of(settings, skeleton),
        "facts": {SKELETON: skeleton.model_dump(mode="json"), SUBJECTS: subjects},
        "rules": _rules(images, inspected, about),
        "parts": tuple(_left_out(images, inspected, about[STRAYS])),
        "warnings": (*opened.warnings, *inspected.doubts),
        "settings": settings,
        "skeleton": skeleton,
    }
    return PeopleSource(**common | people)


def _needed(*, of_coco: bool) -> Callable[[str], bool]:
    """Return a predicate for the files of a bucket to fetch; COCO's test images only if annotations of them precede."""
    annotated = not of_coco

    def is_needed(name: str) -> bool:
        nonlocal annotated
        found = _TEST.search(name)
        annotated = annotated or bool(found and found[1])
        return not (of_coco and _UNLABELLED.search(name)) and (annotated or not found)

    return is_needed


def _inspected(images: ImageTable, settings: PeopleSettings) -> _Inspected:
    """Collect findings about all annotations; leave out images with outlines that cannot be drawn."""
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
                images.leave_out(number, Reason.of(str(error)))
        counts[:, number] = instances, unseen, len(image.annotations)
    instances, unseen, annotations = counts
    sample = np.flatnonzero(whole & (instances > 0) & (not settings.official))  # COCO's own annotations are right
    sample = sample[:: max(1, math.ceil(len(sample) / _DOUBTED))]
    found = doubts(zip(people_of(images, sample), images.column("unturned")[sample].tolist(), strict=True))
    return _Inspected(rules, instances, unseen, annotations, found)
