from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from podline.data.keypoints import from_annotated, mirrored, to_annotated
from podline.documents.skeleton import COCO

# Copied from the ``categories`` of COCO's person_keypoints_val2017.json.
OFFICIAL = [
    "nose", "left_eye", "right_eye", "left_ear", "right_ear", "left_shoulder", "right_shoulder", "left_elbow",
    "right_elbow", "left_wrist", "right_wrist", "left_hip", "right_hip", "left_knee", "right_knee", "left_ankle",
    "right_ankle",
]  # fmt: skip


def test_coco_joints_are_the_official_ones_and_ours_are_centre_right_left():
    assert list(COCO.annotated) == OFFICIAL
    assert sorted(COCO.joints) == sorted([*OFFICIAL, "neck"])
    sides = [name.split("_")[0] if "_" in name else "centre" for name in COCO.joints]
    assert sides == ["centre"] * 2 + ["right"] * 8 + ["left"] * 8


def test_each_joint_goes_to_its_name():
    for place, name in enumerate(OFFICIAL):
        pose = np.zeros((17, 3))
        pose[place] = 12.5, 99.0, 1
        made = from_annotated(pose, COCO)
        assert COCO.joints[np.flatnonzero(made[:, 2]).item()] == name


@settings(deadline=None)
@given(arrays(np.float32, (2, 17, 3), elements=st.integers(0, 640)))
def test_poses_come_back_bit_for_bit_but_for_joints_that_are_not_labelled(poses):
    poses[..., 2] %= 3
    made = from_annotated(poses, COCO)
    poses[poses[..., 2] == 0] = 0
    assert to_annotated(made, COCO).tobytes() == poses.tobytes()


@pytest.mark.parametrize(("right", "left", "neck"), [(2, 2, 2), (2, 1, 1), (1, 2, 1), (0, 2, 0), (2, 0, 0)])
def test_the_neck_lies_between_two_labelled_shoulders(right, left, neck):
    pose = np.zeros((17, 3))
    pose[OFFICIAL.index("right_shoulder")] = 10, 20, right
    pose[OFFICIAL.index("left_shoulder")] = 31, 24, left
    assert from_annotated(pose, COCO)[COCO.index["neck"]].tolist() == ([20.5, 22, neck] if neck else [0, 0, 0])


def test_mirrored_right_is_left():
    swapped = {"right": "left", "left": "right"}
    for joint in COCO.joints:
        pose = np.zeros((18, 3), np.float32)
        pose[COCO.index[joint]] = 100, 50, 2
        side, _, rest = joint.partition("_")
        expected = f"{swapped[side]}_{rest}" if rest else joint
        image = mirrored(pose, 368, COCO)
        assert image[COCO.index[expected]].tolist() == [267, 50, 2]
        assert np.count_nonzero(image[:, 2]) == 1


@settings(deadline=None)
@given(arrays(np.int32, (3, 18, 3), elements=st.integers(-64 * 500, 64 * 1000)), st.integers(1, 2000))
def test_mirrored_twice_is_the_same_pose(grid, side):
    poses = (grid / 64).astype(np.float32)
    poses[..., 2] = grid[..., 2] % 3
    poses[poses[..., 2] == 0] = 0
    poses[poses == 0] = 0.0  # no negative zeros
    assert mirrored(mirrored(poses, side, COCO), side, COCO).tobytes() == poses.tobytes()


def test_limbs_join_every_joint_to_the_neck_and_a_mirrored_limb_is_a_limb():
    limbs = {frozenset(limb) for limb in zip(COCO.starts, COCO.ends, strict=True)}
    assert len(limbs) == len(COCO.limbs) == 20
    assert {frozenset(COCO.mirror[joint] for joint in limb) for limb in limbs} == limbs
    reached = {COCO.index["neck"]}
    for _ in COCO.joints:
        reached |= {joint for limb in limbs if limb & reached for joint in limb}
    assert reached == set(range(len(COCO.joints)))
