"""The kind of task that finds people and their joints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podline.documents.pose_evaluation import PoseEvaluation
from podline.kinds.contract import Kind

if TYPE_CHECKING:
    import keras  # pyright: ignore[reportMissingTypeStubs]

    from podline.data.reader import SplitReader
    from podline.documents.manifest import Manifest
    from podline.documents.metric import Metric
    from podline.documents.model_description import ModelDescription
    from podline.documents.skeleton import Skeleton
    from podline.drawing.picture_sheet import Sheet
    from podline.evaluation.case import Case, Judgement
    from podline.evaluation.predicting_people import PeopleReader
    from podline.progress import Reporter
    from podline.promotion.kinds import PoseAnswers
    from podline.recipes.settings import Recipe
    from podline.reporting.facts import RunFacts
    from podline.reporting.lost_people import FoundPair
    from podline.reporting.pairs import Judged, LostExamples
    from podline.reporting.verdict import Headline
    from podline.stages.specs import TrainSpec
    from podline.stages.tools import ShowSpec
    from podline.store.contract import Store
    from podline.training.pose_objective import Pose as PoseObjective


class Pose(Kind):
    """People and their joints."""

    name = PoseEvaluation.kind
    document = PoseEvaluation
    examples = "people"
    caption = "COCO’s AP over OKS 0.50…0.95, by pycocotools; bars are 95 % intervals (bootstrap over images)."
    lost = "Found before, not now: the {shown} images that lost the most joints"
    says = "whom {} finds"
    lost_hint = "; people that only the first finds are framed, joints are ringed"

    def require_fit(self, recipe: Recipe, manifest: Manifest) -> None:
        """Refuse another side or skeleton than the data set's; see :meth:`Kind.require_fit`."""
        from podline.input.pose_augmentation import require_fit

        require_fit(recipe, manifest)

    def objective(self, recipe: Recipe, manifest: Manifest) -> PoseObjective:
        """Return the distance to the maps that are drawn from the keypoints."""
        from podline.training.pose_objective import pose_objective

        return pose_objective(recipe, manifest)

    def model(self, recipe: Recipe, manifest: Manifest) -> keras.Model:
        """Return a pose network."""
        from podline.models.pose import pose_model

        return pose_model(recipe, manifest)

    def description(
        self, recipe: Recipe, image_shape: tuple[int, int, int], classes: int, skeleton: Skeleton
    ) -> ModelDescription:
        """Return a pose network's layers and costs."""
        from podline.models.counts import describe_pose_network

        return describe_pose_network(recipe, image_shape, classes, skeleton)

    def judge(self, case: Case) -> Judgement:
        """Judge a pose network; the people found lie beside the document."""
        from podline.evaluation.poses import judge

        return judge(case)

    def parts(self, document: PoseEvaluation) -> dict[str, Metric]:
        """Return each joint's share of labelled places where it is close."""
        from podline.evaluation.parts import joint_parts

        return joint_parts(document)

    def reader(
        self, store: Store, training: TrainSpec, manifest: Manifest, threshold: float | None, reporter: Reporter
    ) -> PeopleReader:
        """Return what finds people in pictures."""
        from podline.evaluation.predicting_people import reader

        return reader(store, training, manifest, threshold, reporter)

    def sheet(self, spec: ShowSpec, store: Store, manifest: Manifest, reporter: Reporter) -> tuple[Sheet, int, int]:
        """Return pictures with skeletons."""
        from podline.evaluation.pose_sheet import pose_sheet

        return pose_sheet(spec, store, manifest, reporter)

    def headline(self, run: RunFacts) -> Headline:
        """Return what the top of a pose network's report says."""
        from podline.reporting.pose_sections import headline

        return headline(run)

    def pair(self, store: Store, before: Judged, after: Judged) -> FoundPair:
        """Return the people that two networks find in the same images."""
        from podline.reporting.pose_pairs import pair

        return pair(store, before, after)

    def lost_examples(
        self, pair: FoundPair, reader: SplitReader, before: PoseEvaluation, after: PoseEvaluation
    ) -> LostExamples:
        """Return images in which the second finds fewer joints."""
        from podline.reporting.pose_pairs import lost_examples

        return lost_examples(pair, reader, before, after)

    def answers(self) -> PoseAnswers:
        """Return how people are read and looked for."""
        from podline.promotion.kinds import PoseAnswers

        return PoseAnswers()
