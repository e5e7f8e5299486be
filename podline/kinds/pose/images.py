"""Computes how well the people of each image were detected, to choose the images of a report."""

# pyright: standard
from __future__ import annotations

from typing import Any

import numpy as np
from pycocotools.cocoeval import COCOeval

from podline.kinds.pose.ranked_images import PeopleFigures, Ranked

SHOWN = 3
"""The number of images in each of the groups best, median and worst."""


def by_image(evaluation: COCOeval, threshold: float) -> list[PeopleFigures]:
    """Return the figures of each image with labelled people, sorted by image id."""
    all_sizes = evaluation.params.areaRng[0]
    found: dict[int, PeopleFigures] = {}
    for image in evaluation.evalImgs:
        if image is None or image["aRng"] != all_sizes:
            continue
        figures = _image(evaluation, image, threshold)
        if figures.people:
            found[figures.image_id] = figures
    return [found[image_id] for image_id in sorted(found)]


def ranked(images: list[PeopleFigures], shown: int = SHOWN) -> Ranked:
    """Return the best, the median and the worst images, at most ``shown`` of each."""
    order = sorted(images, key=lambda image: (-image.quality, -image.people, image.image_id))
    shown = min(shown, len(order) // 3) or min(1, len(order))
    best, rest = order[:shown], order[shown:]
    worst = sorted(rest, key=lambda image: (image.quality, -image.people, image.image_id))[:shown]
    between = [image for image in rest if image not in worst]
    first = max(0, (len(between) - shown) // 2)
    return Ranked(best=tuple(best), median=tuple(between[first : first + shown]), worst=tuple(worst))


def _image(evaluation: Any, image: Any, threshold: float) -> PeopleFigures:
    # OKS by result (highest score first) and annotated person (in the order of the annotations).
    place = image["image_id"], image["category_id"]
    similarity, annotations = evaluation.ious[place], evaluation.cocoGt.getAnnIds(imgIds=place[0], catIds=place[1])
    counted = [person for person, ignored in zip(image["gtIds"], image["gtIgnore"], strict=True) if not ignored]
    matched: list[float] = []
    false_alarms = 0
    for row, (person, ignored, score) in enumerate(
        zip(image["dtMatches"][0], image["dtIgnore"][0], image["dtScores"], strict=True)
    ):
        if not ignored and person > 0:
            matched.append(float(np.asarray(similarity)[row, annotations.index(int(person))]))
        elif not ignored and score >= threshold:
            false_alarms += 1
    return PeopleFigures(
        image_id=image["image_id"],
        people=len(counted),
        found=len(matched),
        false_alarms=false_alarms,
        quality=sum(matched) / max(1, len(counted) + false_alarms),
    )
