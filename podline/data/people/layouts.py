"""The layout of keypoint data sets: annotations in COCO's format (COCO itself included), or DeepLabCut's tables.

Annotations are JSON files in the folder, in ``annotations/``, and in ``train/``, ``val/``, ``valid/``, ``validation/``,
``dev/`` and ``test/``, also in COCO's zip files there. A single file holds all images. If there are several, their
names, or those of their folders, must contain train, val (or dev) or test. Without a JSON file of this format, all
tables of DeepLabCut are read (:mod:`podline.data.people.deeplabcut`).
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from podline.base.errors import SourceError
from podline.base.frozen import JsonObject
from podline.base.plurals import plural
from podline.data.images.items import Item, Place
from podline.data.images.layout import NOTES, Layout
from podline.data.images.listing import Files, ListedFile
from podline.data.people.annotations import (
    Entries,
    ImageEntry,
    document_of,
    entries_of,
    flat,
    identifier,
    limits_of_annotations,
    refuse_twice,
    size_of,
)
from podline.data.people.deeplabcut import LABELS, is_table
from podline.data.people.files import AnnotationFile, ImageFiles, annotation_files
from podline.data.people.image import PERSON, People
from podline.data.people.settings import KeypointSettings, PeopleSettings
from podline.data.people.skeletons import Joints, Summary, joints_of, skeleton_of
from podline.data.rawfiles import reading
from podline.data.sandbox.pool import CALLER, Sandbox
from podline.data.sources.unpacking import unpacking
from podline.documents.manifest import SPLITS, TEST, TRAINING
from podline.documents.skeleton import COCO, SKELETON, Skeleton

LABEL = "people"
"""The label of every annotated image."""
COUNTED, STRAYS, ROOTS = "counted", "strays", "roots"
"""Keys of the source's facts, besides skeleton and notes. By split: how often each rule applied, the number of
instances of other categories, and the folder of the images."""
_MOVE = "restore it or move it away"
_WANTED = (
    "a JSON file in COCO's format (lists images, annotations and categories) there or in annotations/, or DeepLabCut's "
    "CollectedData_*.csv there or in labeled-data/; give the folder or the file"
)
_WANTED_OFFICIAL = (
    "annotations/person_keypoints_train2017.json (or annotations_trainval2017.zip) and train2017/ (or train2017.zip) "
    "of COCO, or the files of val or 2014; `podline data draw DIR --dataset coco_sample` generates a sample"
)


@dataclass(frozen=True)
class Keypoints(Layout):
    """Annotation files with images: one file, or one for each split.

    Attributes:
        top: the folder of the source.
        files: split → annotation file, training first.
        chosen: the joints to train.
        around: the files in and around the source.
        settings: how to read the annotations.
        known: facts about the source; :meth:`items` fills it.
    """

    top: Path
    files: Mapping[str, AnnotationFile]
    chosen: Joints
    around: Files
    settings: PeopleSettings
    known: dict[str, Any] = field(default_factory=dict)

    exclusive = True
    accepts = "annotations in COCO's format, or DeepLabCut's tables"

    @classmethod
    def find(cls, files: Files, settings: Any, /) -> Self:
        """Find the annotation files, and their joints.

        Raises:
            SourceError: there are no annotation files, their splits are unclear, or they have no labelled joints or
                different ones.
        """
        place = Path(files.place)
        chosen, notes = _chosen(place, _summaries(place, settings), settings)
        joints = _same_joints([*chosen.values()], settings)
        named = {split: each.file for split, each in chosen.items()}
        top = place.parent if place.is_file() else place
        return cls(files.asked, top, named, joints._replace(notes=notes + joints.notes), files, settings)

    @property
    def facts(self) -> JsonObject:
        """Return the skeleton, the counts and the notes of the source; complete after :meth:`items`."""
        return self.known

    @property
    def words(self) -> str:
        """Describe the annotation files for the log."""
        roots = self.known.get(ROOTS, {})
        return "; ".join(
            f"{_named(file, self.top)} with images in {roots.get(split) or '.'}/" for split, file in self.files.items()
        )

    @property
    def splits(self) -> frozenset[str]:
        """Return the splits if there are several annotation files; else none."""
        return frozenset(self.files) if len(self.files) > 1 else frozenset()

    def reads(self, _file: ListedFile, /) -> bool:
        """Return True: files that no annotation names are ignored in :meth:`items`."""
        return True

    def items(self) -> Iterator[Item]:
        """Yield the images of each annotation file, and the annotations whose image is not in the file.

        Raises:
            SourceError: a file cannot be read, lists no valid image, or its images or skeleton are unclear or missing.
        """
        images = ImageFiles(self.around)
        self.known.update({COUNTED: {}, STRAYS: {}, ROOTS: {}})
        for name, file in self.files.items():
            document, split = document_of(file, _MOVE), name if self.splits else ""
            if document is None:
                raise SourceError(
                    f"{file} is not in COCO's format: expected the lists images and annotations; give a file with both"
                )
            entries = entries_of(document, self.chosen.ids, len(self.chosen.names))
            if SKELETON not in self.known:
                skeleton, notes = self._skeleton(entries, file)
                self.known.update({SKELETON: skeleton.model_dump(mode="json"), NOTES: notes})
            listed = [entry for entry in entries.images if entry.name]
            if not listed:
                why = next((f": {entry.record}: {entry.problem}" for entry in entries.images), "")
                raise SourceError(f"{file} lists no valid image{why}; correct the entries of its list images")
            root, places, unlisted = images.places([entry.name for entry in listed], file, self.top)
            refuse_twice(listed, "file", places)
            found = {id(entry): place for entry, place in zip(listed, places, strict=True)}
            for entry in entries.images:
                yield _item(entry, found.get(id(entry)), split, turn=self.settings.turn)
            self.known[ROOTS][name], self.known[STRAYS][split] = root, entries.strays
            self.known[COUNTED][split] = {
                "annotations of other categories": entries.others,
                "image files that no entry lists": unlisted,
            }

    def _skeleton(self, entries: Entries, file: AnnotationFile) -> tuple[Skeleton, list[str]]:
        """Return the skeleton of the categories, completed from the annotations of the first file, and log lines."""
        if not isinstance(self.settings, KeypointSettings):
            return COCO, self.chosen.notes
        annotations = (json.loads(text) for entry in entries.images for text in entry.annotations)
        return skeleton_of(self.chosen, self.settings, annotations, file)


def _named(file: AnnotationFile, top: Path) -> str:
    return "DeepLabCut's tables" if file.path.is_dir() else Path(str(file)).relative_to(top).as_posix()


def _item(entry: ImageEntry, place: Place | None, split: str, *, turn: bool) -> Item:
    if place is None:
        entry.refuse("is not in the source")
    people = People(entry.id, entry.name, entry.width, entry.height, entry.people, tuple(entry.annotations))
    size = (entry.width, entry.height, int(turn))
    return Item(
        entry.record,
        b"" if entry.problem or not place else place,
        LABEL,
        split,
        reason=entry.problem,
        target=people.text(),
        size=size,
    )


def has_annotations(place: Path) -> bool:
    """Return whether a folder or file has annotations in COCO's format, with or without joints, or DeepLabCut's tables.

    A damaged file named ``CollectedData…``, or with the word "keypoints", counts too, so that the damage is reported.

    Raises:
        SourceError: the folder cannot be read, or has several tables of DeepLabCut.
    """
    if place.is_file() and not place.name.lower().endswith((".json", ".csv")):
        return False
    with Sandbox(CALLER, _has_annotations) as sandbox, reading(place):
        for file in annotation_files(place):
            with contextlib.suppress(SourceError):  # unreadable, or beyond the limits
                limits = limits_of_annotations(size_of(file.path))
                if file.path.is_dir() or sandbox.one((_has_annotations, file), limits, str(file)):
                    return True
    return False


def _has_annotations(file: AnnotationFile) -> bool:
    try:
        return document_of(file, _MOVE) is not None
    except SourceError:
        if is_table(file.path):
            return file.path.name.startswith(LABELS)
        with reading(file.path):
            return not file.member and b'"keypoints"' in file.path.read_bytes()


def _summaries(place: Path, settings: PeopleSettings) -> list[Summary]:
    """Return a summary of each annotation file; COCO's own files are not opened for it.

    Empty if there are none.

    Raises:
        SourceError: a file cannot be read, or the place is an archive.
    """
    if place.is_file() and (remedy := unpacking([str(place)])):
        raise SourceError(
            f"{place} is an archive, expected annotations in COCO's format, or a folder with them: {remedy}"
        )
    if settings.official:
        people = {"id": PERSON, "name": COCO.category, "keypoints": [*COCO.annotated]}
        counts: dict[int | str, int] = {PERSON: 3 * len(COCO.annotated)}
        return [Summary(file, counts, [people], 0) for file in annotation_files(place, official=True)]
    found = list[Summary]()
    for file in annotation_files(place):
        if (not file.path.is_dir() or not found) and (document := document_of(file, _MOVE)):
            found.append(_summary(file, document))
    return found


def _summary(file: AnnotationFile, document: Mapping[str, Any]) -> Summary:
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
    return Summary(file, counts, categories, len(annotations))


def _chosen(place: Path, summaries: list[Summary], settings: PeopleSettings) -> tuple[dict[str, Summary], list[str]]:
    """Return the annotation file of each split, and a note on each file without labelled joints.

    If there are files for train and val but not for test, val is the test split.

    Raises:
        SourceError: no file has labelled joints, or several have, and their splits are unclear.
    """
    if not summaries:
        wanted = _WANTED_OFFICIAL if settings.official else _WANTED
        raise SourceError(f"{place} {_holds(place)}, expected {wanted}")
    learned = [summary for summary in summaries if summary.counts]
    told = [f"{each.file}: {plural(each.annotations, 'annotation')}" for each in summaries if not each.counts]
    if not learned:
        raise SourceError(
            f"nothing to train: {'; '.join(told)}, none with a category of the file and a labelled joint; annotate "
            "joints in `keypoints` (x, y, visibility of each)"
        )
    notes = [f"not read: {each}, none with a labelled joint" for each in told]
    by_role = {role: [each for each in learned if each.file.role == role] for role in ("", "train", "val", "test")}
    held_out = by_role["val"] or by_role["test"]
    if len(learned) == 1:
        return {TRAINING: learned[0]}, notes
    if len(by_role["train"]) == 1 and len(held_out) == 1 and not by_role[""]:
        splits = SPLITS if by_role["val"] and len(by_role["test"]) == 1 else (TRAINING, TEST)
        return dict(zip(splits, [*by_role["train"], *held_out, *by_role["test"]], strict=False)), notes
    names = ", ".join(str(each.file).removeprefix(f"{place}/") for each in learned)
    raise SourceError(
        f"{place} has {plural(len(learned), 'file')} of keypoints; expected one file, or files with train and with val "
        f"or test in their names: {names}; give one of them as the source, or move the others out of the folder"
    )


def _holds(place: Path) -> str:
    names = sorted(path.name for path in place.iterdir()) if place.is_dir() else []
    if not names:
        return "is empty" if place.is_dir() else "is a file"
    return f"holds {', '.join(names[:6])}{' …' if len(names) > 6 else ''}"


def _same_joints(summaries: Sequence[Summary], settings: PeopleSettings) -> Joints:
    """Return the joints of the training file.

    Raises:
        SourceError: another file has different joints; or see :func:`joints_of`.
    """
    wanted = settings.category if isinstance(settings, KeypointSettings) else ""
    first, *others = (joints_of(summary, wanted) for summary in summaries)
    for summary, joints in zip(summaries[1:], others, strict=True):
        if joints.names != first.names:
            raise SourceError(
                f"{summary.file} has the joints {', '.join(joints.names)}, expected {', '.join(first.names)} as in "
                f"{summaries[0].file}; give files with the same joints"
            )
    return first
