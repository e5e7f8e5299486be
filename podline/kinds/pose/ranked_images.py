"""Ranking of single images by how well their people were found."""

from __future__ import annotations

from podline.frozen import Frozen


class ImageFigures(Frozen):
    """One image with labelled people.

    Attributes:
        image_id: COCO's.
        people: labelled people.
        found: how many of them were found, at OKS 0.5.
        false_alarms: results from the score threshold on that are nobody.
        quality: the OKS of those found, added up, as a share of ``people + false_alarms``: 1 is perfect.
    """

    image_id: int
    people: int
    found: int
    false_alarms: int
    quality: float


class Ranked(Frozen):
    """The images that went best, middling and worst; none is in two of them.

    Of equally good ones those with more people come first; so of equally bad ones.
    """

    best: tuple[ImageFigures, ...]
    median: tuple[ImageFigures, ...]
    worst: tuple[ImageFigures, ...]
