"""Shares of classes and joints, and what chance is judged by: examples, and for joints whole images."""

from __future__ import annotations

import numpy as np
from support.guessed import guesses_of

from podline.documents.skeleton import COCO
from podline.evaluation.differences import ShareChange, sampled_change
from podline.kinds.classification.guesses import Guesses
from podline.kinds.classification.pairs import moved_classes
from podline.kinds.pose.lost_people import moved_joints
from podline.kinds.pose.oks import CloseJoints

WRIST = COCO.annotated.index("left_wrist")


def guesses(right: list[bool]) -> Guesses:
    labels = np.array([0, 0, 0, 1])
    return guesses_of(labels, np.where(right, labels, 7))


def test_classes_that_nobody_has_are_left_out() -> None:
    moved = moved_classes(guesses([True, True, False, True]), guesses([True, False, False, True]), ["a", "b", "c"])
    assert moved == {
        "a": ShareChange(2 / 3, 1 / 3, sampled_change(np.array([-1, 0, 0]), 3)),
        "b": ShareChange(1.0, 1.0, sampled_change(np.array([0]), 1)),
    }


def person(image: int, close: bool) -> CloseJoints:
    labelled = np.arange(17) == WRIST
    return CloseJoints(image, labelled, labelled & close, 1)


def test_people_of_one_image_count_as_one_change_of_a_joint() -> None:
    # In image 1 two are lost and one is gained; in image 2 one is lost and one gained; image 3 gains one.
    was = {1: (1, True), 2: (1, True), 3: (1, False), 4: (2, True), 5: (2, False), 6: (3, False)}
    now = {1: (1, False), 2: (1, False), 3: (1, True), 4: (2, False), 5: (2, True), 6: (3, True)}
    sides = ({number: person(*told) for number, told in side.items()} for side in (was, now))
    assert moved_joints(*sides, COCO.annotated) == {
        "left_wrist": ShareChange(0.5, 0.5, sampled_change(np.array([-1, 0, 1]), 6))
    }
