"""The kind of task that finds people and their joints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podline.kinds.contract import Kind
from podline.kinds.pose.document import PoseEvaluation
from podline.kinds.pose.settings import PoseSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import keras  # pyright: ignore[reportMissingTypeStubs]

    from podline.arrays import Arrays
    from podline.data.reader import SplitReader
    from podline.documents.manifest import Manifest
    from podline.documents.metric import Metric
    from podline.documents.model_description import ModelDescription
    from podline.drawing.picture_sheet import Block, Picture
    from podline.evaluation.case import Case, Judgement
    from podline.frozen import JsonObject
    from podline.kinds.pose.answers import PoseAnswers
    from podline.kinds.pose.lost_people import FoundPair
    from podline.kinds.pose.objective import Pose as PoseObjective
    from podline.kinds.pose.predicting import PeopleReader
    from podline.kinds.pose.records import PeopleTargets
    from podline.progress import Reporter
    from podline.promotion.figure import Rule
    from podline.recipes.settings import Recipe
    from podline.reporting.facts import RunFacts
    from podline.reporting.pairs import Judged, LostExamples
    from podline.reporting.sections import Section
    from podline.reporting.verdict import Headline
    from podline.stages.specs import TrainSpec
    from podline.stages.tools import ShowSpec
    from podline.store.contract import Store


class Pose(Kind["PoseEvaluation", "FoundPair"]):
    """People and their joints."""

    name = "pose"
    settings = PoseSettings
    document = PoseEvaluation
    examples = "people"
    caption = "COCO’s AP over OKS 0.50…0.95, by pycocotools; bars are 95 % intervals (bootstrap over images)."
    lost = "Found before, not now: the {shown} images that lost the most joints"
    says = "what {} finds"
    large_pictures = True
    lost_hint = "; instances that only the first finds are framed, joints are ringed"

    def targets(self) -> PeopleTargets:
        """Return what records hold: people."""
        from podline.kinds.pose.records import PeopleTargets

        return PeopleTargets()

    def require_fit(self, recipe: Recipe, manifest: Manifest) -> None:
        """Refuse another side or skeleton than the data set's; see :meth:`Kind.require_fit`."""
        from podline.kinds.pose.augmentation import require_fit

        require_fit(recipe, manifest)

    def objective(self, recipe: Recipe, manifest: Manifest) -> PoseObjective:
        """Return the distance to the maps that are drawn from the keypoints."""
        from podline.kinds.pose.objective import pose_objective

        return pose_objective(recipe, manifest)

    def model(self, recipe: Recipe, manifest: Manifest) -> keras.Model:
        """Return a pose network."""
        from podline.kinds.pose.network import pose_model

        return pose_model(recipe, manifest)

    def description(
        self, recipe: Recipe, image_shape: tuple[int, int, int], classes: int, facts: JsonObject
    ) -> ModelDescription:
        """Return a pose network's layers and costs; COCO's people where no skeleton is known yet."""
        from podline.documents.skeleton import COCO, SKELETON, Skeleton
        from podline.kinds.pose.network import build_pose_model
        from podline.models.counts import described

        skeleton = Skeleton.model_validate(facts[SKELETON]) if facts else COCO
        poses, no_change = PoseSettings.of(recipe), ([0.0] * 3, [1.0] * 3)
        return described(build_pose_model(poses.model, poses.side, poses.targets.stride, skeleton, *no_change))

    def judge(self, case: Case) -> Judgement:
        """Judge a pose network; the people found lie beside the document."""
        from podline.kinds.pose.judging import judge

        return judge(case)

    def parts(self, document: PoseEvaluation) -> dict[str, Metric]:
        """Return each joint's share of labelled places where it is close."""
        from podline.intervals import wilson_interval

        return {joint.joint: wilson_interval(joint.close, joint.labelled) for joint in document.joints}

    def reader(
        self, store: Store, training: TrainSpec, manifest: Manifest, threshold: float | None, reporter: Reporter
    ) -> PeopleReader:
        """Return what finds people in pictures."""
        from podline.kinds.pose.predicting import reader

        return reader(store, training, manifest, threshold, reporter)

    def drawn(self, records: Arrays, manifest: Manifest) -> list[Picture]:
        """Return images with the people of their records."""
        from podline.kinds.pose.sheet import drawn

        return drawn(records, manifest)

    def asked(
        self, spec: ShowSpec, model: keras.Model, store: Store, manifest: Manifest, reporter: Reporter
    ) -> tuple[Block, int, int]:
        """Return the first test images with people: whom the run finds, and who is labelled."""
        from podline.kinds.pose.sheet import asked

        return asked(spec, model, store, manifest, reporter)

    def headline(self, run: RunFacts) -> Headline:
        """Return what the top of a pose network's report says."""
        from podline.kinds.pose.sections import headline

        return headline(run)

    def sections(self) -> Iterable[Section]:
        """Return the sections of a pose network's report."""
        from podline.kinds.pose import sections
        from podline.reporting.sections import sections_in

        return sections_in(sections)

    def rules(self) -> Sequence[Rule]:
        """Return the rules for pose networks."""
        from podline.kinds.pose import rules

        return (rules.average_precision, rules.joints, rules.guards)

    def pair(self, store: Store, before: Judged, after: Judged) -> FoundPair:
        """Return the people that two networks find in the same images."""
        from podline.kinds.pose.pairs import pair

        return pair(store, before, after)

    def lost_examples(
        self, pair: FoundPair, reader: SplitReader, before: PoseEvaluation, after: PoseEvaluation
    ) -> LostExamples:
        """Return images in which the second finds fewer joints."""
        from podline.kinds.pose.pairs import lost_examples

        return lost_examples(pair, reader, before, after)

    def answers(self) -> PoseAnswers:
        """Return how people are read and looked for."""
        from podline.kinds.pose.answers import PoseAnswers

        return PoseAnswers()
