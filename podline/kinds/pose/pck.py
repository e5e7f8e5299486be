"""Computes PCK: the share of labelled joints whose error is at most a fifth of the length of the joint's instance.

Yang and Ramanan: "Articulated Human Detection with Flexible Mixtures of Parts", PAMI 2013. By default the length is the
diagonal of the instance's box. With ``task.pck_joints`` it is the distance of two joints, and instances without both
labels are left out.

An instance that is found at OKS 0.5 is paired with the result that AP matches with it. Each remaining result, highest
score first, is paired with the remaining instance of the highest OKS, if that is above 0. Results that match an ignored
instance, such as a crowd, are left out. So every label counts, including those of instances that AP misses.
"""

# pyright: standard
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pycocotools.cocoeval import COCOeval

from podline.base.errors import SettingsError
from podline.documents.manifest import Manifest
from podline.documents.metric import Metric
from podline.documents.skeleton import Pair
from podline.kinds.pose.coco_results import Person
from podline.kinds.pose.oks import ImageMatches, image_matches, joint_names, people_in
from podline.kinds.pose.oks_intervals import drawn_times, interval_of
from podline.kinds.pose.settings import PoseSettings
from podline.recipes.settings import Recipe

SHARE = 0.2
"""The largest distance of a close joint, as a share of the length; the measure's label, PCK@0.2, contains it."""


class Pck(NamedTuple):
    """The PCK over all joints, and of each joint.

    Attributes:
        whole: the PCK over all joints; None without a label.
        joints: the PCK of each joint; None for a joint without a label.
        drawn: ``whole`` of each bootstrap sample of images, (draws,); NaN for a sample without a label.
    """

    whole: Metric | None
    joints: tuple[Metric | None, ...]
    drawn: npt.NDArray[np.float64]


def require_fit(recipe: Recipe, manifest: Manifest) -> None:
    """Check that the data set has the joints in ``task.pck_joints``.

    Raises:
        SettingsError: a joint is unknown.
    """
    known = manifest.skeleton.annotated
    if strange := [joint for joint in PoseSettings.of(recipe).pck_joints or () if joint not in known]:
        raise SettingsError(f"task.pck_joints: got {strange[0]}, expected two of {', '.join(known)}")


def pck(evaluation: COCOeval, pair: Pair | None) -> Pck:
    """Compute the PCK of a judged evaluation.

    Args:
        evaluation: see :func:`podline.kinds.pose.oks.judged`.
        pair: names of the two joints whose distance is the length; None for the diagonal of the box.
    """
    counts = np.array(_counts(evaluation, pair))
    counts = np.concatenate([counts.sum(axis=-1, keepdims=True), counts], axis=-1)
    drawn = np.array([_shares(*np.tensordot(counts, times, (1, 0))) for times in drawn_times(counts.shape[1])])
    values = [
        interval_of(float(share), of) if share >= 0 else None
        for share, of in zip(_shares(*counts.sum(axis=1)), drawn.T, strict=True)
    ]
    return Pck(values[0], tuple(values[1:]), drawn[:, 0])


def _counts(evaluation: COCOeval, pair: Pair | None) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the number of close joints and of labelled joints, (images, joints) each."""
    names, places = joint_names(evaluation), {image: place for place, image in enumerate(evaluation.params.imgIds)}
    close, labelled = np.zeros((2, len(places), len(names)), np.int64)
    ends = [names.index(joint) for joint in pair] if pair else None
    for annotation, result in _matched(evaluation):
        truth, place = np.reshape(annotation["keypoints"], (-1, 3)), places[annotation["image_id"]]
        length = _length(annotation, truth, ends)
        if length is None:
            continue
        labelled[place] += truth[:, 2] > 0
        if result:
            pose = np.reshape(result["keypoints"], (-1, 3))
            near = np.hypot(*(pose - truth)[:, :2].T) <= SHARE * length
            close[place] += near & (truth[:, 2] > 0) & pose.any(axis=1)
    return close, labelled


def _length(annotation: Person, truth: npt.NDArray[Any], ends: list[int] | None) -> float | None:
    """Return the length of an instance; None if one of the two joints has no label."""
    if ends is None:
        return float(np.hypot(*annotation["bbox"][2:]))
    return float(np.hypot(*np.diff(truth[ends, :2], axis=0)[0])) if (truth[ends, 2] > 0).all() else None


def _matched(evaluation: COCOeval) -> Iterator[tuple[Person, Person | None]]:
    """Yield every instance that counts with the result that is paired with it, or None."""
    found: Any = evaluation.cocoDt.anns
    for image in image_matches(evaluation):
        results = _results(image)
        for person in image.people:
            yield people_in(evaluation)[person], found.get(results.get(person))


def _results(image: ImageMatches) -> dict[int, int]:
    """Return the id of the result that is paired with each instance of one image, by the instance's number."""
    results = dict(zip(image.matches, image.results, strict=True))
    remaining = {*image.people} - results.keys()
    for row, (result, match, ignored) in enumerate(zip(image.results, image.matches, image.ignored, strict=True)):
        if remaining and not (match or ignored):
            oks, nearest = max((image.similarity[row][each], each) for each in remaining)
            if oks > 0:
                results[nearest] = result
                remaining.remove(nearest)
    return results


def _shares(close: npt.NDArray[np.int64], labelled: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.where(labelled > 0, close / np.maximum(labelled, 1), np.nan)
