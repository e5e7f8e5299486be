"""Promotion rules for pose networks: AP, and the share of close predictions for each joint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from pycocotools.cocoeval import COCOeval

from podline.base.arrays import Floats
from podline.base.errors import SettingsError
from podline.contract.rules import MAIN, Compared, Figure, number, rule, shares
from podline.kinds.pose.oks import CloseJoints, close_joints, joint_names
from podline.kinds.pose.oks_intervals import drawn_figures, figures_of
from podline.recipes.promotion_settings import PromotionSettings


@rule(MAIN)
def average_precision(compared: Compared[COCOeval], settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the AP does not fall."""
    values = [figures_of(each).get("ap", 0.0) for each in (*compared.known, compared.candidate)]
    before, after = (drawn_figures(each)["ap"] for each in (compared.known[0], compared.candidate))
    variances = float(np.nanvar(after - before, ddof=1)), float(np.nanvar(before, ddof=1))
    yield number("AP", "ap", values, variances, compared.spread(settings).main, settings.margin)


@rule("joint")
def joints(compared: Compared[COCOeval], settings: PromotionSettings) -> Iterator[Figure]:
    """Require for each joint that the share of close predictions does not fall."""
    people, now = [close_joints(each) for each in compared.known], close_joints(compared.candidate)
    places = _judged_joints(compared.candidate, now)
    if not places:
        return
    known = {name: np.stack([_by_image(place, now, each) for each in people]) for name, place in places.items()}
    candidate = {name: _by_image(place, now, now) for name, place in places.items()}
    yield from shares(known, candidate, compared.spread(settings).part, settings.part_margin)


@rule("guard")
def guards(_compared: Compared[COCOeval], settings: PromotionSettings) -> Sequence[Figure]:
    """Refuse ``promotion.guards``, because measures of installed packages are not computed for poses.

    Raises:
        SettingsError: the settings name a guard.
    """
    if settings.guards:
        raise SettingsError(
            f"promotion.guards: got {settings.guards[0]}, expected none, because measures of installed packages are "
            "not computed for poses; leave promotion.guards out"
        )
    return ()


def _judged_joints(evaluation: COCOeval, people: Mapping[int, CloseJoints]) -> dict[str, int]:
    """Return the index of each joint with labels in the compared images, by name; empty without labelled people."""
    counts = np.sum([person.labelled for person in people.values()], axis=0) if people else np.zeros(0)
    names = zip(joint_names(evaluation), counts, strict=False)
    return {name: place for place, (name, count) in enumerate(names) if count}


def _by_image(joint: int, truth: Mapping[int, CloseJoints], people: Mapping[int, CloseJoints]) -> Floats:
    """Return a joint's close predictions in each image, (images,), scaled so that the mean is the share of close ones.

    The unit is an image, since the people of one image are found or missed together.
    """
    having = [person for person, joints in truth.items() if joints.labelled[joint]]
    images, places = np.unique([people[person].image_id for person in having], return_inverse=True)
    close = np.array([people[person].close[joint] for person in having], float)
    return np.bincount(places, close, len(images)) * len(images) / len(having)
