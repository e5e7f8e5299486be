"""The measure of COCO's keypoint challenge: average precision by object keypoint similarity (OKS).

https://cocodataset.org/#keypoints-eval. The figures are pycocotools' own, to the last digit; added are what it does not
give: tables by joint and by size, and answers where it gives up (no results at all).

OKS of a person found and a person in truth: the mean over labelled joints of ``exp(-d² / 2 s² k²)``, where ``d`` is the
distance, ``s²`` the person's area and ``k`` a constant of the joint: 1 is perfect, 0.5 a rough fit.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from podline.errors import SourceError
from podline.frozen import Frozen
from podline.kinds.pose.coco_results import Person, Results, Truth, check_results, check_truth, judged_joints
from podline.kinds.pose.figures import JointFigures, SizeFigures, ThresholdFigures

SIZES = ((0, 32), (32, 64), (64, 96), (96, 128), (128, 192), (192, 100_000))
"""The table's classes: from and to, roots of areas in pixels of the image."""


MATCH = 0.5
"""The OKS from which a person counts as found in the tables, and the similarity from which a joint counts as close."""


class OksFigures(Frozen):
    """pycocotools' ten figures, 0…1; -1 where there are no people of that size.

    Average precision (AP) and average recall (AR) over the OKS thresholds 0.5, 0.55 … 0.95, at single thresholds, and
    for people of medium (32² to 96² pixels) and large area.
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
    """Results held against truth.

    Attributes:
        images: in truth; each counts once.
        people: in truth, with a labelled joint, crowds left out.
        results: how many people were found or thought to be found.
        figures: pycocotools' figures.
        joints: those of the truth's category, in its order.
        sizes: one entry for each of :data:`SIZES`.
        score_threshold: the score from which on results have the best F1 measure at OKS 0.5; None without a result
            that is right. To be used on other data than these.
    """

    images: int
    people: int
    results: int
    figures: OksFigures
    joints: tuple[JointFigures, ...]
    sizes: tuple[SizeFigures, ...]
    score_threshold: float | None


def evaluate_results(truth: Truth, results: Results) -> OksEvaluation:
    """Evaluate COCO results.

    Raises:
        SourceError: one of them is not what it should be, or a result belongs to an image that is not in truth.
    """
    return tables(judged(truth, results))


def judged(truth: Truth, results: Results) -> COCOeval:
    """Results held against truth by pycocotools, with the table's sizes after its own three.

    No size's figures depend on another's, so its ten figures are what they would be without.

    Raises:
        SourceError: see :func:`evaluate_results`.
    """
    check_truth(truth, "truth")
    check_results(results, "results", len(judged_joints(truth)[0]))
    strange = sorted({result["image_id"] for result in results} - {image["id"] for image in truth["images"]})
    if strange:
        raise SourceError(
            f"results: {len(strange)} images are not in truth, the first is image_id={strange[0]}; "
            "give the annotations that the results were made for"
        )
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools talks
        return _evaluated(truth, results)


def tables(evaluation: COCOeval) -> OksEvaluation:
    """All figures of what :func:`judged` gave."""
    matches = _Matches(evaluation)
    return OksEvaluation(
        images=len(evaluation.cocoGt.imgs),
        people=len(matches.people),
        results=len(evaluation.cocoDt.anns),
        figures=OksFigures(**dict(zip(OksFigures.model_fields, evaluation.stats.tolist(), strict=True))),
        joints=_joint_table(matches, joint_names(evaluation)),
        sizes=_size_table(evaluation, matches),
        score_threshold=_best_threshold(matches),
    )


def at_threshold(evaluation: COCOeval, score: float) -> ThresholdFigures:
    """Return :func:`judged`'s result without detections below a score."""
    matches = _Matches(evaluation)
    kept = [right for found, right in matches.scores if found >= score]
    return ThresholdFigures(score=score, kept=len(kept), right=sum(kept), people=len(matches.people))


def people_in(evaluation: COCOeval) -> Mapping[int, Person]:
    """Truth's annotations, by id, of what :func:`judged` gave."""
    annotations: Any = evaluation.cocoGt.anns
    return annotations


def joint_names(evaluation: COCOeval) -> tuple[str, ...]:
    """Return the joints that :func:`judged` used, in the order of annotations."""
    truth: Any = evaluation.cocoGt.dataset
    return judged_joints(truth)[0]


class CloseJoints(NamedTuple):
    """A person in truth.

    Attributes:
        image_id: the image.
        labelled: which joints are labelled, (joints,).
        close: which of these were found close, (joints,); none of a person that was not found.
        result: the id of the result that found this person at OKS 0.5; None if nobody did.
    """

    image_id: int
    labelled: npt.NDArray[np.bool_]
    close: npt.NDArray[np.bool_]
    result: int | None


def close_joints(evaluation: COCOeval) -> dict[int, CloseJoints]:
    """Every person that counts, by the annotation's id: which joints are close, and who found them."""
    matches, found = _Matches(evaluation), {}
    for person, annotation in matches.people.items():
        labelled, result = np.reshape(annotation["keypoints"], (-1, 3))[:, 2] > 0, matches.results.get(person)
        close = np.zeros(len(labelled), bool) if result is None else matches.closeness(annotation, result) >= MATCH
        found[person] = CloseJoints(
            annotation["image_id"], labelled, labelled & close, None if result is None else result["id"]
        )
    return found


def _evaluated(truth: Truth, results: Results) -> COCOeval:
    annotations = [dict(annotation) for annotation in truth["annotations"]]
    wanted = _coco(truth, annotations)
    copies: Any = [dict(result) for result in results]
    found = wanted.loadRes(copies) if results else _coco(truth, [])
    evaluation = COCOeval(wanted, found, "keypoints")
    evaluation.params.kpt_oks_sigmas = np.array(judged_joints(truth)[1])
    evaluation.params.areaRng = [*evaluation.params.areaRng, *([low**2, high**2] for low, high in SIZES)]
    evaluation.params.areaRngLbl = [*evaluation.params.areaRngLbl, *(f"{low}-{high}" for low, high in SIZES)]
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
    """Match people with results at OKS 0.5, in any size range.

    Attributes:
        people: annotations that count, by id.
        results: the result that found a person, by the annotation's id.
        scores: of the results that count, with whether they are right: (score, right).
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
        """Return the similarity of each joint, 1 for a perfect one; meaningful for labelled joints only."""
        return np.exp(-_squares(annotation, result) / (2 * self.sigmas) ** 2 / 2)


def _squares(annotation: Person, result: Person) -> npt.NDArray[np.float64]:
    """Return the squared distance of each joint, as a share of the person's area."""
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


def _size_table(evaluation: COCOeval, matches: _Matches) -> tuple[SizeFigures, ...]:
    first = len(evaluation.params.areaRng) - len(SIZES)
    areas = {person: annotation["area"] for person, annotation in matches.people.items()}
    return tuple(
        SizeFigures(
            low=low,
            high=high,
            people=sum(low**2 <= area <= high**2 for area in areas.values()),
            found=sum(low**2 <= areas[person] <= high**2 for person in matches.results),
            ap=_mean(evaluation.eval["precision"][:, :, :, first + place]),
            ar=_mean(evaluation.eval["recall"][:, :, first + place]),
        )
        for place, (low, high) in enumerate(SIZES)
    )


def _mean(values: npt.NDArray[np.float64]) -> float:
    """Return the mean of the defined values; -1, as in pycocotools, if there is none."""
    present = values[values > -1]
    return float(present.mean()) if present.size else -1.0


def _best_threshold(matches: _Matches) -> float | None:
    """Return the score threshold of the best F1; results of equal score are kept or dropped together."""
    if not matches.results:
        return None
    scores = np.array([score for score, _ in matches.scores])
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum(np.array([right for _, right in matches.scores])[order])
    f1 = 2 * right / (np.arange(1, len(order) + 1) + len(matches.people))
    last_of_its_score = np.append(np.diff(scores[order]) < 0, True)
    return float(scores[order][np.argmax(np.where(last_of_its_score, f1, -1))])
