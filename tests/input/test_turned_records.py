"""From an annotated image to targets: an image and its annotations that are turned or mirrored give such targets."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from coco_files import CocoFiles, open_coco, person

from podline.data.coco_letterbox import LetterBox
from podline.data.sources.coco import CocoImage, CocoSource
from podline.data.sources.coco_files import ImagePlace
from podline.data.sources.coco_image import PixelPlace
from podline.data.sources.coco_records import annotations_of
from podline.documents.skeleton import COCO
from podline.kinds.pose.augmentation import affine_maps, moved_boxes, moved_images, moved_joints, moved_masks
from podline.kinds.pose.settings import PoseTargetSettings
from podline.kinds.pose.targets import PoseTargets, pose_targets

# The square's borders are of 8 pixels on either side, so that a turn of the image is a turn of the square.
WIDTH, HEIGHT, SIDE = 48, 36, 64


def other_side(name: str) -> str:
    """The name of the joint that it is in a mirror."""
    swap = {"left": "right", "right": "left"}
    return "_".join(swap.get(part, part) for part in name.split("_"))


def people() -> list[np.ndarray]:
    """Two poses with joints that are hidden and some that are not labelled, (17, 3)."""
    random = np.random.default_rng(0)
    poses = [np.stack([random.integers(0, [WIDTH, HEIGHT]).tolist() for _ in range(17)]) for _ in range(2)]
    return [np.concatenate([pose, random.integers(0, 3, (17, 1))], axis=1) for pose in poses]


def crowd(box: list[int], width: int, height: int) -> dict[str, object]:
    """A crowd in a box, as run lengths: those are pixels, and a turned pixel is a pixel."""
    left, top, wide, high = box
    inside = np.zeros((height, width), int)
    inside[top : top + high, left : left + wide] = 1
    down_the_columns = inside.T.ravel()
    edges = np.flatnonzero(np.diff(down_the_columns)) + 1
    counts = np.diff([0, *edges.tolist(), width * height]).tolist()
    return person(9, 1, iscrowd=1, num_keypoints=0, segmentation={"size": [height, width], "counts": counts}, bbox=box)


def targets_of(poses: list[np.ndarray], width: int, height: int, crowd_box: list[int]) -> PoseTargets:
    entries = [person(number, 1, keypoints=pose.ravel().tolist()) for number, pose in enumerate(poses)]
    annotations = tuple(map(json.dumps, [*entries, crowd(crowd_box, width, height)]))
    image = CocoImage(1, "1.jpg", width, height, ImagePlace("", 0), PixelPlace(0, 0), annotations)
    columns = annotations_of([image], SIDE, 3, COCO)
    return pose_targets(columns["keypoints"], columns["ignored"], SIDE, PoseTargetSettings(stride=8), COCO)


def test_an_image_turned_by_90_degrees_has_turned_targets() -> None:
    turned = [np.stack([HEIGHT - 1 - pose[:, 1], pose[:, 0], pose[:, 2]], axis=1) for pose in people()]
    before = targets_of(people(), WIDTH, HEIGHT, [4, 6, 12, 8])
    after = targets_of(turned, HEIGHT, WIDTH, [HEIGHT - 6 - 8, 4, 8, 12])
    expected = [np.rot90(np.asarray(values), k=-1, axes=(1, 2)) for values in before]
    assert expected[0].max() > 0.5
    assert expected[2].min() < 0.5
    # Joints are rounded to 1/64 of a pixel, and that is a slope of 1 % at most.
    np.testing.assert_allclose(after.heatmaps, expected[0], atol=0.01)
    np.testing.assert_allclose(after.pafs[..., ::2], -expected[1][..., 1::2], atol=0.01)
    np.testing.assert_allclose(after.pafs[..., 1::2], expected[1][..., ::2], atol=0.01)
    np.testing.assert_allclose(after.weights, expected[2], atol=1e-6)


def test_a_mirrored_image_has_mirrored_targets_of_the_other_side() -> None:
    order = [COCO.annotated.index(other_side(name)) for name in COCO.annotated]
    mirrored = [np.stack([WIDTH - 1 - pose[:, 0], *pose[:, 1:].T], axis=1)[order] for pose in people()]
    before = targets_of(people(), WIDTH, HEIGHT, [4, 6, 12, 8])
    after = targets_of(mirrored, WIDTH, HEIGHT, [WIDTH - 4 - 12, 6, 12, 8])
    flipped = [np.asarray(values)[:, :, ::-1] for values in before]
    np.testing.assert_allclose(after.heatmaps, flipped[0][..., np.array(COCO.mirror)], atol=0.01)
    np.testing.assert_allclose(after.weights, flipped[2], atol=1e-6)
    strength = [np.hypot(np.asarray(pafs)[..., ::2], np.asarray(pafs)[..., 1::2]) for pafs in (after.pafs, flipped[1])]
    ends = [frozenset(limb) for limb in COCO.limbs]
    for limb, joints in enumerate(COCO.limbs):
        other = frozenset(map(other_side, joints))
        np.testing.assert_allclose(strength[0][..., limb], strength[1][..., ends.index(other)], atol=0.02)


@pytest.fixture
def source(real_data: Path, tmp_path: Path) -> CocoSource:
    return open_coco(real_data / "coco", tmp_path, side=368)


def test_real_records_mirrored_twice_are_the_same_records(source: CocoSource) -> None:
    images = [image for split in source.splits.values() for image in split if image.annotations][:12]
    columns = annotations_of(images, 368, 20, COCO)
    pixels = [LetterBox(image.width, image.height, 368).place(cv2.imread(image.place.path)) for image in images]
    before = {name: columns[name] for name in ("keypoints", "boxes", "ignored")}
    before["image"] = np.stack(pixels)
    assert before["keypoints"][..., 2].any()
    flips = np.ones(len(images), bool)
    maps = affine_maps(flips, np.zeros(len(images)), np.ones(len(images)), np.zeros((len(images), 2)), 368)
    after = before
    for _ in range(2):
        after = {
            "keypoints": moved_joints(after["keypoints"], maps, flips, 368, COCO),
            "boxes": moved_boxes(after["boxes"], maps, 368),
            "ignored": moved_masks(after["ignored"], maps, 368),
            "image": moved_images(after["image"], maps, 0),
        }
    for name in ("keypoints", "ignored", "image"):
        assert after[name].tobytes() == before[name].tobytes()
    # A box may reach over the image's border, by what rounding made of it; that is cut off.
    assert np.abs(after["boxes"] - before["boxes"]).max() < 0.05


def test_no_joint_of_a_converted_person_changes_sides(tmp_path: Path) -> None:
    files = CocoFiles(images=17)
    for joint, annotation in zip(range(17), files.annotations, strict=True):
        annotation["keypoints"] = [
            value for place in range(17) for value in ((20, 10, 2) if place == joint else (0, 0, 0))
        ]
        annotation["num_keypoints"] = 1
    found = open_coco(files.write(tmp_path), tmp_path / "work", side=SIDE, max_people=3)
    for image in [image for split in found.splits.values() for image in split]:
        columns = annotations_of([image], SIDE, 3, COCO)
        [place] = np.flatnonzero(columns["keypoints"][0, 0, :, 2])
        assert COCO.joints[place] == COCO.annotated[image.id - 1]
