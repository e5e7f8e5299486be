"""Build the skeleton of users' keypoints from the categories of COCO's format and, if incomplete, from the data.

A log line reports each property that was detected or assumed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.base.errors import SourceError
from podline.base.plurals import plural
from podline.data.people.files import AnnotationFile
from podline.data.people.settings import KeypointSettings
from podline.data.shown import printable, shortened
from podline.documents.skeleton import COCO, OTHER_SIGMA, Skeleton, mirrored_by_name, sigmas_by_name

Limb = tuple[int, int]


class Summary(NamedTuple):
    """A summary of an annotation file.

    Attributes:
        counts: ``category_id`` → the most common length of ``keypoints`` among annotations with a labelled joint.
        categories: the categories with an id; see :func:`podline.data.people.annotations.identifier`.
        annotations: number of annotations.
    """

    file: AnnotationFile
    counts: dict[int | str, int]
    categories: list[dict[str, Any]]
    annotations: int


class Joints(NamedTuple):
    """The joints to train, as the categories define them.

    Attributes:
        ids: ids of the categories, all of which have these joints.
        names: names of the joints.
        category: the first category, by id as text, as in the file; without its name if there are several categories;
            empty if the file has none.
        limbs: pairs of joint indices, from 0 on.
        notes: log lines about what was assumed.
    """

    ids: list[int | str]
    names: tuple[str, ...]
    category: Mapping[str, Any]
    limbs: list[Limb]
    notes: list[str]


def joints_of(summary: Summary, wanted: str) -> Joints:
    """Return the joints of one category, or of all categories with keypoints if ``wanted`` is empty.

    Raises:
        SourceError: the category does not exist, several categories differ in their joints, or a value is invalid.
    """
    categories = {category["id"]: category for category in summary.categories}
    named = {number: printable(categories.get(number, {}).get("name", number)) for number in summary.counts}
    ids = [number for number in summary.counts if wanted in ("", named[number])]
    if not ids:
        there = ", ".join(sorted(named.values()))
        raise SourceError(
            f"{summary.file}: the category {wanted!r} has no labelled keypoints; give one of {there} as "
            "conversion.category"
        )
    joints = {number: _names(summary, categories.get(number, {}), summary.counts[number]) for number in ids}
    names, *others = dict.fromkeys(joints.values())
    if others:
        told = ", ".join(f"{named[number]} ({len(joints[number])} joints)" for number in ids)
        raise SourceError(
            f"{summary.file}: {len(ids)} categories have different joints: {told}; choose one by "
            "--set conversion.category=NAME"
        )
    category, notes = categories.get(min(ids, key=str), {}), []
    if len(ids) > 1:
        notes.append(f"{len(ids)} categories have the same joints, and are trained as one")
        category = category | {"name": ""}
    if not category.get("keypoints"):
        notes.append("joints have no names: joint1, joint2 …")
    return Joints(ids, names, category, _limbs(summary.file, category.get("skeleton") or [], len(names), notes), notes)


def _names(summary: Summary, category: Mapping[str, Any], values: int) -> tuple[str, ...]:
    given = category.get("keypoints") or []
    if values % 3 or not isinstance(given, list) or len(given) not in (0, values // 3):
        told = plural(len(given), "name") if isinstance(given, list) else shortened(given)
        raise SourceError(
            f"{summary.file}: category {shortened(category.get('name'))} has {told} of keypoints, but its annotations "
            f"have {values / 3:g} joints; correct the category in the file"
        )
    return tuple(str(name).strip() for name in given) or tuple(f"joint{number + 1}" for number in range(values // 3))


def _limbs(path: AnnotationFile, skeleton: Any, count: int, notes: list[str]) -> list[Limb]:
    """Return limbs as joint indices from 0 on. COCO counts from 1; a 0 in the file means that it counts from 0.

    Add a line to ``notes`` in this case. Omit repeated limbs, and those from a joint to itself.

    Raises:
        SourceError: the skeleton does not consist of pairs of joint numbers.
    """
    pairs = skeleton if isinstance(skeleton, list) else [skeleton]
    ends = [end for pair in pairs for end in (pair if isinstance(pair, list) and len(pair) == 2 else [None])]
    first = 0 if 0 in ends else 1
    wrong = [end for end in ends if type(end) is not int or not first <= end < count + first]
    if wrong:
        raise SourceError(
            f"{path}: skeleton is {shortened(skeleton)}, expected pairs of joints from {first} to {count + first - 1}; "
            "correct the skeleton in the file"
        )
    if ends and not first:
        notes.append("the skeleton counts joints from 0")
    limbs: dict[frozenset[int], Limb] = {}
    for start, end in pairs:
        if start != end:
            limbs.setdefault(frozenset((start, end)), (start - first, end - first))
    return list(limbs.values())


def skeleton_of(
    joints: Joints, settings: KeypointSettings, annotations: Iterable[Mapping[str, Any]], path: AnnotationFile
) -> tuple[Skeleton, list[str]]:
    """Return a skeleton whose limbs connect all joints, and log lines; settings take precedence over annotations.

    Raises:
        SourceError: the skeleton is invalid, or the settings name an unknown joint.
    """
    names, notes, given = joints.names, [*joints.notes], joints.category.get("sigmas")
    if unknown := settings.sigmas.keys() - {*names}:
        raise SourceError(
            f"{path}: the settings name an unknown joint {min(unknown)!r}; the joints are {', '.join(names)}"
        )
    category = str(joints.category.get("name", "")).strip()
    if names == COCO.annotated and not settings.sigmas and settings.mirrored is None and given is None:
        notes.append("the joints are those of COCO's people, so COCO's skeleton is used")
        return COCO.model_copy(update={"category": category}), notes
    made = list(_connecting(joints.limbs, _distances(annotations, len(names))))
    if made:
        told = ", ".join(f"{names[start]} – {names[end]}" for start, end in made)
        notes.append(f"limbs added between nearby joints, since the skeleton does not connect all joints: {told}")
    mirrored = settings.mirrored
    if mirrored is None:
        mirrored = mirrored_by_name(names)
        pairs = ", ".join(f"{right} ↔ {left}" for right, left in mirrored or ())
        notes.append(
            f"joints swapped in mirrored images, detected by name: {pairs}"
            if pairs
            else "names of joints do not contain left and right, so images are not mirrored in training"
        )
    sigmas = sigmas_by_name(names) if given is None else given
    if isinstance(sigmas, Sequence):  # the skeleton refuses other types
        sigmas = [*sigmas]
        for name, sigma in settings.sigmas.items():
            sigmas[names.index(name) : names.index(name) + 1] = [sigma]
        if given is None and OTHER_SIGMA in sigmas:
            made_up = f"{sigmas.count(OTHER_SIGMA)} of {plural(len(names), 'joint')}"
            notes.append(f"OKS's constant is {OTHER_SIGMA} for {made_up}: the annotations have none")
    limbs = [(names[start], names[end]) for start, end in (*joints.limbs, *made)]
    fixed = {"sigmas": sigmas, "mirrored": mirrored, "category": category}
    try:
        return Skeleton.model_validate({"joints": names, "limbs": limbs, "annotated": names, **fixed}), notes
    except ValueError as error:
        problem = " ".join(line.strip() for line in str(error).splitlines()[1:3])
        raise SourceError(f"{path}: the skeleton of its category is invalid: {problem}; correct it") from error


def _distances(annotations: Iterable[Mapping[str, Any]], count: int) -> npt.NDArray[np.float64]:
    """Return the mean distance of each pair of joints as a share of the box's diagonal: float64 (count, count).

    The distance is infinity if no instance has both joints labelled.
    """
    total, seen = np.zeros((count, count)), np.zeros((count, count))
    for annotation in annotations:
        poses = np.reshape(annotation["keypoints"], (count, 3))
        there = poses[:, 2] > 0
        both = there[:, None] & there
        scale = math.hypot(*annotation["bbox"][2:]) or 1.0
        apart = np.linalg.norm(poses[:, None, :2] - poses[:, :2], axis=-1) / scale
        total, seen = total + np.where(both, apart, 0), seen + both
    return np.where(seen > 0, total / np.maximum(seen, 1), np.inf)


def _connecting(limbs: Sequence[Limb], distances: npt.NDArray[np.float64]) -> Iterator[Limb]:
    """Yield the limbs to add so that all joints are connected: Kruskal's minimum spanning tree, ties by joint index."""
    group = np.arange(len(distances))
    pairs = sorted(itertools.combinations(range(len(distances)), 2), key=lambda pair: (distances[pair], pair))
    for first, second in (*limbs, *pairs):
        if group[first] != group[second]:
            group[group == group[second]] = group[first]
            if (first, second) not in limbs:
                yield first, second
