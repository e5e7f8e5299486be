"""Figures of pose networks for the rules of promotion: AP, and each joint's share of close ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from pycocotools.cocoeval import COCOeval

from podline.data.reader import open_split
from podline.data.records import IMAGE_ID
from podline.data.sources.coco_truth import read_truth
from podline.documents.pose_evaluation import PoseEvaluation, read_people
from podline.errors import SettingsError
from podline.evaluation.forward import News
from podline.evaluation.oks import CloseJoints, close_joints, joint_names, judged
from podline.evaluation.oks_intervals import drawn_figures, figures_of
from podline.evaluation.poses import FIELDS, find_people, pose_answers
from podline.input.pipeline import EvaluationInput
from podline.promotion.class_figures import Shares, number_figure, with_margins
from podline.promotion.comparing import JudgedSplit
from podline.promotion.rules import LEAST_EXAMPLES, Figure
from podline.recipes.promotion_settings import PromotionSettings
from podline.stages.specs import TrainSpec
from podline.store.contract import Store


class PoseComparison:
    """See :class:`podline.promotion.comparing.ModelComparison`; what a model said are people, as COCO results."""

    def left(self, store: Store, folder: str, evaluation: PoseEvaluation) -> Any:
        """Read the people in an evaluation's folder."""
        return read_people(store, folder, evaluation.split)

    def anew(self, examples: JudgedSplit, training: TrainSpec, model: Any) -> Any:
        """Ask a network about the examples now."""
        poses, size = training.recipe.poses, training.recipe.evaluation_batch_size
        reader = open_split(examples.store, examples.folder, examples.manifest, examples.split)
        batches = EvaluationInput(reader, examples.manifest, FIELDS, batch_size=size)
        news = News(examples.reporter, batches.count)
        people = find_people(pose_answers(model, tf.distribute.get_strategy(), poses), batches, poses, news.done)
        reader.require_unchanged()
        # As it would come back from a file.
        return json.loads(json.dumps(people))

    def part(self, examples: JudgedSplit, said: Any) -> Any:
        """Return the people in the images that count."""
        images = {image["id"] for image in _truth(examples)["images"]}
        return [person for person in said if person["image_id"] in images]

    def main(self, examples: JudgedSplit, said: Any) -> float:
        """Return AP."""
        return figures_of(judged(_truth(examples), said)).get("ap", 0.0)

    def figures(
        self, examples: JudgedSplit, known: Sequence[Any], candidate: Any, settings: PromotionSettings
    ) -> list[Figure]:
        """Return the figures of a candidate beside the known trainings, the reference first."""
        if settings.guards:
            raise SettingsError(
                f"promotion.guards: got {settings.guards[0]}, expected none: installed measures are of classes"
            )
        truth = _truth(examples)
        return joint_figures([judged(truth, people) for people in known], judged(truth, candidate), settings)


def joint_figures(known: Sequence[COCOeval], candidate: COCOeval, settings: PromotionSettings) -> list[Figure]:
    """Return AP and each joint of a candidate beside known trainings on the same images."""
    values = [figures_of(each).get("ap", 0.0) for each in (*known, candidate)]
    drawn = [drawn_figures(each).get("ap", np.zeros(2)) for each in (known[0], candidate)]
    single, both = (float(np.nanvar(each, ddof=1)) for each in (drawn[0], drawn[1] - drawn[0]))
    main = number_figure("AP", "ap", values[:-1], values[-1], both, single / 2, "main")
    return with_margins([main, *_joints(known, candidate, settings)], settings)


def _joints(known: Sequence[COCOeval], candidate: COCOeval, settings: PromotionSettings) -> list[Figure]:
    """Return a figure of each joint with enough examples. People of one image are found or missed together."""
    people, now = [close_joints(each) for each in known], close_joints(candidate)
    names, were, are = [], [], []
    for place, name in enumerate(joint_names(candidate)):
        having = [person for person, joints in now.items() if joints.labelled[place]]
        if len(having) >= LEAST_EXAMPLES:
            names.append(name)
            were.append(np.stack([_by_image(having, each, place) for each in people]))
            are.append(_by_image(having, now, place))
    shares = Shares(were, are)
    return shares.figures("joint", names, "top1", shares.expected(settings.part_spread))


def _by_image(having: Sequence[int], people: dict[int, CloseJoints], place: int) -> npt.NDArray[np.float64]:
    """Return the close joints of each image, scaled so that their mean is the share of close ones, (images,)."""
    images: dict[int, int] = {}
    for person in having:
        joints = people[person]
        images[joints.image_id] = images.get(joints.image_id, 0) + int(joints.close[place])
    return np.array([images[image] for image in sorted(images)], float) * len(images) / len(having)


def _truth(examples: JudgedSplit) -> dict[str, Any]:
    """Return the annotations of the images that count."""
    store, folder, manifest, split = examples.store, examples.folder, examples.manifest, examples.split
    truth = read_truth(store, folder, manifest, split)
    if examples.places is None:
        return truth
    found = open_split(store, folder, manifest, split).gather(examples.places, [IMAGE_ID])
    images = set(found[IMAGE_ID].reshape(-1).tolist())
    return truth | {
        "images": [image for image in truth["images"] if image["id"] in images],
        "annotations": [person for person in truth["annotations"] if person["image_id"] in images],
    }
