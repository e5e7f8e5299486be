"""Computes COCO's keypoint measure: average precision by object keypoint similarity (OKS).

See https://cocodataset.org/#keypoints-eval. The figures are exactly pycocotools'. This module adds figures by joint and
by image, and handles the case without any results.

The OKS of a detected and an annotated person is the mean over labelled joints of ``exp(-d² / 2 s² k²)``. ``d`` is the
joint's distance, ``s²`` the person's area and ``k`` a constant of the joint. 1 is perfect, 0.5 a rough fit.
"""

# pyright: standard
from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from podline.base.arrays import Floats
from podline.kinds.pose.coco_results import Person, Results, Truth, judged_joints
from podline.kinds.pose.document import JointFigures, PeopleFigures, Ranked, ThresholdFigures

MATCH = 0.5
"""The least OKS at which a person counts as found, and the least similarity at which a joint counts as close."""
SHOWN = 3
"""The number of images in each of the groups best, median and worst."""


def judged(truth: Truth, results: Results) -> COCOeval:
    """Evaluate results against annotations with pycocotools."""
    # pycocotools stores the id of a match, where 0 means no match, so the copied annotations are numbered from 1.
    annotations = [{**annotation, "id": number} for number, annotation in enumerate(truth["annotations"], start=1)]
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints
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


def people_in(evaluation: COCOeval) -> Mapping[int, Person]:
    """Return the annotations of a :func:`judged` evaluation by their number in the truth, from 1."""
    annotations: Any = evaluation.cocoGt.anns
    return annotations


def joint_names(evaluation: COCOeval) -> tuple[str, ...]:
    """Return the joint names of a :func:`judged` evaluation, in the order in which annotations list the joints."""
    truth: Any = evaluation.cocoGt.dataset
    return judged_joints(truth)[0]


class ImageMatches(NamedTuple):
    """The matches of an image's people and results at OKS 0.5, for people of all sizes.

    Attributes:
        image_id: COCO's image id.
        people: positions in the truth's list of annotations, counted from 1, of the people that count: no crowds, and
            with a labelled joint.
        results: ids of the at most 20 detected people with the highest scores, highest first, (n,).
        matches: number of the person that each result matches, 0 for none, (n,).
        ignored: whether a result does not count, since it matches a person that does not count, (n,).
        scores: score of each result, (n,).
        similarity: OKS of each result to each annotated person: result's index → person's number → OKS.
    """

    image_id: int
    people: list[int]
    results: list[int]
    matches: list[int]
    ignored: list[bool]
    scores: list[float]
    similarity: list[dict[int, float]]


def image_matches(evaluation: COCOeval) -> Iterator[ImageMatches]:
    """Yield the matches of each image of a :func:`judged` evaluation that has annotations or results."""
    given: Any = evaluation
    for image in given.evalImgs:
        if image is None or image["aRng"] != given.params.areaRng[0]:
            continue
        key = image["image_id"], image["category_id"]
        # pycocotools has the similarities by result and annotation, in the order of the annotations.
        numbers = given.cocoGt.getAnnIds(imgIds=key[0], catIds=key[1])
        yield ImageMatches(
            image["image_id"],
            [person for person, ignored in zip(image["gtIds"], image["gtIgnore"], strict=True) if not ignored],
            image["dtIds"],
            image["dtMatches"][0].astype(int).tolist(),
            image["dtIgnore"][0].astype(bool).tolist(),
            image["dtScores"],
            [dict(zip(numbers, row, strict=True)) for row in np.asarray(given.ious[key]).tolist()],
        )


class CloseJoints(NamedTuple):
    """The joints of an annotated person that a network found.

    Attributes:
        image_id: id of the image.
        labelled: which joints are labelled, bool (joints,).
        similarity: similarity of each joint to its label, 0…1, (joints,); None if the person was not found.
        distance: distance of each joint from its label, as a share of the root of the person's area, (joints,); NaN for
            joints that the result lacks; None if the person was not found.
        result: id of the result that matches this person at OKS 0.5, or None.
    """

    image_id: int
    labelled: npt.NDArray[np.bool_]
    similarity: Floats | None
    distance: Floats | None
    result: int | None

    @property
    def close(self) -> npt.NDArray[np.bool_]:
        """Which labelled joints the network predicts closely, bool (joints,); none if the person was not found."""
        return self.labelled & (self.similarity >= MATCH) if self.similarity is not None else self.labelled & False


def close_joints(evaluation: COCOeval) -> dict[int, CloseJoints]:
    """Return the close joints and the matching result of every person that counts, by number in the truth."""
    found, sigmas = dict[int, CloseJoints](), evaluation.params.kpt_oks_sigmas
    results: Any = evaluation.cocoDt.anns
    for image in image_matches(evaluation):
        matching = dict(zip(image.matches, image.results, strict=True))
        for person in image.people:
            annotation, result = people_in(evaluation)[person], matching.get(person)
            truth = np.reshape(annotation["keypoints"], (-1, 3))
            similarity = distance = None
            if result is not None:
                pose = np.reshape(results[result]["keypoints"], (-1, 3))
                squares = ((pose - truth)[:, :2] ** 2).sum(axis=-1) / (annotation["area"] + np.spacing(1))
                similarity = np.exp(-squares / (2 * sigmas) ** 2 / 2)
                distance = np.where(pose.any(axis=1), np.sqrt(squares), np.nan)
            found[person] = CloseJoints(image.image_id, truth[:, 2] > 0, similarity, distance, result)
    return found


def joint_figures(evaluation: COCOeval) -> tuple[JointFigures, ...]:
    """Return the figures of each joint of the category, in the category's order."""
    people, names = [*close_joints(evaluation).values()], joint_names(evaluation)
    return tuple(_joint_figures(name, joint, people) for joint, name in enumerate(names))


def _joint_figures(name: str, joint: int, people: list[CloseJoints]) -> JointFigures:
    labelled = [person for person in people if person.labelled[joint]]
    similar = [person.similarity[joint] for person in labelled if person.similarity is not None]
    distances = np.array([person.distance[joint] for person in labelled if person.distance is not None])
    far = distances[~np.isnan(distances)]
    return JointFigures(
        joint=name,
        labelled=len(labelled),
        in_found=len(similar),
        close=sum(value >= MATCH for value in similar),
        similarity=float(np.mean(similar)) if similar else 0.0,
        distance=float(np.median(far)) if far.size else None,
    )


def at_threshold(evaluation: COCOeval, score: float) -> ThresholdFigures:
    """Return the counts of a :func:`judged` evaluation without results below a score."""
    scores, people = _scores(evaluation)
    kept = [right for found, right in scores if found >= score]
    return ThresholdFigures(score=score, kept=len(kept), right=sum(kept), people=people)


def _scores(evaluation: COCOeval) -> tuple[list[tuple[float, bool]], int]:
    """Return (score, whether it matches a person) of each result that counts, and the number of people that count."""
    images = list(image_matches(evaluation))
    scores = [
        (score, match > 0)
        for image in images
        for match, ignored, score in zip(image.matches, image.ignored, image.scores, strict=True)
        if not ignored
    ]
    return scores, sum(len(image.people) for image in images)


def score_threshold(evaluation: COCOeval) -> float | None:
    """Return the score threshold with the best F1 at OKS 0.5, for use on other data; None without a correct result.

    Results of equal score are kept or dropped together.
    """
    found, people = _scores(evaluation)
    scores, right = (np.array([each[place] for each in found]) for place in (0, 1))
    if not right.any():
        return None
    order = np.argsort(-scores, kind="stable")
    f1 = 2 * np.cumsum(right[order]) / (np.arange(1, len(order) + 1) + people)
    last_of_its_score = np.append(np.diff(scores[order]) < 0, True)
    return float(scores[order][np.argmax(np.where(last_of_its_score, f1, -1))])


def by_image(evaluation: COCOeval, threshold: float) -> list[PeopleFigures]:
    """Return the figures of each image with labelled people, sorted by image id."""
    found = [_people_figures(image, threshold) for image in image_matches(evaluation) if image.people]
    return sorted(found, key=lambda image: image.image_id)


def _people_figures(image: ImageMatches, threshold: float) -> PeopleFigures:
    rows = zip(image.matches, image.ignored, image.scores, image.similarity, strict=True)
    counted = [(match, score, row) for match, ignored, score, row in rows if not ignored]
    matched = [row[match] for match, _, row in counted if match]
    false_alarms = sum(not match and score >= threshold for match, score, _ in counted)
    return PeopleFigures(
        image_id=image.image_id,
        people=len(image.people),
        found=len(matched),
        false_alarms=false_alarms,
        quality=sum(matched) / (len(image.people) + false_alarms),
    )


def ranked(images: list[PeopleFigures], shown: int = SHOWN) -> Ranked:
    """Return the best, the median and the worst images, at most ``shown`` of each."""
    order = sorted(images, key=lambda image: (-image.quality, -image.people, image.image_id))
    shown = min(shown, len(order) // 3) or min(1, len(order))
    best, rest = order[:shown], order[shown:]
    worst = sorted(rest, key=lambda image: (image.quality, -image.people, image.image_id))[:shown]
    between = [image for image in rest if image not in worst]
    first = max(0, (len(between) - shown) // 2)
    return Ranked(best=tuple(best), median=tuple(between[first : first + shown]), worst=tuple(worst))
