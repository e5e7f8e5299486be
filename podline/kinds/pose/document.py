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
from podline.recipes.measures import metric_text, value_text, with_name
from podline.store.contract import Store

PCK = "pck"
"""The name of the share of joints that are predicted closely; see :mod:`podline.kinds.pose.pck`."""

MAPS = "maps.npz"
"""The file with heatmaps and fields of one image; see :class:`podline.kinds.pose.maps.PoseMaps`."""
SEEN = "seen"
"""The name, in place of a split's, for the training images that are evaluated too."""


def people_name(which: str) -> str:
    """Return the name of the file with the people detected in a split, or in :data:`SEEN`, as COCO results."""
    return f"people-{which}.json"


def read_people(store: Store, folder: str, which: str) -> list[JsonObject]:
    """Return the people that the evaluated network detected, as COCO results.

    Raises:
        StoreError: the file is missing, or cannot be read.
        ArtifactError: the file has changed since the evaluation.
    """
    return json.loads(read_artifact(store, folder, "evaluate", f"{folder}/{people_name(which)}"))


class JointFigures(Frozen):
    """The figures of one joint over all annotated people.

    Attributes:
        joint: the name of the joint.
        labelled: number of people in whom the joint is labelled.
        in_found: number of these people that were found, at OKS 0.5.
        close: number of found people whose predicted joint has a similarity of at least 0.5 to the label.
        similarity: mean similarity over ``in_found``; 0 without any.
        distance: median distance over ``in_found``, as a share of the root of the person's area, without found people
            whose result lacks the joint; None without any.
        pck: the PCK of the joint; None without a label that counts.
    """

    joint: str
    labelled: int
    in_found: int
    close: int
    similarity: float
    distance: float | None
    pck: Metric | None = None


class ThresholdFigures(Frozen):
    """Counts of detected people at OKS 0.5, from a score threshold on.

    Attributes:
        score: the threshold.
        kept: number of results with at least this score, without those that match a person who does not count, such as
            a crowd.
        right: number of kept results that match an annotated person; each person is matched once.
        people: number of annotated people with a labelled joint, without crowds.
    """

    score: float
    kept: int
    right: int
    people: int

    @property
    def precision(self) -> float:
        """The share of kept results that match a person; 0 without results."""
        return self.right / self.kept if self.kept else 0.0

    @property
    def recall(self) -> float:
        """The share of annotated people that are detected; 0 without people."""
        return self.right / self.people if self.people else 0.0


class PeopleFigures(Frozen):
    """The figures of one image with labelled people.

    Attributes:
        image_id: COCO's image id.
        people: number of labelled people.
        found: number of people found, at OKS 0.5, with results of any score.
        false_alarms: number of results with at least the threshold's score that match no person.
        quality: the sum of the OKS of found people, divided by ``people + false_alarms``: 1 is perfect.
    """

    image_id: int
    people: int
    found: int
    false_alarms: int
    quality: float


class Ranked(Frozen):
    """The best, median and worst images; no image is in two of these groups.

    Among equally good or equally bad images, those with more people come first.
    """

    best: tuple[PeopleFigures, ...]
    median: tuple[PeopleFigures, ...]
    worst: tuple[PeopleFigures, ...]


class PoseFigures(Scored):
    """The figures for detected people.

    Attributes:
        images: number of images, each evaluated once.
        people: number of annotated people with a labelled joint, without crowds.
        results: number of detected people.
        metrics: the figures of pycocotools by name (:data:`podline.kinds.pose.oks_intervals.FIGURES`), and ``pck``
            (:mod:`podline.kinds.pose.pck`), each with its 95 % interval by the bootstrap over images. Figures for
            sizes that no person has are left out. Without people, ``ap`` and ``ar`` are 0 with the interval 0…1.
    """

    images: int = Field(ge=0)
    people: int = Field(ge=0)
    results: int = Field(ge=0)


class ChosenThreshold(Frozen):
    """The least score at which a detected person is drawn and counted; AP needs no threshold.

    The threshold has the best F1 at OKS 0.5 on training images, so the images of another split do not influence it. For
    networks that find one person in each image, it is 0.

    Attributes:
        chosen_on: the split of the images on which the threshold was chosen.
        images: number of the images on which it was chosen.
        seen: counts on the images on which it was chosen.
        judged: counts on the judged split.
    """

    chosen_on: str
    images: int
    seen: ThresholdFigures
    judged: ThresholdFigures


class PoseEvaluation(RunEvaluation[PoseFigures], extra="ignore"):
    """The evaluation of one pose network on one split, every image once. Podline 1.0 wrote further fields.

    Attributes:
        seen: the figures on the first images that were trained on: as many images as the judged split has, but at
            least 200, or all if there are fewer.
        guessing: the AP of one fixed person in every image: each joint is at its mean place in these images.
        guessing_pck: the PCK of that fixed person; None without a label that counts.
        pck_joints: the joints whose distance is the length for PCK; None for the diagonal of the box.
        better_than_guessing: the sanity check: AP or PCK on the split exceeds both guessing and the untrained network
            by at least 0.001, in at least 97.5 % of the bootstrap's samples of images.
        better_in: those of the names ``ap`` and ``pck`` whose figures pass the sanity check.
        learned: whether AP or PCK on the training images exceeds guessing in the same way.
        threshold: the score threshold; None if no person was found in the training images.
        joints: figures by joint, in the order in which annotations list the joints.
        pictures: the best, median and worst images of the split.
        seen_pictures: the best, median and worst of the training images.
        maps_of: the id of the image whose heatmaps and fields are in :data:`MAPS`: the first median image, or the best
            of one or two images.
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
        """Return the share of each joint's labels that are predicted closely, by the joint's name."""
        return {joint.joint: wilson_interval(joint.close, joint.labelled) for joint in self.joints}

    @property
    def examples(self) -> int:
        """The number of judged images in the split."""
        return self.trained.images

    @property
    def score_threshold(self) -> float:
        """The least score at which a detected person counts; 0 if no threshold was chosen."""
        return self.threshold.judged.score if self.threshold else 0.0

    @property
    def guessed(self) -> dict[str, Metric]:
        """The AP of guessing, and its PCK if labels count on the split and on the training images, by name."""
        known = super().guessed
        return known | {PCK: self.guessing_pck} if self.guessing_pck and PCK in self.seen.metrics else known

    @property
    def pck_length(self) -> str:
        """The length for PCK, as text."""
        if self.pck_joints is None:
            return "the diagonal of the instance's box"
        first, second = (joint.replace("_", " ") for joint in self.pck_joints)
        return f"the distance from {first} to {second}"

    def verdict(self) -> str:
        """Return the sanity check as text."""
        against = "; ".join(
            f"{_named(name, self.trained)} vs {value_text(name, self.untrained.metrics[name].value)} of the untrained "
            f"network and {metric_text(name, guessing)} of the mean pose in every image"
            for name, guessing in self.guessed.items()
        )
        if self.better_in == (PCK,):
            return f"Joints are found better than by guessing, whole instances are not: {against}."
        if self.better_than_guessing:
            return f"The result is better than guessing: {against}."
        if self.learned:
            seen = " and ".join(_named(name, self.seen) for name in self.guessed)
            return (
                f"On the {self.split} split the result is not better than guessing ({against}); on training images "
                f"the network has {seen}: more training images are needed."
            )
        return (
            f"The result is not better than guessing ({against}), not even on training images: check the loss curves, "
            "the learning rate and the pictures first."
        )


def _named(name: str, side: PoseFigures) -> str:
    return with_name(name, metric_text(name, side.metrics[name]))
