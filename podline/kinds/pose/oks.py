"""Computes COCO's keypoint measure: average precision by object keypoint similarity (OKS).

See https://cocodataset.org/#keypoints-eval. The figures are exactly pycocotools'. This module adds a table by
joint, and figures for cases that pycocotools does not handle (no results at all).

The OKS of a detected and an annotated person is the mean over labelled joints of ``exp(-d² / 2 s² k²)``. ``d`` is the
joint's distance, ``s²`` the person's area and ``k`` a constant of the joint. 1 is perfect, 0.5 a rough fit.
"""

# pyright: standard
from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from podline.base.frozen import Frozen
from podline.kinds.pose.coco_results import Person, Results, Truth, judged_joints
from podline.kinds.pose.figures import JointFigures, ThresholdFigures

MATCH = 0.5
"""The least OKS at which a person counts as found, and the least similarity at which a joint counts as close."""


class OksFigures(Frozen):
    """pycocotools' ten figures, 0…1; -1 if no annotated person has the figure's size.

    They are average precision (AP) and average recall (AR). ``ap`` and ``ar`` are means over the OKS thresholds 0.5,
    0.55 … 0.95; the other figures are at one threshold, or for people of medium (32² to 96² pixels) or large area.
    """

    ap: float
    ap50: float
    ap75: float
    ap_medium: float
    ap_large: float
    ar: float
    ar50: float
    ar75: float
    ar_medium: float
    ar_large: float


class OksEvaluation(Frozen):
    """The evaluation of results against annotations.

    Attributes:
        images: number of annotated images; each counts once.
        people: number of annotated people with a labelled joint, without crowds.
        results: number of detected people.
        figures: pycocotools' figures.
        joints: one entry per joint of the category, in its order.
        score_threshold: the score threshold with the best F1 measure at OKS 0.5, for use on other data; None without a
            correct result.
    """

    images: int
    people: int
    results: int
    figures: OksFigures
    joints: tuple[JointFigures, ...]
    score_threshold: float | None


def judged(truth: Truth, results: Results) -> COCOeval:
    """Evaluate results against annotations with pycocotools."""
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints
        return _evaluated(truth, results)


def tables(evaluation: COCOeval) -> OksEvaluation:
    """Return all figures of a :func:`judged` evaluation."""
    matches = _Matches(evaluation)
    return OksEvaluation(
        images=len(evaluation.cocoGt.imgs),
        people=len(matches.people),
        results=len(evaluation.cocoDt.anns),
        figures=OksFigures(**dict(zip(OksFigures.model_fields, evaluation.stats.tolist(), strict=True))),
        joints=_joint_table(matches, joint_names(evaluation)),
        score_threshold=_best_threshold(matches),
    )


def at_threshold(evaluation: COCOeval, score: float) -> ThresholdFigures:
    """Return the counts of a :func:`judged` evaluation without results below a score."""
    matches = _Matches(evaluation)
    kept = [right for found, right in matches.scores if found >= score]
    return ThresholdFigures(score=score, kept=len(kept), right=sum(kept), people=len(matches.people))


def people_in(evaluation: COCOeval) -> Mapping[int, Person]:
    """Return the annotations of a :func:`judged` evaluation by their number in the truth, from 1."""
    annotations: Any = evaluation.cocoGt.anns
    return annotations


def joint_names(evaluation: COCOeval) -> tuple[str, ...]:
    """Return the joint names of a :func:`judged` evaluation, in the order in which annotations list the joints."""
    truth: Any = evaluation.cocoGt.dataset
    return judged_joints(truth)[0]


class CloseJoints(NamedTuple):
    """The joints of an annotated person that a network found.

    Attributes:
        image_id: id of the image.
        labelled: which joints are labelled, bool (joints,).
        close: which labelled joints the network predicts closely, bool (joints,); none if the person was not found.
        result: id of the result that matches this person at OKS 0.5, or None.
    """

    image_id: int
    labelled: npt.NDArray[np.bool_]
    close: npt.NDArray[np.bool_]
    result: int | None


def close_joints(evaluation: COCOeval) -> dict[int, CloseJoints]:
    """Return the close joints and the matching result of every person that counts, by number in the truth."""
    matches, found = _Matches(evaluation), dict[int, CloseJoints]()
    for person, annotation in matches.people.items():
        labelled, result = np.reshape(annotation["keypoints"], (-1, 3))[:, 2] > 0, matches.results.get(person)
        close = np.zeros(len(labelled), bool) if result is None else matches.closeness(annotation, result) >= MATCH
        found[person] = CloseJoints(
            annotation["image_id"], labelled, labelled & close, None if result is None else result["id"]
        )
    return found


def _evaluated(truth: Truth, results: Results) -> COCOeval:
    # pycocotools stores the id of a match, where 0 means no match, so the copied annotations are numbered from 1.
    annotations = [{**annotation, "id": number} for number, annotation in enumerate(truth["annotations"], start=1)]
    wanted = _coco(truth, annotations)
    copies: Any = [dict(result) for result in results]
    found = wanted.loadRes(copies) if results else _coco(truth, [])
    evaluation = COCOeval(wanted, found, "keypoints")
    evaluation.params.kpt_oks_sigmas = np.array(judged_joints(truth)[1])
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return evaluation


def _coco(truth: Truth, annotations: Results) -> COCO:
    coco: Any = COCO()
    coco.dataset = {**truth, "annotations": annotations}
    coco.createIndex()
    return coco


class _Matches:
    """The matches of people and results at OKS 0.5, for all sizes.

    Attributes:
        people: annotations that count, by their number in the truth, from 1.
        results: the matching result, by the annotation's number.
        scores: (score, right) of the results that count; ``right`` is whether the result matches a person.
    """

    def __init__(self, evaluation: COCOeval) -> None:
        self.people: dict[int, Person] = {}
        self.results: dict[int, Person] = {}
        self.scores: list[tuple[float, bool]] = []
        self.sigmas: npt.NDArray[np.float64] = evaluation.params.kpt_oks_sigmas
        all_sizes = evaluation.params.areaRng[0]
        for image in evaluation.evalImgs:
            if image is None or image["aRng"] != all_sizes:
                continue
            for person, ignored in zip(image["gtIds"], image["gtIgnore"], strict=True):
                if not ignored:
                    self.people[person] = dict(evaluation.cocoGt.anns[person])
            for result, person, ignored, score in zip(
                image["dtIds"], image["dtMatches"][0], image["dtIgnore"][0], image["dtScores"], strict=True
            ):
                if not ignored:
                    self.scores.append((score, person > 0))
                    if person > 0:
                        self.results[int(person)] = dict(evaluation.cocoDt.anns[result])

    def closeness(self, annotation: Person, result: Person) -> npt.NDArray[np.float64]:
        """Return the similarity of each joint, 0…1, (joints,); only defined for labelled joints."""
        return np.exp(-_squares(annotation, result) / (2 * self.sigmas) ** 2 / 2)


def _squares(annotation: Person, result: Person) -> npt.NDArray[np.float64]:
    """Return the squared distance of each joint divided by the person's area, (joints,)."""
    truth, pose = (np.reshape(person["keypoints"], (-1, 3))[:, :2] for person in (annotation, result))
    return ((pose - truth) ** 2).sum(axis=-1) / (annotation["area"] + np.spacing(1))


def _joint_table(matches: _Matches, names: tuple[str, ...]) -> tuple[JointFigures, ...]:
    labelled = np.zeros(len(names), int)
    similarities: list[list[float]] = [[] for _ in names]
    distances: list[list[float]] = [[] for _ in names]
    for person, annotation in matches.people.items():
        truth = np.reshape(annotation["keypoints"], (-1, 3))
        labelled += truth[:, 2] > 0
        result = matches.results.get(person)
        if result is None:
            continue
        pose, squares = np.reshape(result["keypoints"], (-1, 3)), _squares(annotation, result)
        closeness = matches.closeness(annotation, result)
        for joint in np.flatnonzero(truth[:, 2] > 0):
            similarities[joint].append(closeness[joint])
            if pose[joint].any():
                distances[joint].append(float(np.sqrt(squares[joint])))
    return tuple(
        JointFigures(
            joint=name,
            labelled=int(count),
            in_found=len(close),
            close=sum(value >= MATCH for value in close),
            similarity=float(np.mean(close)) if close else 0.0,
            distance=float(np.median(far)) if far else None,
        )
        for name, count, close, far in zip(names, labelled, similarities, distances, strict=True)
    )


def _best_threshold(matches: _Matches) -> float | None:
    """Return the score threshold with the best F1; results of equal score are kept or dropped together."""
    if not matches.results:
        return None
    scores = np.array([score for score, _ in matches.scores])
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum(np.array([right for _, right in matches.scores])[order])
    f1 = 2 * right / (np.arange(1, len(order) + 1) + len(matches.people))
    last_of_its_score = np.append(np.diff(scores[order]) < 0, True)
    return float(scores[order][np.argmax(np.where(last_of_its_score, f1, -1))])
