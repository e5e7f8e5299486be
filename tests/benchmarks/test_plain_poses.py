"""The plain side of the input of poses delivers the same examples: images with the targets of their people."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from coco_files import open_coco

from benchmarks import coco, plain_poses
from podline.data.sources.coco_records import annotations_of
from podline.documents.skeleton import COCO
from podline.kinds.pose.settings import PoseTargetSettings
from podline.kinds.pose.targets import pose_targets

SIDE, SETTINGS = 64, PoseTargetSettings(stride=8)


@pytest.mark.slow
def test_plain_batches_hold_every_image_with_its_targets_once(tmp_path: Path) -> None:
    coco.make_images(str(tmp_path / "raw"), 10)
    source = open_coco(tmp_path / "raw", tmp_path / "work", side=SIDE, max_people=3)
    images = source.splits["train"]
    columns = annotations_of(images, SIDE, 3, COCO)
    assert columns["people"].tolist() == [2] * 8
    keypoints, ignored = columns["keypoints"], columns["ignored"]
    batches = plain_poses.batches(
        [image.place.path for image in images], keypoints, ignored, side=SIDE, settings=SETTINGS, batch_size=4
    )
    delivered = [np.concatenate(values) for values in zip(*batches.as_numpy_iterator(), strict=True)]
    assert [values.shape for values in delivered] == [(8, 64, 64, 3), (8, 8, 8, 18), (8, 8, 8, 40), (8, 8, 8, 1)]
    # Some are mirrored, which changes neither an image's mean colour nor how much is drawn.
    expected = sorted(
        pose_targets(keypoints, ignored, SIDE, SETTINGS, COCO).heatmaps.numpy().sum(axis=(1, 2, 3)).tolist()
    )
    assert sorted(delivered[1].sum(axis=(1, 2, 3)).tolist()) == pytest.approx(expected, rel=1e-4)
    colours = sorted(cv2.imread(image.place.path).mean() for image in images)
    seen = delivered[0][:, 8:56].mean(axis=(1, 2, 3))  # without the borders above and below
    assert sorted(seen.tolist()) == pytest.approx(colours, abs=3)
