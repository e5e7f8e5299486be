"""Images, joints, boxes and masks are moved alike, by draws that depend on seed, epoch and id alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podline.data.keypoints import mirrored
from podline.documents.manifest import Manifest
from podline.documents.skeleton import COCO
from podline.input.chance import Chance
from podline.kinds.pose.augmentation import (
    affine_maps,
    augmented,
    draw_maps,
    moved_boxes,
    moved_images,
    moved_joints,
    moved_masks,
)
from podline.kinds.pose.settings import PoseAugmentationSettings

SIDE = 64
STRONG = PoseAugmentationSettings(
    flip=True, rotation=40, smallest=0.5, largest=1.5, shift=0.2, brightness=0.2, contrast=0.3, saturation=0.5
)
FILL = (1, 2, 3)
MANIFEST = cast(Manifest, SimpleNamespace(mean_colour=FILL, skeleton=COCO))


def batch(count=6, seed=0, people=3):
    rng = np.random.default_rng(seed)
    keypoints = np.zeros((count, people, 18, 3), np.float32)
    keypoints[..., :2] = rng.integers(0, (SIDE - 1) * 64, (count, people, 18, 2)) / 64
    keypoints[..., 2] = rng.integers(0, 3, (count, people, 18))
    keypoints[keypoints[..., 2] == 0] = 0
    return {
        "image": rng.integers(0, 256, (count, SIDE, SIDE, 3)).astype(np.uint8),
        "keypoints": keypoints,
        "boxes": np.tile(np.float32([10, 20, 30, 8]), (count, people, 1)),
        "ignored": rng.integers(0, 256, (count, 16, 16)).astype(np.uint8),
        "image_id": np.arange(count),
    }


def one_map(*, flip=False, degrees=0.0, scale=1.0, shift=(0.0, 0.0), side=SIDE):
    maps = affine_maps(np.array([flip]), np.radians([degrees]), np.array([scale]), np.array([shift]), side)
    return maps, np.array([flip])


def moved(arrays, maps, flips, side=SIDE):
    return (
        moved_images(arrays["image"], maps, FILL),
        moved_joints(arrays["keypoints"], maps, flips, side, COCO),
        moved_boxes(arrays["boxes"], maps, side),
        moved_masks(arrays["ignored"], maps, side),
    )


def same(first, second):
    return all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))


def test_mirrored_once_is_the_mirror_image_and_twice_the_same_record():
    arrays = batch(1)
    once = dict(zip(("image", "keypoints", "boxes", "ignored"), moved(arrays, *one_map(flip=True)), strict=True))
    assert once["image"].tobytes() == arrays["image"][:, :, ::-1].tobytes()
    assert once["keypoints"].tobytes() == mirrored(arrays["keypoints"], SIDE, COCO).tobytes()
    assert once["ignored"].tobytes() == arrays["ignored"][:, :, ::-1].tobytes()
    assert once["boxes"][0, 0].tolist() == [SIDE - 10 - 30, 20, 30, 8]
    assert same(moved(once, *one_map(flip=True)), [arrays[key] for key in once])


def test_turned_by_90_degrees_everything_turns():
    arrays = batch(1)
    image, joints, boxes, ignored = moved(arrays, *one_map(degrees=90))
    assert image.tobytes() == np.rot90(arrays["image"], k=-1, axes=(1, 2)).tobytes()
    assert ignored.tobytes() == np.rot90(arrays["ignored"], k=-1, axes=(1, 2)).tobytes()
    labelled = arrays["keypoints"][..., 2] > 0
    np.testing.assert_allclose(joints[labelled][:, 0], SIDE - 1 - arrays["keypoints"][labelled][:, 1], atol=1e-5)
    np.testing.assert_allclose(joints[labelled][:, 1], arrays["keypoints"][labelled][:, 0], atol=1e-5)
    np.testing.assert_allclose(boxes[0, 0], [SIDE - 20 - 8, 10, 8, 30], atol=1e-5)


@settings(deadline=None)
@given(st.booleans(), st.floats(-180, 180), st.floats(0.5, 2), st.floats(-20, 20), st.floats(-20, 20))
def test_a_spot_in_the_image_goes_where_its_joint_goes(flip, degrees, scale, x, y):
    maps, flips = one_map(flip=flip, degrees=degrees, scale=scale, shift=(x, y), side=128)
    images = np.zeros((1, 128, 128, 3), np.uint8)
    images[0, 55, 70] = 255
    images[0] = cv2.GaussianBlur(images[0], (0, 0), 2) * 8  # soft, so that a smaller image keeps its centre
    keypoints = np.zeros((1, 1, 18, 3), np.float32)
    keypoints[0, 0, COCO.index["left_wrist"]] = 70, 55, 1
    joint = moved_joints(keypoints, maps, flips, 128, COCO)[0, 0, COCO.index["right_wrist" if flip else "left_wrist"]]
    assert joint[2] in (0, 1)
    if joint[2] and (joint[:2] > 15).all() and (joint[:2] < 112).all():
        light = moved_images(images, maps, 0)[0, ..., 0].astype(float)
        rows, columns = np.indices(light.shape)
        centre = (light * columns).sum() / light.sum(), (light * rows).sum() / light.sum()
        # OpenCV resamples at places rounded to 1/32 of a pixel.
        np.testing.assert_allclose(joint[:2], centre, atol=0.05)


def test_what_leaves_the_image_is_cut_and_what_comes_in_is_filled_and_counts():
    arrays = batch(1)
    arrays["keypoints"] = np.zeros((1, 1, 18, 3), np.float32)
    arrays["keypoints"][0, 0, :4] = [(0, 5, 2), (63, 5, 2), (31, 5, 1), (31.5, 5, 2)]
    arrays["boxes"] = np.float32([[[10, 20, 30, 8], [0, 0, 0, 0], [40, 0, 24, 64]]])
    image, joints, boxes, ignored = moved(arrays, *one_map(shift=(32, 0)))
    assert (image[0, :, :32] == FILL).all()
    assert image[0, :, 32:].tobytes() == arrays["image"][0, :, :32].tobytes()
    assert not ignored[0, :, :8].any()
    assert joints[0, 0, :4].tolist() == [[32, 5, 2], [0, 0, 0], [63, 5, 1], [0, 0, 0]]
    assert boxes[0].tolist() == [[42, 20, 22, 8], [0, 0, 0, 0], [0, 0, 0, 0]]


def test_an_example_depends_on_seed_epoch_and_id_only_and_the_given_arrays_stay_as_they_are():
    arrays, before, ids = batch(), batch(), np.array([3, 141, 59, 26, 5, 35])
    assert same(augmented(arrays, ids, PoseAugmentationSettings(), 0, 0, MANIFEST).values(), before.values())
    whole = augmented(arrays, ids, STRONG, 7, 2, MANIFEST)
    assert same(arrays.values(), before.values())
    chosen = [4, 1]
    part = augmented({key: values[chosen] for key, values in arrays.items()}, ids[chosen], STRONG, 7, 2, MANIFEST)
    assert same(part.values(), (values[chosen] for values in whole.values()))
    for seed, epoch in ((8, 2), (7, 3)):
        other = augmented(arrays, ids, STRONG, seed, epoch, MANIFEST)
        assert all((a != b).any() for a, b in zip(other["image"], whole["image"], strict=True))


def test_draws_fill_their_ranges():
    ids = np.arange(4000)
    maps, flips = draw_maps(Chance(0, 0, ids), STRONG, SIDE)
    scales = np.sqrt(np.abs(np.linalg.det(maps[..., :2])))
    angles = np.degrees(np.arctan2(-maps[:, 0, 1], maps[:, 1, 1]))
    assert 0.47 < flips.mean() < 0.53
    alone = draw_maps(Chance(0, 0, ids), PoseAugmentationSettings(flip=True), SIDE)[1]
    assert alone.tolist() == flips.tolist(), "whatever else is drawn"
    assert (np.linalg.det(maps[..., :2]) < 0).tolist() == flips.tolist()
    assert [scales.min(), np.median(scales), scales.max()] == pytest.approx([0.5, np.sqrt(0.5 * 1.5), 1.5], abs=0.03)
    assert [angles.min(), angles.max()] == pytest.approx([-40, 40], abs=0.5)
    centre = (SIDE - 1) / 2
    shifts = maps[..., :2] @ [centre, centre] + maps[..., 2] - centre
    assert np.abs(shifts).max() == pytest.approx(0.2 * SIDE, rel=0.01)
    assert abs(np.corrcoef(shifts.T)[0, 1]) < 0.05


def test_a_smaller_image_has_its_people_and_masks_in_the_same_places():
    given = batch()
    made = augmented(given, np.arange(6), PoseAugmentationSettings(image_size=32), 0, 0, MANIFEST)
    assert [made[name].shape[1:3] for name in ("image", "ignored")] == [(32, 32), (8, 8)]
    np.testing.assert_allclose(made["image"], given["image"].reshape(6, 32, 2, 32, 2, 3).mean((2, 4)), atol=0.51)
    labelled = given["keypoints"][..., 2] > 0
    places = [2 * (made["keypoints"][..., :2] + 0.5), given["keypoints"][..., :2] + 0.5]
    np.testing.assert_allclose(places[0][labelled], places[1][labelled], atol=1e-4)
    assert not made["keypoints"][~labelled].any()
    np.testing.assert_allclose(made["boxes"], given["boxes"] / 2)
