"""The objective of a pose network: the loss of every stage's maps against targets, which are made on the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podline.base.frozen import JsonObject
from podline.contract.objective import Batch, Objective
from podline.data.people.image import MASK_STRIDE
from podline.data.records import IMAGE
from podline.documents.manifest import Manifest
from podline.documents.skeleton import SUBJECTS, Skeleton
from podline.kinds.pose.network import stage_names
from podline.kinds.pose.records import KEYPOINTS
from podline.kinds.pose.settings import PoseSettings
from podline.kinds.pose.stage_measures import PAF, kind_of, stage_figures, stage_losses, stage_sums, sum_names
from podline.kinds.pose.targets import PoseTargets, pose_targets
from podline.recipes.settings import Recipe
from podline.training.findings import Finding

IGNORED = "ignored"
COLLAPSED_VARIATION = 0.05
"""The least variation of a stage's output relative to the targets; below it, the output is constant."""


class PoseObjective(Objective):
    """The objective of part affinity fields and heatmaps of all people in an image, from each stage of a network.

    Attributes:
        settings: the recipe's settings.
        skeleton: the data set's skeleton.
        stages: names of the network's stages.
        measured: each stage's loss, and the sums of :func:`podline.kinds.pose.stage_measures.stage_sums`.
    """

    fields = (IMAGE, KEYPOINTS, IGNORED)

    def __init__(self, settings: PoseSettings, skeleton: Skeleton) -> None:
        self.settings, self.skeleton, self.stages = settings, skeleton, stage_names(settings.model)
        self.measured = (*(_loss_of(stage) for stage in self.stages), *sum_names(self.stages))

    def with_targets(self, batch: Batch) -> Batch:
        """Return the batch with its target maps added."""
        side = MASK_STRIDE * batch[IGNORED].shape[1]  # the batch may have a trunk's features in place of images
        settings, skeleton = self.settings.targets, self.skeleton
        fields = any(kind_of(stage) == PAF for stage in self.stages)
        return batch | pose_targets(batch[KEYPOINTS], batch[IGNORED], side, settings, skeleton, fields=fields)._asdict()

    def terms(self, batch: Batch, outputs: Batch) -> Batch:
        """Return each stage's loss by name, sorted."""
        return stage_losses(outputs, _targets(batch), self.settings.emphasis)

    def measures(self, batch: Batch, outputs: Batch) -> Batch:
        """Return each stage's loss and the sums of ``stage_sums``, by name, float32 (n,)."""
        losses = {_loss_of(stage): loss for stage, loss in self.terms(batch, outputs).items()}
        return losses | stage_sums(outputs, _targets(batch))

    def figures(self, sums: Mapping[str, float], examples: int) -> JsonObject:
        """Return ``measures``: each stage's loss and figures by ``<stage>/<name>``, sorted."""
        losses = {_loss_of(stage): sums[_loss_of(stage)] / examples for stage in self.stages}
        return {"measures": dict(sorted((losses | stage_figures(sums, self.stages, self.skeleton)).items()))}

    def faults(self, measures: Mapping[str, float]) -> Iterator[Finding]:
        """Yield a finding for each stage with a constant output, which its loss does not show."""
        for name, value in measures.items():
            stage, _, measure = name.partition("/")
            if measure == "variation" and value < COLLAPSED_VARIATION:
                yield Finding(
                    "collapsed_stage",
                    stage,
                    {"variation": value},
                    f"{stage} has collapsed: over an image, its outputs vary only {value:.1%} as much as the targets",
                    "its output is constant, since nearly all of a target is zero: begin again with a longer warm-up "
                    "or a lower learning rate; if that does not help, give wider targets (task.targets), or a wider "
                    "stage (task.model.stage_width)",
                )

    def headline(self, sums: Mapping[str, float], examples: int) -> dict[str, float]:
        """Return the share of labelled joints at which the last stage has a peak, as ``joints found``."""
        return {"joints found": stage_figures(sums, self.stages, self.skeleton)[f"{self.stages[-1]}/island_recall"]}


def _loss_of(stage: str) -> str:
    return f"{stage}/loss"


def pose_objective(recipe: Recipe, manifest: Manifest) -> PoseObjective:
    """Build the objective of a pose recipe on a data set."""
    given = PoseSettings.of(recipe)
    objective = PoseObjective(given.on(manifest.facts), manifest.skeleton)
    objective.remarks = _remarks(given, manifest)
    return objective


def _remarks(given: PoseSettings, manifest: Manifest) -> tuple[str, ...]:
    """Return a line for the log: the number of subjects per image, its origin, and what it means for the network."""
    counted = "counted in the annotations" if SUBJECTS in manifest.facts else "not counted when the data were converted"
    why = "task.subjects" if given.subjects else f"{counted}; task.subjects sets it"
    means = {
        "one": "each joint is at its heatmap's maximum, without part affinity fields",
        "several": "part affinity fields separate the subjects",
    }
    subjects = given.on(manifest.facts).subjects or ""
    return (f"{subjects} {'subject' if subjects == 'one' else 'subjects'} an image ({why}): {means[subjects]}",)


def _targets(batch: Batch) -> PoseTargets:
    return PoseTargets(*(batch[name] for name in PoseTargets._fields))
