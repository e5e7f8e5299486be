"""The geometry of people: their joints, the square that their image is put into, and masks of crowds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pycocotools import mask as rle

from podline.base.errors import SourceError
from podline.data.fitting import fitted
from podline.data.keypoints import from_annotated, mirrored, to_annotated
from podline.data.letterbox import LetterBox, areas_in_squares, from_cells, snapped
from podline.data.people.masks import ignored_mask
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


@settings(deadline=None)
@given(arrays(np.float32, (2, 17, 3), elements=st.integers(0, 640)))
def test_poses_come_back_bit_for_bit_but_for_joints_that_are_not_labelled(poses):
    poses[..., 2] %= 3
    made = from_annotated(poses, COCO)
    poses[poses[..., 2] == 0] = 0
    for place, name in enumerate(OFFICIAL):
        assert made[:, COCO.index[name]].tobytes() == poses[:, place].tobytes()
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


letterboxes = st.builds(LetterBox, st.integers(1, 5000), st.integers(1, 5000), st.sampled_from([64, 368, 369]))
places = st.lists(st.tuples(st.floats(-100, 6000), st.floats(-100, 6000)), min_size=1, max_size=5)


@settings(deadline=None)
@given(letterboxes, places)
def test_joints_come_back(letterbox, joints):
    # Two multiplications and four additions of float64; the scale can enlarge the input's rounding errors 5,000 times.
    np.testing.assert_allclose(letterbox.joints_to_image(letterbox.joints_to_network(joints)), joints, atol=1e-7)


@settings(deadline=None)
@given(letterboxes)
def test_the_image_fits_and_is_centred(letterbox):
    (width, height), (left, top), side = letterbox.size, letterbox.offset, letterbox.side
    assert max(width, height) == side
    assert min(width, height) >= 1
    assert 0 <= side - width - 2 * left <= 1
    assert 0 <= side - height - 2 * top <= 1
    box = letterbox.boxes_to_network([0, 0, letterbox.width, letterbox.height])
    assert box.tolist() == pytest.approx([left, top, width, height])
    assert areas_in_squares(letterbox.width * letterbox.height, letterbox.scale) == pytest.approx(width * height)


def test_places_are_centres_of_pixels():
    assert from_cells([0, 1], 8).tolist() == [3.5, 11.5]  # a cell of stride 8 covers pixels 0 to 7
    letterbox = LetterBox(184, 92, 368)  # twice as large, 92 rows above
    assert letterbox.joints_to_network([0, 0]).tolist() == [0.5, 92.5]
    assert letterbox.joints_to_network([183, 91]).tolist() == [366.5, 274.5]


@pytest.mark.parametrize(("width", "height"), [(640, 427), (427, 640), (200, 150), (368, 368)])
def test_a_spot_lands_where_its_joint_does(width, height):
    letterbox = LetterBox(width, height, 368)
    image = np.zeros((height, width, 3), np.uint8)
    column, row = width // 3, height // 2
    image[row - 3 : row + 4, column - 3 : column + 4] = 255
    square = fitted(image, (368, 368, 3), "letterbox").astype(np.float64)[..., 0]
    rows, columns = np.indices(square.shape)
    centre = (square * columns).sum() / square.sum(), (square * rows).sum() / square.sum()
    # The scaled spot's pixels are rounded to whole numbers.
    np.testing.assert_allclose(centre, letterbox.joints_to_network([column, row]), atol=0.05)


@settings(deadline=None)
@given(st.lists(st.floats(-2000, 2000), min_size=1))
def test_snapping_moves_by_less_than_a_hundredth(values):
    grid = snapped(values)
    assert grid.dtype == np.float32
    np.testing.assert_allclose(grid, values, rtol=0, atol=1 / 128)
    assert (grid * 64 == np.rint(grid * 64)).all()


IMAGE = LetterBox(80, 60, 80)  # ten rows above, ten below, not scaled
BOX = [8, 6, 16, 24]


def person(segmentation=None, *, iscrowd=0, num_keypoints=0):
    return {
        "id": 9, "iscrowd": iscrowd, "num_keypoints": num_keypoints, "bbox": BOX, "segmentation": segmentation
    }  # fmt: skip


def corners(left, top, width, height):
    return [left, top, left + width, top, left + width, top + height, left, top + height]


def some_pixels(seed):
    rng = np.random.default_rng(seed)
    pixels = np.zeros((60, 80), np.uint8)
    for _ in range(3):
        top, left = rng.integers(0, 50), rng.integers(0, 70)
        pixels[top : top + rng.integers(1, 30), left : left + rng.integers(1, 30)] = 1
    return np.asfortranarray(pixels)


def compressed(pixels):
    return {"size": [60, 80], "counts": rle.encode(pixels)["counts"].decode()}


def uncompressed(pixels):
    flat = pixels.ravel(order="F")
    borders = np.flatnonzero(np.diff(flat)) + 1
    lengths = np.diff(np.concatenate([[0], borders, [flat.size]])).tolist()
    return {"size": [60, 80], "counts": [0, *lengths] if flat[0] else lengths}


@pytest.mark.parametrize("form", [compressed, uncompressed])
@pytest.mark.parametrize("seed", range(3))
def test_run_lengths_are_the_pixels_they_count_and_a_cell_holds_its_share(form, seed):
    pixels = some_pixels(seed)
    people, square = [person(form(pixels), iscrowd=1)], np.pad(pixels * 255.0, ((10, 10), (0, 0)))
    assert ignored_mask(people, IMAGE, 1).tolist() == square.tolist()
    cells = square.reshape(10, 8, 10, 8).mean(axis=(1, 3))
    assert ignored_mask(people, IMAGE, 8).tolist() == np.rint(cells).tolist()


@pytest.mark.parametrize("outline", [None, [], [[1, 2, 3, 4]]])
def test_without_an_outline_the_box_is_covered(outline):
    mask = ignored_mask([person(outline)], IMAGE, 1)
    assert mask.tolist() == ignored_mask([person([corners(*BOX)])], IMAGE, 1).tolist()
    assert mask.any()
    assert not ignored_mask([], IMAGE, 8).any()


@pytest.mark.parametrize("seed", range(3))
def test_polygons_are_filled_as_coco_fills_them(seed):
    outline = np.random.default_rng(seed).uniform(0, 60, 14).round(2).tolist()
    [drawn] = rle.frPyObjects([outline], 60, 80)
    as_run_lengths = person({"size": [60, 80], "counts": drawn["counts"].decode()}, iscrowd=1)
    assert ignored_mask([person([outline])], IMAGE, 1).tolist() == ignored_mask([as_run_lengths], IMAGE, 1).tolist()


def test_corners_far_outside_are_drawn_in():
    mask = ignored_mask([person([corners(-1e12, -1e12, 2e12, 2e12)])], IMAGE, 1)
    assert np.unique(np.flatnonzero(mask.all(axis=1))).tolist() == [*range(10, 70)]


def test_an_enlarged_image_has_an_enlarged_mask():
    small = LetterBox(40, 30, 80)
    mask = ignored_mask([person([corners(10, 10, 20, 10)])], small, 8)
    assert (mask[4:6, 3:7] == 255).all()
    assert not mask[:, 0].any()


@pytest.mark.parametrize(
    ("outline", "message"),
    [
        ({"size": [80, 60], "counts": [4800]}, r"9: run lengths have the size \[80, 60\], but the image is \[60, 80\]"),
        ({"size": [60, 80], "counts": [4800, 5]}, "9: run lengths add up to 4805, but the image has 4800 pixels"),
        ({"size": [60, 80], "counts": [4805, -5]}, "9: run lengths add up to 4800, but the image has 4800 pixels"),
        ({"size": [60, 80], "counts": "oooo0"}, "annotation 9: run lengths add up to .* but the image has 4800 pixels"),
    ],
)  # fmt: skip
def test_outlines_that_cannot_be_are_refused_by_name(outline, message):
    with pytest.raises(SourceError, match=message) as caught:
        ignored_mask([person(outline)], IMAGE, 8)
    assert "\n" not in str(caught.value)
