"""How each class or joint changed between two models judged on the same examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.evaluation.differences import holm, sampled_change
from podline.evaluation.guesses import Guesses
from podline.evaluation.oks import CloseJoints
from podline.noise import Seeds


class ShareChange(NamedTuple):
    """A class or a joint.

    Attributes:
        before: the share of right answers, or of labelled joints that are close, of the first model.
        after: that of the second.
        sampled: the variance of the change by the examples; of a joint, by images: people of one image are found or
            not found together.
    """

    before: float
    after: float
    sampled: float

    @property
    def change(self) -> float:
        """By how much the share rises."""
        return self.after - self.before


def moved_classes(before: Guesses, after: Guesses, class_names: Sequence[str]) -> dict[str, ShareChange]:
    """Every class of which there are examples, by its name.

    Args:
        before: what the first model said.
        after: what the second said of the same examples.
        class_names: by label.
    """
    order = np.argsort(after.labels, kind="stable")
    labels, firsts = np.unique(after.labels[order], return_index=True)
    found = {}
    for label, rows in zip(labels.tolist(), np.split(order, firsts[1:]), strict=True):
        was, now = before.right[rows], after.right[rows]
        found[class_names[int(label)]] = _moved(was, now, now.astype(int) - was)
    return found


def moved_joints(
    before: Mapping[int, CloseJoints], after: Mapping[int, CloseJoints], joints: Sequence[str]
) -> dict[str, ShareChange]:
    """Every joint that anybody has, by its name.

    Args:
        before: the people in truth, by the annotation's id, as the first model found them.
        after: the same people, as the second did.
        joints: their names, in the order of annotations.
    """
    people = [(before[person], now) for person, now in after.items()]
    found = {}
    for place, name in enumerate(joints):
        having = [(was, now) for was, now in people if now.labelled[place]]
        if having:
            was, now = (np.array([person.close[place] for person in side]) for side in zip(*having, strict=True))
            nets = _by_image((person.image_id for _, person in having), now.astype(int) - was)
            found[name] = _moved(was, now, nets)
    return found


def chances(parts: Mapping[str, ShareChange], seeds: Mapping[str, Seeds]) -> dict[str, float]:
    """Return how likely so large a movement of each class or joint is by chance, all of them considered.

    Args:
        parts: by name.
        seeds: what a seed does to each share, by name.
    """
    return holm({name: seeds[name].interval(part.change, part.sampled)[2] for name, part in parts.items()})


def _by_image(images: Iterable[int], nets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the net of each image, (images,)."""
    _, places = np.unique([*images], return_inverse=True)
    return np.bincount(places, nets).astype(np.int64)


def _moved(was: npt.NDArray[np.bool_], now: npt.NDArray[np.bool_], nets: npt.NDArray[np.int64]) -> ShareChange:
    return ShareChange(float(was.mean()), float(now.mean()), sampled_change(nets, len(now)))
