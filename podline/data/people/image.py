"""Represent the people in an image, and choose those that a record stores; the others are ignored regions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple, Self

PERSON = 1
"""COCO's ``category_id`` of people; conversion also assigns it to any instance in a user's keypoint data set."""

MASK_STRIDE = 4
"""Side in pixels of a cell in the mask of ignored people."""

BEYOND = "instances beyond the places of a record"
"""The rule for people who are ignored because the record already has ``max_people``."""

_NOWHERE = (0, 0, 0)


class People(NamedTuple):
    """The people in an image, in pixels of the original image; this is the target of its record.

    Attributes:
        id: number of the image in its annotation file; see :func:`podline.data.people.annotations.numbered`.
        name: name of the image in its annotation file.
        width: width of the decoded image, or before decoding that in the annotations, 0 if they lack it.
        height: height of the image with this width.
        instances: number of annotations, crowds excepted, with any keypoint value other than 0.
        annotations: the annotations, in the source's order, each an
            :class:`podline.data.people.annotations.Annotation` as JSON.
    """

    id: int
    name: str
    width: int
    height: int
    instances: int
    annotations: tuple[str, ...]

    def text(self) -> str:
        """Return the target as text: a line about the image, then one line per annotation."""
        return "\n".join([json.dumps(self[:-1]), *self.annotations])

    @classmethod
    def of(cls, text: str, width: int, height: int) -> Self:
        """Parse a text from :meth:`text`; ``width`` and ``height`` are those of the decoded image."""
        line, *annotations = text.split("\n")
        number, name, _, _, instances = json.loads(line)
        return cls(number, name, width, height, instances, tuple(annotations))


class PersonEntry(NamedTuple):
    """A labelled person, in pixels of the original image.

    Attributes:
        keypoints: x, y and visibility of each annotated joint in turn; zeros for joints that are unlabelled or outside
            the image.
        bbox: left, top, width, height.
        area: area in the annotations, or else of the box.
    """

    id: int
    keypoints: tuple[float, ...]
    bbox: tuple[float, float, float, float]
    area: float


def chosen(image: People, max_people: int, counted: Counter[str]) -> tuple[list[PersonEntry], list[dict[str, Any]]]:
    """Return the people that an image's record stores, largest first, and the ignored annotations.

    The ignored annotations are the input of :func:`podline.data.people.masks.ignored_mask`. The applications of each
    rule are added to ``counted``.
    """
    people: list[PersonEntry] = []
    ignored: list[dict[str, Any]] = []
    for annotation in map(json.loads, image.annotations):
        person = None if annotation["iscrowd"] else _person(annotation, (image.width, image.height), counted)
        if person is not None:
            people.append(person)
            continue
        counted["crowds" if annotation["iscrowd"] else "instances without a labelled joint"] += 1
        ignored.append(annotation)
    people.sort(key=lambda person: (-person.area, person.id))
    for person in people[max_people:]:
        counted[BEYOND] += 1
        ignored.append({"id": person.id, "bbox": person.bbox})
    return people[:max_people], ignored


def _person(annotation: Mapping[str, Any], size: tuple[int, int], counted: Counter[str]) -> PersonEntry | None:
    """Return the person with only the joints inside the image; None if no joint is."""
    width, height = size
    values = annotation["keypoints"]
    # In plain Python, because NumPy takes three times as long for so few numbers.
    labelled = len(values) // 3 - values[2::3].count(0)
    if labelled != annotation["num_keypoints"]:
        counted["instances whose num_keypoints is wrong"] += 1
    joints = [
        (x, y, seen) if seen > 0 and 0 <= x < width and 0 <= y < height else _NOWHERE
        for x, y, seen in zip(values[0::3], values[1::3], values[2::3], strict=True)
    ]
    inside = len(joints) - joints.count(_NOWHERE)
    if inside < labelled:
        counted["labelled joints outside the image"] += labelled - inside
    if not inside:
        return None
    left, top, width, height = annotation["bbox"]
    if not width * height:
        counted["boxes of no size"] += 1
        columns, rows, _seen = zip(*(joint for joint in joints if joint[2]), strict=True)
        left, top = min(columns), min(rows)
        width, height = max(columns) - left + 1, max(rows) - top + 1
    area = annotation["area"] or width * height
    return PersonEntry(id=annotation["id"], keypoints=tuple(chain(*joints)), bbox=(left, top, width, height), area=area)
