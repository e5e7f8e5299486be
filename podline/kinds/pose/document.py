"""``evaluation.json`` of a pose network; see :mod:`podline.kinds.classification.document`."""

from __future__ import annotations

import json
from typing import ClassVar

from pydantic import Field

from podline.base.frozen import Frozen, JsonObject
from podline.documents.any_evaluation import RunEvaluation, Scored
from podline.documents.completion import read_artifact
from podline.documents.intervals import wilson_interval
from podline.documents.metric import Metric
from podline.documents.skeleton import Pair
from podline.kinds.pose.figures import PCK, JointFigures, ThresholdFigures
from podline.kinds.pose.ranked_images import Ranked
from podline.recipes.measures import metric_text, value_text, with_name
from podline.store.contract import Store

MAPS = "maps.npz"
"""The file with heatmaps and fields of one image; see :class:`podline.kinds.pose.maps.PoseMaps`."""


SEEN = "seen"
"""The name, instead of a split's, of the training images that are evaluated as well."""


def people_name(which: str) -> str:
    """Return the file name of a split's detected people, or of :data:`SEEN`'s: COCO results beside the document."""
    return f"people-{which}.json"


def read_people(store: Store, folder: str, which: str) -> list[JsonObject]:
    """Return the people that an evaluation found, as COCO results.

    Raises:
        StoreError: the file is missing, or cannot be read.
        ArtifactError: the file has changed since the evaluation.
    """
    return json.loads(read_artifact(store, folder, "evaluate", f"{folder}/{people_name(which)}"))


class PoseFigures(Scored):
    """The figures for detected people.

    Attributes:
        images: number of images, each evaluated once.
        people: number of people to find: those with a labelled joint, without crowds.
        results: number of results.
        metrics: the figures of pycocotools by their names in :class:`podline.kinds.pose.oks.OksFigures`, and ``pck``
            (:mod:`podline.kinds.pose.pck`), each with its 95 % interval by the bootstrap over images. Figures without
            people are left out, except ``ap`` and ``ar``, which are then 0 within 0…1.
    """

    images: int = Field(ge=0)
    people: int = Field(ge=0)
    results: int = Field(ge=0)


class ChosenThreshold(Frozen):
    """The least score at which a result counts as a person, in pictures and in counts.

    AP needs no threshold. The threshold has the best F1 measure at OKS 0.5 on training images, so the judged images do
    not influence it.

    Attributes:
        chosen_on: the split of the images that chose the threshold.
        images: number of these images.
        seen: counts on these images.
        judged: counts on the judged split.
    """

    chosen_on: str
    images: int
    seen: ThresholdFigures
    judged: ThresholdFigures


class PoseEvaluation(RunEvaluation[PoseFigures], extra="ignore"):
    """The evaluation of one pose network on one split, every image once. Podline 1.0 wrote further fields.

    Attributes:
        seen: of the first training images, as many as the judged split has, and at least 200.
        guessing: the AP of one fixed person in every image: the mean training person, in the middle of the image.
        guessing_pck: the PCK of the same; None without a label that counts.
        pck_joints: the joints whose distance is the length for PCK; None for the diagonal of the box.
        better_than_guessing: the sanity check: AP or PCK on the split is higher than that of guessing and of the
            untrained network, by at least 0.001 in 97.5 % of the draws of images.
        better_in: which of ``ap`` and ``pck`` is higher.
        learned: the same check on the training images, against guessing.
        threshold: None if no person was found in the training images.
        joints: a table by joint, in COCO's order for COCO's 17.
        pictures: the best, median and worst images of the split.
        seen_pictures: the same for training images.
        maps_of: the image whose heatmaps and fields are in :data:`MAPS`: the first median image; None without labelled
            people.
    """

    measure: ClassVar[str] = "ap"

    kind: str = "pose"

    guessing_pck: Metric | None = None
    pck_joints: Pair | None = None
    better_in: tuple[str, ...] = ()
    threshold: ChosenThreshold | None
    joints: tuple[JointFigures, ...]
    pictures: Ranked
    seen_pictures: Ranked
    maps_of: int | None

    def parts(self) -> dict[str, Metric]:
        """Return the share of close joints among each joint's labelled places."""
        return {joint.joint: wilson_interval(joint.close, joint.labelled) for joint in self.joints}

    @property
    def examples(self) -> int:
        """The number of judged images in the split."""
        return self.trained.images

    @property
    def score_threshold(self) -> float:
        """The least score at which a result counts as a person; 0 if none was chosen."""
        return self.threshold.judged.score if self.threshold else 0.0

    @property
    def guessed(self) -> dict[str, Metric]:
        """Guessing's AP, and its PCK where a label counts."""
        return super().guessed | ({PCK: self.guessing_pck} if self.guessing_pck else {})

    @property
    def pck_length(self) -> str:
        """The length for PCK, in words."""
        if self.pck_joints is None:
            return "the diagonal of the instance's box"
        first, second = (joint.replace("_", " ") for joint in self.pck_joints)
        return f"the distance from {first} to {second}"

    def verdict(self) -> str:
        """Return the sanity check as text."""
        against = "; ".join(
            f"{_named(name, self.trained)} vs {value_text(name, self.untrained.metrics[name].value)} of the untrained "
            f"network and {metric_text(name, guessing)} of one and the same pose in every image"
            for name, guessing in self.guessed.items()
        )
        if self.better_in == (PCK,):
            return f"Joints are found better than by guessing, whole instances are not: {against}."
        if self.better_than_guessing:
            return f"The result is better than guessing: {against}."
        if self.learned:
            seen = " and ".join(_named(name, self.seen) for name in self.guessed)
            return (
                f"On the {self.split} split the result cannot be told from guessing ({against}); on training images "
                f"it has {seen}: more training images are needed."
            )
        return (
            f"The result cannot be told from guessing ({against}), not even on training images: look at "
            "the loss curves, the learning rate and the pictures before anything else."
        )


def _named(name: str, side: PoseFigures) -> str:
    return with_name(name, metric_text(name, side.metrics[name]))
