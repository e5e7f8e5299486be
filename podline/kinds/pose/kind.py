"""The kind of task that detects people and their joints."""

# pyright: standard
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import keras

from podline.base.arrays import Arrays
from podline.base.drawing.picture_sheet import SheetBlock, SheetPicture
from podline.base.frozen import JsonObject
from podline.base.progress import Reporter
from podline.contract.answers import LostExamples
from podline.contract.case import Case, Judgement
from podline.contract.objective import Objective
from podline.contract.picture_reader import PictureReader
from podline.contract.rules import Compared, Rule
from podline.data.reader import SplitReader
from podline.documents.any_evaluation import AnyEvaluation
from podline.documents.manifest import Manifest
from podline.documents.model_description import ModelDescription
from podline.documents.skeleton import COCO, SKELETON, Skeleton
from podline.kinds.pose import augmentation, judging, lost_answers, network, pck, rules, sections, sheet
from podline.kinds.pose.answers import PoseAnswers
from podline.kinds.pose.document import PoseEvaluation
from podline.kinds.pose.objective import pose_objective
from podline.kinds.pose.predicting import PeopleReader
from podline.kinds.pose.settings import PoseSettings
from podline.models.counts import described
from podline.recipes.settings import Recipe
from podline.report.facts import RunFacts
from podline.report.kind_report import Headline, ReportedKind
from podline.report.sections import Section, sections_in
from podline.stages.specs import TrainSpec
from podline.stages.tools import ShowSpec
from podline.store.contract import Store


class PoseKind(ReportedKind):
    """The kind of people and their joints."""

    def require_fit(self, recipe: Recipe, manifest: Manifest) -> None:
        """Check that the settings of augmentation and PCK fit the skeleton, and the input the images' size."""
        augmentation.require_fit(recipe, manifest)
        pck.require_fit(recipe, manifest)

    def objective(self, recipe: Recipe, manifest: Manifest) -> Objective:
        """Build the objective that compares heatmaps and fields with their targets."""
        return pose_objective(recipe, manifest)

    def model(self, recipe: Recipe, manifest: Manifest) -> keras.Model:
        """Build the pose network; it normalises images by the statistics of the training split."""
        poses, split = PoseSettings.of(recipe).on(manifest.facts), manifest.split("train")
        fixed = poses.model, poses.side, poses.targets.stride, manifest.skeleton
        return network.build_pose_model(*fixed, split.mean, split.std, recipe.seed, recipe.precision)

    def judge(self, case: Case) -> Judgement:
        """Evaluate a network by the people that it detects."""
        return judging.judge(case, *(judging.pose_answers(model, case.strategy) for model in (case.before, case.after)))

    def reader(
        self, store: Store, training: TrainSpec, manifest: Manifest, threshold: float | None, reporter: Reporter
    ) -> PictureReader:
        """Return the reader of pictures for a run's model; by default with the threshold that its evaluation chose."""
        if threshold is None:
            threshold = judging.chosen_threshold(store, training.folder)
        if threshold is None:
            threshold = 0.0
            reporter.warn(
                "instances of any score are drawn, since no evaluation chose a score threshold; give --threshold"
            )
        return PeopleReader(PoseSettings.of(training.recipe), threshold, manifest.skeleton)

    def drawn(self, records: Arrays, manifest: Manifest) -> list[SheetPicture]:
        """Return images with the people of their records."""
        return sheet.drawn(records, manifest)

    def sheet_block(
        self, spec: ShowSpec, model: keras.Model, store: Store, manifest: Manifest, reporter: Reporter
    ) -> tuple[SheetBlock, int, int]:
        """Return the first test images with people, detected and labelled; both numbers are 0."""
        return sheet.sheet_block(spec, model, store, manifest, reporter)

    def headline(self, run: RunFacts) -> Headline:
        """Return the AP for the top of the page."""
        return sections.headline(run)

    def lost_examples(
        self,
        compared: Compared[Any],
        reader: SplitReader,
        manifest: Manifest,
        before: AnyEvaluation,
        after: AnyEvaluation,
    ) -> LostExamples:
        """Return images in which the network of ``after`` finds fewer joints than the network of ``before``."""
        pair = PoseEvaluation.of(before), PoseEvaluation.of(after)
        return lost_answers.lost_examples(compared, reader, manifest, *pair)

    def answers(self) -> PoseAnswers:
        """Return the provider of detected people."""
        return PoseAnswers()

    def description(
        self, recipe: Recipe, image_shape: tuple[int, int, int], classes: int, facts: JsonObject
    ) -> ModelDescription:
        """Return a pose network's layers and costs, for COCO's skeleton if ``facts`` are empty."""
        skeleton = Skeleton.model_validate(facts[SKELETON]) if facts else COCO
        poses, no_change = PoseSettings.of(recipe).on(facts), ([0.0] * 3, [1.0] * 3)
        return described(network.build_pose_model(poses.model, poses.side, poses.targets.stride, skeleton, *no_change))

    def sections(self) -> Iterable[Section]:
        """Return the sections of a pose network's report."""
        return sections_in(sections)

    def rules(self) -> Sequence[Rule]:
        """Return the rules for pose networks."""
        return (rules.average_precision, rules.joints, rules.guards)
