"""How each class or joint changed between two models judged on the same examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.evaluation.guesses import Guesses
from podline.evaluation.oks import CloseJoints
from podline.evaluation.paired import Changed, changed, holm, mcnemar


class ShareChange(NamedTuple):
    """A class or a joint.

    Attributes:
        before: the share of right answers, or of labelled joints that are close, of the first model.
        after: likewise, of the second.
        changed: what was lost and gained, by examples; of a joint, images in which more of it was lost than gained, and
            the other way round: people of one image are found or not found together.
    """

    before: float
    after: float
    changed: Changed


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
        found[class_names[int(label)]] = _moved(was, now, changed(was, now))
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
            found[name] = _moved(was, now, _by_image((person.image_id for _, person in having), was, now))
    return found


def chances(parts: Mapping[str, ShareChange]) -> dict[str, float]:
    """Of each class or joint, how likely so large a movement is by chance, all of them considered; see :func:`holm`."""
    return holm({name: mcnemar(part.changed) for name, part in parts.items()})


def _by_image(images: Iterable[int], was: npt.NDArray[np.bool_], now: npt.NDArray[np.bool_]) -> Changed:
    nets: dict[int, int] = {}
    for image, net in zip(images, (now.astype(int) - was).tolist(), strict=True):
        nets[image] = nets.get(image, 0) + net
    return Changed(sum(net < 0 for net in nets.values()), sum(net > 0 for net in nets.values()), len(nets))


def _moved(was: npt.NDArray[np.bool_], now: npt.NDArray[np.bool_], counts: Changed) -> ShareChange:
    return ShareChange(float(was.mean()), float(now.mean()), counts)
