"""The figures of single images, ranked by how well their people were detected."""

from __future__ import annotations

from podline.base.frozen import Frozen


class PeopleFigures(Frozen):
    """The figures of one image with labelled people.

    Attributes:
        image_id: COCO's image id.
        people: number of labelled people.
        found: number of people found, at OKS 0.5.
        false_alarms: number of results above the score threshold that match no person.
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
