"""Every joint is drawn where it is, in the colour of its side of the body."""

from __future__ import annotations

import numpy as np
import pytest

from podline.data.keypoints import from_annotated, mirrored
from podline.data.letterbox import LetterBox
from podline.documents.skeleton import COCO
from podline.kinds.pose.coco_results import people_to_results
from podline.kinds.pose.decoding import DecodedPeople
from podline.kinds.pose.skeletons import CENTER, LEFT, RIGHT, poses_of, with_skeletons

SIDE = 400
GREY = np.full((SIDE, SIDE, 3), 90, np.uint8)
# A person who faces the viewer: the person's right is on the picture's left.
FACING = {
    "nose": (200, 60), "right_eye": (185, 45), "right_ear": (165, 55), "right_shoulder": (140, 110),
    "right_elbow": (100, 160), "right_wrist": (60, 200), "right_hip": (160, 220), "right_knee": (150, 290),
    "right_ankle": (140, 360),
}  # fmt: skip


def facing():
    coco = np.zeros((17, 3), np.float32)
    for name, (x, y) in FACING.items():
        coco[COCO.annotated.index(name)] = x, y, 1
        if name != "nose":
            coco[COCO.annotated.index(name.replace("right", "left"))] = SIDE - 1 - x, y, 1
    return from_annotated(coco, COCO)[None]


def at(picture, x, y):
    return tuple(picture[round(y), round(x)].tolist())


@pytest.mark.parametrize("pose", [facing(), mirrored(facing(), SIDE, COCO)], ids=["facing", "in the mirror"])
def test_every_joint_has_the_colour_of_its_side(pose):
    """From the decoder's people by way of COCO results, in the original picture's pixels."""
    letterbox = LetterBox(800, 800, SIDE)
    (result,) = people_to_results(DecodedPeople(pose, np.ones(1, np.float32)), 1, letterbox, COCO)
    picture = with_skeletons(np.full((800, 800, 3), 90, np.uint8), poses_of([result], COCO), COCO)
    for name in COCO.annotated:
        x, y, _ = pose[0, COCO.index[name]]
        expected = {"left": LEFT, "right": RIGHT}.get(name.partition("_")[0], CENTER)
        assert at(picture, *letterbox.joints_to_image((x, y))) == expected


def test_joints_that_were_not_found_are_not_drawn():
    pose = facing()
    pose[0, COCO.index["left_wrist"]] = 0
    picture = with_skeletons(GREY, pose, COCO)
    assert at(picture, *facing()[0, COCO.index["left_wrist"], :2]) == at(picture, 0, 0) == (90, 90, 90)
    assert (GREY == 90).all(), "the given picture stays as it is"
    assert (with_skeletons(GREY, np.zeros((0, 18, 3), np.float32), COCO) == 90).all()
