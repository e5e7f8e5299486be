"""``evaluation.json`` of a pose network; see :mod:`podline.kinds.classification.document`."""

from __future__ import annotations

import json
from typing import ClassVar

from pydantic import Field

from podline.documents.any_evaluation import RunEvaluation
from podline.documents.completion import read_artifact
from podline.documents.metric import Metric
from podline.frozen import Frozen, JsonObject
from podline.kinds.pose.figures import JointFigures, SizeFigures, ThresholdFigures
from podline.kinds.pose.ranked_images import Ranked
from podline.store.contract import Store

MAPS = "maps.npz"
"""Heatmaps and fields of one image, beside the document; see :class:`podline.kinds.pose.maps.PoseMaps`."""


SEEN = "seen"
"""In place of a split's name: the images that the network was trained on and that it is judged on as well."""


def people_name(which: str) -> str:
    """Return the file name of a split's detected people (COCO results), beside the document; or of :data:`SEEN`."""
    return f"people-{which}.json"


def read_people(store: Store, folder: str, which: str) -> list[JsonObject]:
    """Return the people that an evaluation found, as COCO results.

    Raises:
        StoreError: they are not there, or cannot be read.
        ArtifactError: the file is not what the evaluation wrote.
    """
    return json.loads(read_artifact(store, folder, "evaluate", f"{folder}/{people_name(which)}"))


class PoseFigures(Frozen):
    """The quality of detected people.

    Attributes:
        images: each judged once.
        people: those to be found: with a labelled joint, crowds left out.
        results: how many were thought to be found.
        metrics: the figures of pycocotools by their names in :class:`podline.kinds.pose.oks.OksFigures`, each with its
            95 % interval by the bootstrap over images. Those of which there is nobody are left out, but ``ap`` and
            ``ar``: of these nothing is known then, 0 within 0…1.
    """

    images: int = Field(ge=0)
    people: int = Field(ge=0)
    results: int = Field(ge=0)
    metrics: dict[str, Metric]


class ChosenThreshold(Frozen):
    """The score from which on a result is taken for a person: in pictures, and where people are counted.

    AP needs no threshold. It is the one with the best F1 measure at OKS 0.5 on images that the model was trained on:
    what is judged has no part in it.

    Attributes:
        chosen_on: the split of these images.
        images: how many they are.
        seen: what it gives on them.
        judged: what it gives on the split that is judged.
    """

    chosen_on: str
    images: int
    seen: ThresholdFigures
    judged: ThresholdFigures


class PoseEvaluation(RunEvaluation):
    """One trained pose network on one split, every image once.

    Attributes:
        trained: the model's figures on the split.
        untrained: the same network with the weights that training began with, on the same split.
        seen: the trained model on images it was trained on (without augmentation): the first ``seen.images`` records
            that were trained on, as many as the split that is judged has, or 200 if that is more.
        guessing: the AP of one and the same person in every image: the mean of those that were trained on, in the
            middle of nowhere in particular.
        better_than_guessing: the sanity check: the trained network's AP on the split lies above the intervals of both,
            guessing and the untrained network.
        learned: the same on the images that it was trained on. A network that fits those and no others has seen too
            little; one that does not even fit those has learned nothing.
        threshold: None where nobody was found among the images that were trained on.
        joints: a table by joint, COCO's 17 in COCO's order.
        sizes: a table by size.
        pictures: the images of the split that went best, middling and worst.
        seen_pictures: the same of those that the model was trained on.
        maps_of: the image whose heatmaps and fields are in :data:`MAPS`: the first of the median ones; None where
            nobody is labelled.
    """

    measure: ClassVar[str] = "ap"

    kind: str = "pose"

    trained: PoseFigures
    untrained: PoseFigures
    seen: PoseFigures
    guessing: Metric
    better_than_guessing: bool
    learned: bool
    threshold: ChosenThreshold | None
    joints: tuple[JointFigures, ...]
    sizes: tuple[SizeFigures, ...]
    pictures: Ranked
    seen_pictures: Ranked
    maps_of: int | None

    @property
    def examples(self) -> int:
        """The number of judged images in the split."""
        return self.trained.images

    @property
    def score_threshold(self) -> float:
        """The score from which on a result is taken for a person; 0 where none was chosen."""
        return self.threshold.judged.score if self.threshold else 0.0

    def verdict(self) -> str:
        """Return the sanity check in words."""
        ap, untrained = self.trained.metrics["ap"], self.untrained.metrics["ap"]
        against = (
            f"AP {ap.value:.3f} vs {untrained.value:.3f} of the untrained network and {self.guessing.value:.3f} of "
            "one and the same pose in every image"
        )
        if not self.trained.people:
            return f"There is nothing to find in the {self.split} split."
        if self.better_than_guessing:
            return f"The result is better than guessing: {against}."
        if self.learned:
            seen = self.seen.metrics["ap"].value
            return (
                f"On the {self.split} split the result cannot be told from guessing ({against}); on images that it was "
                f"trained on its AP is {seen:.3f}: it has seen too few."
            )
        return (
            f"The result cannot be told from guessing ({against}), not even on images that it was trained on: look at "
            "the loss curves, the learning rate and the pictures before anything else."
        )
