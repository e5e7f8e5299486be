"""Checks what ``person_keypoints_*.json`` lists, and keeps what records need.

What is wrong with one image's entries puts that image into quarantine: a person whose annotation cannot be read would
otherwise be learned as background. The rules are listed in docs/coco.md.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from podline.data import bounds
from podline.data.shown import printable, shortened
from podline.data.sources.coco_files import ImagePlace
from podline.documents.skeleton import COCO

PERSON = 1
"""COCO's ``category_id`` of people, and that of whatever has joints in a data set of one's own once it is converted."""

_NUMBERS: frozenset[type] = frozenset((int, float))
_WHOLE: frozenset[type] = frozenset((int,))
_LARGEST = 1e9
_IDS = range(-(2**63), 2**63)
_PERSON_KEYS = ("id", "image_id", "category_id", "iscrowd", "num_keypoints", "keypoints", "bbox", "area")
_OUTLINE = "segmentation"
_PROBLEM = "problem"
# Of an annotation whose joints are let go: whether there are any.
_JOINTS = "joints"
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Category:
    """Whose annotations are read.

    Attributes:
        ids: every ``category_id`` that is meant.
        joints: how many an annotation has.
        completed: makes up for what annotations lack, before they are checked.
    """

    ids: frozenset[int] = frozenset({PERSON})
    joints: int = len(COCO.annotated)
    completed: Callable[[dict[str, Any]], dict[str, Any]] = dict

    @property
    def shown(self) -> str:
        """What an annotation's ``category_id`` may be, in words."""
        return " or ".join(map(str, sorted(self.ids)))


PEOPLE = Category()
"""COCO's."""


@dataclass(slots=True)
class ImageEntry:
    """An image as its JSON lists it.

    Attributes:
        place: in the list of images.
        id: COCO's.
        name: of its file.
        width: of the image that was annotated; 0 if it is not listed: then it is the file's.
        height: likewise.
        annotations: of people in it, as they stand.
        problem: why it cannot be converted; empty if it can.
        file: where its file is; None where there is none that can be read.
    """

    place: int
    id: int = -1
    name: str = ""
    width: int = 0
    height: int = 0
    annotations: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""
    file: ImagePlace | None = None

    @classmethod
    def from_json(cls, line: str) -> ImageEntry:
        """Return what :meth:`to_json` wrote."""
        place, number, name, width, height, annotations, problem, file = json.loads(line)
        return cls(place, number, name, width, height, annotations, problem, file and ImagePlace(*file))

    def to_json(self) -> str:
        """Return the entry as one line."""
        values = (self.place, self.id, self.name, self.width, self.height, self.annotations, self.problem, self.file)
        return json.dumps(values)

    @property
    def record(self) -> str:
        """How quarantine and errors call it."""
        return f"{printable(self.name, bounds.NAME_BYTES)} (image {self.id})" if self.name else f"images[{self.place}]"


@dataclass
class Listing:
    """What a JSON file lists.

    Attributes:
        images: every entry, in the file's order; those that cannot be converted have a problem.
        orphans: annotations that belong to no image: what to call them, and why.
        other_categories: annotations of other things than people, which are passed over.
        strays: people with joints who belong to no image, or are of another category: how many, by what is wrong.
    """

    images: list[ImageEntry]
    orphans: list[tuple[str, str]]
    other_categories: int
    strays: Counter[str]


def listing_of(document: Mapping[str, Any], category: Category = PEOPLE) -> Listing:
    """Check what a document lists.

    Args:
        document: has lists ``images`` and ``annotations``.
        category: whose annotations are meant; others are passed over.
    """
    entries = [_image_entry(place, found) for place, found in enumerate(document["images"])]
    by_id = _by_id(entries)
    annotations = (_annotation(found, category) for found in document["annotations"])
    orphans, others, strays = _hand_out(annotations, by_id, category)
    for entry in entries:
        entry.problem = entry.problem or _first_problem(entry.annotations)
    return Listing(entries, orphans, others, strays)


def _annotation(found: Any, category: Category) -> dict[str, Any] | str:
    """Return an annotation without what no record needs: outlines of labelled people are most of the file.

    Of other things than people, and of what cannot be converted, only what it says it is; of what is no annotation, its
    kind.
    """
    if not isinstance(found, dict):
        return type(found).__name__
    found = category.completed(found)
    kept = {key: found[key] for key in _PERSON_KEYS if key in found}
    for key in ("id", "image_id", "category_id"):
        if type(kept.get(key)) is not int:
            kept[key] = _scalar(kept.get(key))
    if type(kept.get("num_keypoints", 0)) is not int:
        kept["num_keypoints"] = None
    if kept.get("keypoints") in (None, []) and not kept.get("num_keypoints"):
        # A crowd, or a box of a detector: an instance without a labelled joint.
        kept.pop("keypoints", None)
        kept = {"keypoints": [0] * 3 * category.joints, **kept}
    if found.get("iscrowd") or not found.get("num_keypoints"):
        kept[_OUTLINE] = found.get(_OUTLINE)
    meant = kept["category_id"] in category.ids
    problem = _problem(kept, 3 * category.joints) if meant else ""
    if problem or not meant:
        named = {key: kept[key] for key in ("id", "image_id", "category_id")}
        return {**named, _JOINTS: has_joints(found), **({_PROBLEM: problem} if problem else {})}
    return kept


def _scalar(value: Any) -> Any:
    """Return a value that is no list and no object as it is, text cut short."""
    if value is None or type(value) in (bool, float):
        return value
    return value[:80] if type(value) is str else type(value).__name__


def _image_entry(place: int, image: Any) -> ImageEntry:
    if not isinstance(image, dict):
        return ImageEntry(place, problem=f"an object is needed, found {type(image).__name__}")
    name = image.get("file_name")
    if not isinstance(name, str) or not name:
        return ImageEntry(place, problem=f"its file_name is {shortened(name)}")
    sized = {"width", "height"} & image.keys()
    for key in ("id", *sorted(sized, reverse=True)):
        least = 0 if key == "id" else 1
        if type(image.get(key)) is not int or not least <= image[key] < 2**62:
            problem = f"its {key} is {shortened(image.get(key))}, a whole number is needed"
            return ImageEntry(place, name=name, problem=problem)
    if len(sized) == 1:
        return ImageEntry(place, name=name, problem=f"its {sized.pop()} is there alone: both, or neither, are needed")
    return ImageEntry(place, image["id"], name, image.get("width", 0), image.get("height", 0))


def _by_id(entries: list[ImageEntry]) -> dict[int, ImageEntry]:
    """Return the image that annotations of an id belong to; mark those whose id or file is there twice."""
    by_id: dict[int, ImageEntry] = {}
    by_name: dict[str, ImageEntry] = {}
    for entry in entries:
        if entry.problem:
            continue
        first = by_id.setdefault(entry.id, entry)
        if first is entry:
            other = by_name.setdefault(entry.name, entry)
            if other is not entry:  # each has a part of the people, and would teach that the others are none
                why = f"its file is listed as image {other.id} and as image {entry.id}: give it one id"
                other.problem = entry.problem = why
            continue
        if (first.name, first.width, first.height) == (entry.name, entry.width, entry.height):
            entry.problem = f"it is listed twice, as images[{first.place}] and as images[{entry.place}]"
        else:
            first.problem = f"its id is also that of {printable(entry.name)}: whose the annotations are cannot be told"
            entry.problem = f"its id is also that of {printable(first.name)}: whose the annotations are cannot be told"
    return by_id


def _hand_out(
    annotations: Iterable[dict[str, Any] | str], by_id: Mapping[int, ImageEntry], category: Category
) -> tuple[list[tuple[str, str]], int, Counter[str]]:
    """Give each annotation to its image; return those that have none, how many are not of people, and strays."""
    orphans: list[tuple[str, str]] = []
    strays: Counter[str] = Counter()
    owners: dict[int, ImageEntry] = {}
    others = 0
    for place, annotation in enumerate(annotations):
        record = f"annotations[{place}]"
        if isinstance(annotation, str):
            orphans.append((record, f"an object is needed, found {annotation}"))
            continue
        number, image = annotation["id"], annotation["image_id"]
        entry = by_id.get(image) if type(image) is int else None
        if entry is None:
            where = f"annotation {shortened(number)}" if type(number) is int else record
            orphans.append((where, f"there is no image {shortened(image)}"))
            strays["there is no such image"] += has_joints(annotation)
        elif annotation["category_id"] not in category.ids:
            others += 1
            strays[f"category_id is not {category.shown}"] += has_joints(annotation)
        else:
            entry.annotations.append(annotation)
            if type(number) is not int or number not in _IDS:
                entry.problem = entry.problem or (
                    f"{record} has the id {shortened(number)}, a whole number of 64 bits is needed"
                )
            elif number in owners:
                entry.problem = entry.problem or f"annotation {number} is there twice"
                owners[number].problem = owners[number].problem or f"annotation {number} is there twice"
            else:
                owners[number] = entry
    return orphans, others, strays


def has_joints(annotation: Mapping[str, Any]) -> bool:
    """Whether an annotation is of a single person with a joint that is somewhere."""
    if _JOINTS in annotation:
        return annotation[_JOINTS]
    keypoints = annotation.get("keypoints")
    return isinstance(keypoints, list) and any(keypoints) and not annotation.get("iscrowd")


def _first_problem(annotations: list[dict[str, Any]]) -> str:
    for annotation in annotations:
        if _PROBLEM in annotation:
            return f"annotation {annotation['id']}: {annotation[_PROBLEM]}"
    return ""


def _problem(annotation: dict[str, Any], values: int) -> str:
    """Return what is wrong with a person's annotation; empty if nothing is."""
    if type(annotation.get("iscrowd")) is not int or annotation["iscrowd"] not in (0, 1):
        return f"iscrowd is {shortened(annotation.get('iscrowd'))} vs 0 or 1"
    box: Any = annotation.get("bbox")
    if not _are_numbers(box, 4):
        return f"its box is {shortened(box)}, four finite numbers are needed"
    if box[2] < 0 or box[3] < 0:
        return f"its box has the size {box[2]}×{box[3]}"
    if not _are_numbers([annotation.get("area")], 1) or annotation["area"] < 0:
        return f"its area is {shortened(annotation.get('area'))}"
    keypoints = annotation.get("keypoints")
    if isinstance(keypoints, list) and any(isinstance(value, list) for value in keypoints):
        return f"its keypoints are {shortened(keypoints)} vs {values} numbers, or [x, y, visibility] of each joint"
    if not isinstance(keypoints, list) or len(keypoints) != values:
        found = f"{len(keypoints)} numbers" if isinstance(keypoints, list) else shortened(keypoints)
        return f"its keypoints are {found} vs {values} numbers"
    if not _are_numbers(keypoints, values):
        return "its keypoints are not all finite numbers"
    wrong = [value for value in keypoints[2::3] if value not in (0, 1, 2)]
    if wrong:
        return f"a keypoint has the visibility {wrong[0]} vs 0, 1 or 2"
    return _outline_problem(annotation.get(_OUTLINE))


def _outline_problem(outline: Any) -> str:
    """Return what is wrong with an outline by itself, whatever its image."""
    if isinstance(outline, dict):
        rest = (value for key, value in outline.items() if key not in ("size", "counts"))
        counts = outline.get("counts")
        if (
            _are_numbers(outline.get("size"), 2)
            and (isinstance(counts, str) or _are_all(counts, _WHOLE))
            and all(value is None or type(value) in (str, bool, int) for value in rest)
        ):
            return ""
    elif not outline:
        return ""
    elif isinstance(outline, list) and len(outline) > bounds.OUTLINES:
        return f"its outline has {len(outline):,} polygons vs {bounds.OUTLINES:,} at most"
    elif isinstance(outline, list) and all(_are_all(polygon, _NUMBERS) for polygon in outline):
        return "" if all(map(_are_finite, outline)) else "its outline has a corner that is not a finite number"
    return "its outline is neither polygons nor run lengths"


def _are_all(values: Any, types: frozenset[type]) -> bool:
    return isinstance(values, list) and types.issuperset(map(type, values))


def _are_finite(values: list[int | float]) -> bool:
    try:
        return all(map(math.isfinite, values))
    except OverflowError:  # a whole number beyond all reals
        return False


def _are_numbers(values: Any, count: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == count
        and _NUMBERS.issuperset(map(type, values))
        and min(values) > -_LARGEST
        and max(values) < _LARGEST
        and math.isfinite(sum(values))  # a NaN may hide from the two before
    )


def annotation_texts(annotations: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """Return the annotations of an image without a problem as JSON, each a text; every number as it was read.

    The number of keypoints is put in where a source left it out: pycocotools needs it. All are of one category.
    """
    return tuple([_ENCODER.encode(_completed(one)) for one in annotations])


def _completed(annotation: dict[str, Any]) -> dict[str, Any]:
    completed = dict(annotation)
    if completed["category_id"] != PERSON:
        completed["category_id"] = PERSON
    if type(annotation.get("num_keypoints")) is not int:
        completed["num_keypoints"] = sum(value > 0 for value in completed["keypoints"][2::3])
    return completed
