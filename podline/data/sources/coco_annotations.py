"""COCO's ``person_keypoints_*.json``: read once, checked, and brought down to what a record needs of each image.

What is wrong with one image's entries puts that image into quarantine: a person whose annotation cannot be read would
otherwise be learned as background. The rules are listed in docs/coco.md.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from podline.data.coco_letterbox import LetterBox
from podline.data.coco_masks import ignored_mask
from podline.data.keypoints import COCO_JOINTS
from podline.errors import SourceError

PERSON = 1
"""COCO's ``category_id`` of people."""

_VALUES = 3 * len(COCO_JOINTS)
_NUMBERS = frozenset((int, float))
_LARGEST = 1e9
_IDS = range(-(2**63), 2**63)
_PERSON_KEYS = ("id", "image_id", "category_id", "iscrowd", "num_keypoints", "keypoints", "bbox", "area")
_OUTLINE = "segmentation"
_IMAGE_KEYS = ("id", "file_name", "width", "height")
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
NO_OUTLINE = "an outline of a crowd or of an unlabelled person is neither polygons nor run lengths"
"""What is said of an outline that cannot be drawn."""


@dataclass
class ImageEntry:
    """An image as its JSON lists it.

    Attributes:
        place: in the list of images.
        id: COCO's.
        name: of its file.
        width: of the image that was annotated.
        height: likewise.
        annotations: of people in it, as they stand.
        problem: why it cannot be converted; empty if it can.
    """

    place: int
    id: int = -1
    name: str = ""
    width: int = 0
    height: int = 0
    annotations: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""

    @property
    def record(self) -> str:
        """How quarantine and errors call it."""
        return f"{self.name} (image {self.id})" if self.name else f"images[{self.place}]"


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


def read_listing(content: bytes, shown: str) -> Listing:
    """Reads a JSON file.

    Args:
        content: of the file.
        shown: what errors call it.

    Raises:
        SourceError: it is not JSON, or not COCO's annotations.
    """
    try:
        # Outlines of labelled people are most of the file; they are let go while it is parsed.
        document = json.loads(content, object_hook=_needed)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{shown} is not valid JSON ({error}); fetch the official annotations again") from error
    if not isinstance(document, dict) or not all(
        isinstance(document.get(key), list) for key in ("images", "annotations")
    ):
        raise SourceError(f"{shown} is no COCO annotation file: an object with lists images and annotations is needed")
    entries = [_image_entry(place, image) for place, image in enumerate(document["images"])]
    by_id = _by_id(entries)
    orphans, others, strays = _hand_out(document["annotations"], by_id)
    for entry in entries:
        entry.problem = entry.problem or _first_problem(entry.annotations)
    return Listing(entries, orphans, others, strays)


def _needed(found: dict[str, Any]) -> dict[str, Any]:
    """A JSON object without what no record needs."""
    if "image_id" in found:
        kept = {key: found[key] for key in _PERSON_KEYS if key in found}
        if found.get("iscrowd") or not found.get("num_keypoints"):
            kept[_OUTLINE] = found.get(_OUTLINE)
        return kept
    if "file_name" in found:
        return {key: found[key] for key in _IMAGE_KEYS if key in found}
    return found


def _image_entry(place: int, image: Any) -> ImageEntry:
    if not isinstance(image, dict):
        return ImageEntry(place, problem=f"an object is needed, found {type(image).__name__}")
    name = image.get("file_name")
    if not isinstance(name, str) or not name:
        return ImageEntry(place, problem=f"its file_name is {name!r}")
    for key in ("id", "width", "height"):
        least = 0 if key == "id" else 1
        if type(image.get(key)) is not int or not least <= image[key] < 2**62:
            return ImageEntry(place, name=name, problem=f"its {key} is {image.get(key)!r}, a whole number is needed")
    return ImageEntry(place, image["id"], name, image["width"], image["height"])


def _by_id(entries: list[ImageEntry]) -> dict[int, ImageEntry]:
    """The image that annotations of an id belong to; marks those whose id is there twice."""
    by_id: dict[int, ImageEntry] = {}
    for entry in entries:
        if entry.problem:
            continue
        first = by_id.setdefault(entry.id, entry)
        if first is entry:
            continue
        if (first.name, first.width, first.height) == (entry.name, entry.width, entry.height):
            entry.problem = f"it is listed twice, as images[{first.place}] and as images[{entry.place}]"
        else:
            first.problem = f"its id is also that of {entry.name}: whose the annotations are cannot be told"
            entry.problem = f"its id is also that of {first.name}: whose the annotations are cannot be told"
    return by_id


def _hand_out(
    annotations: list[Any], by_id: Mapping[int, ImageEntry]
) -> tuple[list[tuple[str, str]], int, Counter[str]]:
    """Gives each annotation to its image; returns those that have none, how many are not of people, and strays."""
    orphans: list[tuple[str, str]] = []
    strays: Counter[str] = Counter()
    owners: dict[int, ImageEntry] = {}
    others = 0
    for place, annotation in enumerate(annotations):
        record = f"annotations[{place}]"
        if not isinstance(annotation, dict):
            orphans.append((record, f"an object is needed, found {type(annotation).__name__}"))
            continue
        number, image = annotation.get("id"), annotation.get("image_id")
        entry = by_id.get(image) if type(image) is int else None
        if entry is None:
            orphans.append((f"annotation {number}" if type(number) is int else record, f"there is no image {image!r}"))
            strays["there is no such image"] += has_joints(annotation)
        elif annotation.get("category_id") != PERSON:
            others += 1
            strays[f"category_id is not {PERSON}"] += has_joints(annotation)
        else:
            entry.annotations.append(annotation)
            if type(number) is not int or number not in _IDS:
                entry.problem = entry.problem or f"{record} has the id {number!r}, a whole number of 64 bits is needed"
            elif number in owners:
                entry.problem = entry.problem or f"annotation {number} is there twice"
                owners[number].problem = owners[number].problem or f"annotation {number} is there twice"
            else:
                owners[number] = entry
    return orphans, others, strays


def has_joints(annotation: Mapping[str, Any]) -> bool:
    """Whether an annotation is of a single person with a joint that is somewhere."""
    keypoints = annotation.get("keypoints")
    return isinstance(keypoints, list) and any(keypoints) and not annotation.get("iscrowd")


def _first_problem(annotations: list[dict[str, Any]]) -> str:
    for annotation in annotations:
        problem = _problem(annotation)
        if problem:
            return f"annotation {annotation['id']}: {problem}"
    return ""


def _problem(annotation: dict[str, Any]) -> str:
    """What is wrong with an annotation; empty if nothing is."""
    if type(annotation.get("iscrowd")) is not int or annotation["iscrowd"] not in (0, 1):
        return f"iscrowd is {annotation.get('iscrowd')!r} vs 0 or 1"
    box: Any = annotation.get("bbox")
    if not _are_numbers(box, 4):
        return f"its box is {_shortened(box)}, four finite numbers are needed"
    if box[2] < 0 or box[3] < 0:
        return f"its box has the size {box[2]}×{box[3]}"
    if not _are_numbers([annotation.get("area")], 1) or annotation["area"] < 0:
        return f"its area is {annotation.get('area')!r}"
    keypoints = annotation.get("keypoints", [0] * _VALUES if annotation["iscrowd"] else None)
    if not isinstance(keypoints, list) or len(keypoints) != _VALUES:
        found = f"{len(keypoints)} numbers" if isinstance(keypoints, list) else _shortened(keypoints)
        return f"its keypoints are {found} vs {_VALUES} numbers"
    if not _are_numbers(keypoints, _VALUES):
        return "its keypoints are not all finite numbers"
    wrong = [value for value in keypoints[2::3] if value not in (0, 1, 2)]
    return f"a keypoint has the visibility {wrong[0]} vs 0, 1 or 2" if wrong else ""


def _are_numbers(values: Any, count: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == count
        and _NUMBERS.issuperset(map(type, values))
        and min(values) > -_LARGEST
        and max(values) < _LARGEST
        and math.isfinite(sum(values))  # a NaN may hide from the two before
    )


def _shortened(value: Any) -> str:
    return repr(value)[:80]


def annotation_texts(annotations: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """The annotations of an image without a problem as JSON, each a text; every number as it was read.

    What a source left out and pycocotools cannot do without is put in: the keypoints of a crowd, their number.

    Raises:
        ValueError: an outline with a number that is not finite.
        TypeError: an outline that JSON does not know.
    """
    return tuple([_ENCODER.encode(_completed(one)) for one in annotations])


def _completed(annotation: dict[str, Any]) -> dict[str, Any]:
    completed = {"keypoints": [0] * _VALUES, **annotation}
    if type(annotation.get("num_keypoints")) is not int:
        completed["num_keypoints"] = sum(value > 0 for value in completed["keypoints"][2::3])
    return completed


def outline_problem(ignored: list[dict[str, Any]], width: int, height: int) -> str:
    """What is wrong with the outlines of ignored people, by drawing them; empty if nothing is."""
    try:
        ignored_mask(ignored, LetterBox(width, height, 8), 8)
    except SourceError as error:
        return str(error)
    except (TypeError, ValueError, KeyError, OverflowError):
        return NO_OUTLINE
    return ""
