"""Pose networks for the rules of promotion."""

from __future__ import annotations

import json
from typing import Any

import tensorflow as tf
from pycocotools.cocoeval import COCOeval

from podline.data.reader import open_split
from podline.data.records import IMAGE_ID
from podline.data.sources.coco_truth import read_truth
from podline.documents.metric import Metric
from podline.documents.pose_evaluation import PoseEvaluation, read_people
from podline.errors import SettingsError
from podline.evaluation.forward import News
from podline.evaluation.oks import judged, tables
from podline.evaluation.oks_intervals import figures_within
from podline.evaluation.poses import FIELDS, find_people, pose_answers
from podline.input.pipeline import EvaluationInput
from podline.promotion.comparing import JudgedModel, JudgedSplit
from podline.promotion.rules import Guarded, ModelFigures, Paired
from podline.promotion.standings import paired_poses, pose_figures, pose_standing
from podline.recipes.promotion_settings import PromotionSettings
from podline.stages.specs import TrainSpec
from podline.store.contract import Store


class PoseComparison:
    """See :class:`podline.promotion.comparing.ModelComparison`; what a model said are people, as COCO results."""

    def left(self, store: Store, folder: str, evaluation: PoseEvaluation) -> JudgedModel:
        """A network as its evaluation left it."""
        return JudgedModel(pose_figures(evaluation), read_people(store, folder, evaluation.split))

    def anew(self, examples: JudgedSplit, training: TrainSpec, model: Any) -> JudgedModel:
        """A network judged on the examples now."""
        poses, size = training.recipe.poses, training.recipe.evaluation_batch_size
        reader = open_split(examples.store, examples.folder, examples.manifest, examples.split)
        batches = EvaluationInput(reader, examples.manifest, FIELDS, batch_size=size)
        news = News(examples.reporter, batches.count)
        people = find_people(pose_answers(model, tf.distribute.get_strategy(), poses), batches, poses, news.done)
        # As it would come back from a file.
        people = json.loads(json.dumps(people))
        reader.require_unchanged()
        return JudgedModel(_figures(training.run, judged(_truth(examples), people)), people)

    def part(self, examples: JudgedSplit, model: JudgedModel) -> JudgedModel:
        """A network on some of the images."""
        truth = _truth(examples)
        images = {image["id"] for image in truth["images"]}
        people = [person for person in model.said if person["image_id"] in images]
        return JudgedModel(_figures(model.figures.run, judged(truth, people)), people)

    def paired(
        self, examples: JudgedSplit, before: JudgedModel, after: JudgedModel, rules: PromotionSettings
    ) -> Paired:
        """Two networks on the same images."""
        truth = _truth(examples)
        return paired_poses(judged(truth, before.said), judged(truth, after.said), rules)

    def guarded(
        self,
        examples: JudgedSplit,  # noqa: ARG002 (no package adds measures of people)
        before: JudgedModel,  # noqa: ARG002
        after: JudgedModel,
        rules: PromotionSettings,
    ) -> list[Guarded]:
        """None: measures are added of classes only."""
        if rules.guards:
            name, run = rules.guards[0], after.figures.run
            raise SettingsError(f"promotion.guards: {name} is a measure of classes, and {run} finds people")
        return []


def _figures(run: str, evaluation: COCOeval) -> ModelFigures:
    found = tables(evaluation)
    none = Metric(value=found.figures.ap, low=found.figures.ap, high=found.figures.ap)
    return pose_standing(run, figures_within(evaluation).get("ap", none), found.people, found.joints)


def _truth(examples: JudgedSplit) -> dict[str, Any]:
    """The annotations of the images that count."""
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
