"""The kind of task that finds people and their joints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podline.kinds.contract import Kind
from podline.kinds.deferred import Deferred, method
from podline.kinds.pose.document import PoseEvaluation
from podline.kinds.pose.settings import PoseSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from podline.compare.figures import Rule
    from podline.documents.metric import Metric
    from podline.documents.model_description import ModelDescription
    from podline.frozen import JsonObject
    from podline.kinds.pose import (
        answers,
        augmentation,
        judging,
        lost_answers,
        network,
        objective,
        predicting,
        records,
        sections,
        sheet,
    )
    from podline.recipes.settings import Recipe
    from podline.reporting.sections import Section
else:
    answers, augmentation, judging, network, objective, lost_answers, predicting, records, sections, sheet = (
        Deferred(f"{__package__}.{name}")
        for name in (
            "answers",
            "augmentation",
            "judging",
            "network",
            "objective",
            "lost_answers",
            "predicting",
            "records",
            "sections",
            "sheet",
        )
    )


class Pose(Kind["PoseEvaluation"]):
    """The kind of people and their joints."""

    name = "pose"
    settings = PoseSettings
    document = PoseEvaluation
    examples = "people"
    caption = "COCO’s AP over OKS 0.50…0.95, by pycocotools; bars are 95 % intervals (bootstrap over images)."
    lost = "Found before, not now: the {shown} images that lost the most joints"
    says = "what {} finds"
    large_pictures = True
    lost_hint = "; instances that only the first model finds have a frame, joints a ring"

    targets = method(records.PeopleTargets)
    require_fit = method(augmentation.require_fit)
    objective = method(objective.pose_objective)
    model = method(network.pose_model)
    judge = method(judging.judge)
    reader = method(predicting.reader)
    drawn = method(sheet.drawn)
    asked = method(sheet.asked)
    headline = method(sections.headline)
    lost_examples = method(lost_answers.lost_examples)
    answers = method(answers.PoseAnswers)

    def description(
        self, recipe: Recipe, image_shape: tuple[int, int, int], classes: int, facts: JsonObject
    ) -> ModelDescription:
        """Return a pose network's layers and costs; without a data set, for COCO's skeleton."""
        from podline.documents.skeleton import COCO, SKELETON, Skeleton
        from podline.kinds.pose.network import build_pose_model
        from podline.models.counts import described

        skeleton = Skeleton.model_validate(facts[SKELETON]) if facts else COCO
        poses, no_change = PoseSettings.of(recipe), ([0.0] * 3, [1.0] * 3)
        return described(build_pose_model(poses.model, poses.side, poses.targets.stride, skeleton, *no_change))

    def parts(self, document: PoseEvaluation) -> dict[str, Metric]:
        """Return the share of close joints among each joint's labelled places."""
        from podline.intervals import wilson_interval

        return {joint.joint: wilson_interval(joint.close, joint.labelled) for joint in document.joints}

    def sections(self) -> Iterable[Section]:
        """Return the sections of a pose network's report."""
        from podline.kinds.pose import sections
        from podline.reporting.sections import sections_in

        return sections_in(sections)

    def rules(self) -> Sequence[Rule]:
        """Return the rules for pose networks."""
        from podline.kinds.pose import rules

        return (rules.average_precision, rules.joints, rules.guards)
