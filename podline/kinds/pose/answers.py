"""Provides the people that pose networks detect to promotion rules: from an evaluation, or by running the network."""

# pyright: standard
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pycocotools.cocoeval import COCOeval

from podline.contract.answers import Answers, CommonExamples
from podline.data.people.truth import read_truth
from podline.data.reader import open_split
from podline.data.records import IMAGE_ID
from podline.documents.any_evaluation import AnyEvaluation
from podline.documents.metric import Metric
from podline.kinds.pose import oks
from podline.kinds.pose.coco_results import Results, Truth, of_images
from podline.kinds.pose.document import read_people
from podline.kinds.pose.judging import detected
from podline.kinds.pose.oks_intervals import drawn_figures, figures_within
from podline.stages.specs import TrainSpec
from podline.store.contract import Store


class PoseAnswers(Answers[Results, COCOeval]):
    """The people that pose networks detect, as COCO results."""

    def left(self, store: Store, folder: str, evaluation: AnyEvaluation) -> Results:
        """Read the detected people from an evaluation's folder."""
        return read_people(store, folder, evaluation.split)

    def again(self, examples: CommonExamples, training: TrainSpec, model: Callable[..., Any]) -> Results:
        """Run a network on the examples, and return the detected people."""
        reader = open_split(examples.store, examples.folder, examples.manifest, examples.split)
        return detected(model, training.recipe, reader, examples.manifest, examples.reporter, examples.places)

    def part(self, examples: CommonExamples, answers: Results) -> Results:
        """Return the detected people of the compared images only."""
        images = {image["id"] for image in _truth(examples)["images"]}
        return [person for person in answers if person["image_id"] in images]

    def judged(self, examples: CommonExamples, answers: Results) -> COCOeval:
        """Evaluate the people with pycocotools."""
        return oks.judged(_truth(examples), answers)

    def main(self, examples: CommonExamples, answers: Results) -> Metric:
        """Return the AP with its interval; 0 without an interval if no annotated person counts."""
        evaluation = self.judged(examples, answers)
        return figures_within(evaluation, drawn_figures(evaluation)).get("ap", Metric(value=0.0, low=0.0, high=0.0))


def _truth(examples: CommonExamples) -> Truth:
    """Return the COCO annotations of the compared images."""
    store, folder, manifest, split = examples.store, examples.folder, examples.manifest, examples.split
    truth = read_truth(store, folder, manifest, split)
    if examples.places is None:
        return truth
    found = open_split(store, folder, manifest, split).gather(examples.places, [IMAGE_ID])
    return of_images(truth, found[IMAGE_ID].reshape(-1).tolist())
