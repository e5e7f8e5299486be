"""The skeleton of keypoints of one's own: from the categories of COCO's format, and where they say less, from the data.

What was found, and what was made up for, is told in a line each.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from podline.data.shown import shortened
from podline.data.sources.keypoint_layout import Outline
from podline.data.sources.keypoint_settings import KeypointSettings
from podline.documents.skeleton import (
    COCO,
    OTHER_SIGMA,
    Pair,
    Skeleton,
    control_character,
    mirrored_by_name,
    sigmas_by_name,
)
from podline.errors import SourceError
from podline.plurals import plural

Limb = tuple[int, int]


@dataclass(frozen=True)
class Joints:
    """What categories say of the joints that are learned.

    Attributes:
        ids: of the categories, which all have these joints.
        name: the category's; empty for several, and where it has none.
        joints: their names.
        limbs: places of two joints each.
        sigmas: OKS's constants, where the file has them.
        notes: what there is to say of how they were understood.
    """

    ids: frozenset[int]
    name: str
    joints: tuple[str, ...]
    limbs: tuple[Limb, ...]
    sigmas: tuple[float, ...]
    notes: tuple[str, ...]


def joints_of(outline: Outline, wanted: str) -> Joints:
    """Return the joints of a file's annotations.

    Args:
        outline: of the file.
        wanted: the name of the category that is meant; empty for all that have keypoints.

    Raises:
        SourceError: there is no such category, several differ in their joints, an annotation's is not defined, or what
            is said cannot be.
    """
    categories = {
        entry["id"]: entry for entry in outline.categories if isinstance(entry, dict) and type(entry.get("id")) is int
    }
    for number, first in outline.firsts.items():
        if (number not in categories) if outline.categories else type(number) is not int:
            defined = ", ".join(map(str, categories)) or "whole numbers"
            raise SourceError(
                f"{outline.path}: annotation {first} has category_id {number} vs {defined} in categories; mend the "
                "annotation, or add the category with its keypoints"
            )
    named = {number: _name(outline, "name of a category", entry, number) for number, entry in categories.items()}
    meant = dict(outline.values)
    if wanted:
        meant = {number: counts for number, counts in meant.items() if named.get(number) == wanted}
        if not meant:
            there = ", ".join(sorted(named.get(number, str(number)) for number in outline.values)) or "none"
            raise SourceError(f"{outline.path}: no keypoints of the category {wanted!r}; categories that have: {there}")
    found = {number: _described(outline, categories.get(number, {}), counts) for number, counts in meant.items()}
    joints = set(found.values())
    if len(joints) != 1:
        told = ", ".join(f"{named.get(number, number)} ({len(names)} joints)" for number, (names, _) in found.items())
        raise SourceError(
            f"{outline.path}: {len(found)} categories with different joints vs one: {told}; name one of them by "
            "--set conversion.category=NAME"
        )
    [(names, made)] = joints
    first = categories.get(min(found), {})
    notes = [made] if made else []
    limbs = _limbs(outline, first.get("skeleton") or [], len(names), notes)
    if len(found) > 1:
        notes.insert(0, f"{len(found)} categories have the same joints, and are learned as one")
    given = _sigmas(outline, first, len(names))
    name = _name(outline, "name of a category", first, "") if len(found) == 1 else ""
    return Joints(frozenset(found), name, names, limbs, given, tuple(notes))


def _name(outline: Outline, what: str, category: Mapping[str, Any], otherwise: object) -> str:
    return _shown(outline, what, str(category.get("name", otherwise)))


def _shown(outline: Outline, what: str, name: str) -> str:
    """Return a name without spaces around it; refuse one that would break a line or turn the direction of reading."""
    name = name.strip()
    if control := control_character(name):
        raise SourceError(f"{outline.path}: the {what} {name!r} has the control character {control}; rename it")
    return name


def _sigmas(outline: Outline, category: Mapping[str, Any], count: int) -> tuple[float, ...]:
    given = category.get("sigmas")
    if given is None:
        return ()
    if isinstance(given, list) and len(given) == count and all(type(s) in (int, float) and 0 < s < 1e6 for s in given):
        return tuple(given)
    raise SourceError(
        f"{outline.path}: category {category.get('name', category.get('id'))!r} has sigmas {shortened(given)} vs a "
        f"finite number above 0 for each of {count} joints; mend them, or remove them"
    )


def _described(outline: Outline, category: Mapping[str, Any], counts: Counter[int]) -> tuple[tuple[str, ...], str]:
    """Return the names of a category's joints, and what was made up of them."""
    [(values, _)] = counts.most_common(1)
    count = values // 3
    given = category.get("keypoints") or []
    if values % 3 or not isinstance(given, list) or len(given) not in (0, count):
        told = f"{len(given)} names" if isinstance(given, list) else shortened(given)
        raise SourceError(
            f"{outline.path}: category {category.get('name', category.get('id'))!r} has {told} of keypoints vs "
            f"{values / 3:g} in its annotations; restore the file"
        )
    if not given:
        return tuple(f"joint{number}" for number in range(1, count + 1)), "joints have no names: joint1, joint2 …"
    names, made = [], []
    for number, name in enumerate(given, start=1):
        said = _shown(outline, "joint", name) if isinstance(name, str) else ""
        if not said or said in names:
            made.append(said or f"number {number}")
            said = f"{said or 'joint'}{number}"
        names.append(said)
    return tuple(names), f"joints without a name of their own got a number: {', '.join(made)}" if made else ""


def _limbs(outline: Outline, skeleton: Any, count: int, notes: list[str]) -> tuple[Limb, ...]:
    """Limbs as places from 0 on: COCO counts joints from 1, others from 0, which a 0 gives away."""
    pairs = [[*pair] if isinstance(pair, list) else [] for pair in skeleton] if isinstance(skeleton, list) else [[]]
    if any(len(pair) != 2 or any(type(end) is not int for end in pair) for pair in pairs):
        raise SourceError(f"{outline.path}: skeleton is {shortened(skeleton)} vs pairs of joints; restore the file")
    ends = [end for pair in pairs for end in pair]
    first = 0 if 0 in ends else 1
    if ends and not (first <= min(ends) and max(ends) < count + first):
        raise SourceError(
            f"{outline.path}: the skeleton names joint {max(ends) if max(ends) >= count + first else min(ends)} vs "
            f"{first} to {count + first - 1} of {count}; restore the file"
        )
    if ends and not first:
        notes.append("the skeleton counts joints from 0")
    limbs: list[Limb] = []
    for start, end in ((start - first, end - first) for start, end in pairs):
        if start != end and (start, end) not in limbs and (end, start) not in limbs:
            limbs.append((start, end))
    return tuple(limbs)


def skeleton_of(
    joints: Joints, settings: KeypointSettings, annotations: Iterable[Mapping[str, Any]], path: object
) -> tuple[Skeleton, tuple[str, ...]]:
    """Return a skeleton whose limbs reach all joints, and what there is to say of it.

    Args:
        joints: what the categories say.
        settings: what the user says, which goes before.
        annotations: with joints, in the images' own pixels.
        path: of the annotations, for errors.

    Raises:
        SourceError: there is one joint alone, or the settings name one that is not there.
    """
    names, notes = joints.joints, list(joints.notes)
    if len(names) < 2:
        raise SourceError(f"{path}: {plural(len(names), 'joint')} vs two at least: poses are put together by limbs")
    for name in (*settings.sigmas, *(end for pair in settings.mirrored or () for end in pair)):
        if name not in names:
            raise SourceError(f"{path}: the settings name the joint {name!r}; there are {', '.join(names)}")
    if names == COCO.annotated and not settings.sigmas and settings.mirrored is None and not joints.sigmas:
        notes.append("the joints are those of COCO's people, so the skeleton is theirs")
        return COCO.model_copy(update={"category": joints.name}), tuple(notes)
    limbs = [*joints.limbs, *_connecting(joints.limbs, _distances(annotations, len(names)))]
    if len(limbs) > len(joints.limbs):
        made = ", ".join(f"{names[start]} – {names[end]}" for start, end in limbs[len(joints.limbs) :])
        notes.append(f"limbs that join what no limb of the skeleton joins, between joints that are near: {made}")
    mirrored = settings.mirrored
    if mirrored is None:
        mirrored = mirrored_by_name(names)
        notes.append(_told(mirrored))
    sigmas = joints.sigmas or sigmas_by_name(names)
    sigmas = tuple(settings.sigmas.get(name, sigma) for name, sigma in zip(names, sigmas, strict=True))
    if not joints.sigmas and OTHER_SIGMA in sigmas:
        made = sum(sigma == OTHER_SIGMA for sigma in sigmas)
        notes.append(f"OKS's constant is {OTHER_SIGMA} for {made} of {plural(len(names), 'joint')}: nobody gave one")
    try:
        made_of = tuple((names[start], names[end]) for start, end in limbs)
        fixed = {"sigmas": sigmas, "mirrored": mirrored, "category": joints.name}
        return Skeleton.model_validate({"joints": names, "limbs": made_of, "annotated": names, **fixed}), tuple(notes)
    except ValueError as error:
        problem = str(error).splitlines()[2].strip() if len(str(error).splitlines()) > 2 else str(error)
        raise SourceError(f"{path}: the skeleton cannot be: {problem}") from error


def _told(mirrored: Sequence[Pair] | None) -> str:
    if mirrored is None:
        return "names do not say which joints are left and right, so images are not mirrored in training"
    return f"mirrored pairs, by their names: {', '.join(f'{right} ↔ {left}' for right, left in mirrored)}"


def _distances(annotations: Iterable[Mapping[str, Any]], count: int) -> npt.NDArray[np.float64]:
    """How far apart two joints lie on average, as a share of the box's diagonal; infinite where never both are."""
    total, seen = np.zeros((count, count)), np.zeros((count, count))
    for annotation in annotations:
        poses = np.asarray(annotation["keypoints"], np.float64).reshape(-1, 3)
        if len(poses) != count:
            continue
        there = poses[:, 2] > 0
        both = there[:, None] & there
        scale = math.hypot(*annotation["bbox"][2:]) or 1.0
        apart = np.linalg.norm(poses[:, None, :2] - poses[:, :2], axis=-1) / scale
        total, seen = total + np.where(both, apart, 0), seen + both
    return np.where(seen > 0, total / np.maximum(seen, 1), np.inf)


def _connecting(limbs: Sequence[Limb], distances: npt.NDArray[np.float64]) -> Iterator[Limb]:
    """Yield the shortest limbs that join what is apart (Kruskal's minimum spanning tree); the first joints win ties."""
    count = len(distances)
    group = list(range(count))

    def join(first: int, second: int) -> bool:
        apart = group[first] != group[second]
        if apart:
            left, right = group[first], group[second]
            group[:] = [left if each == right else each for each in group]
        return apart

    for first, second in limbs:
        join(first, second)
    pairs = sorted(itertools.combinations(range(count), 2), key=lambda pair: (distances[pair], pair))
    for first, second in pairs:
        if join(first, second):
            yield first, second
