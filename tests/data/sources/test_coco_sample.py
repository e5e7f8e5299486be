"""The drawn sample of people."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from coco_files import open_coco
from pycocotools import mask as masks

from podline.data.sources.coco_sample import write_coco_sample
from podline.errors import SettingsError


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_coco_sample(tmp_path_factory.mktemp("drawn"), train=30, test=10)


def test_the_same_seed_gives_the_same_bytes(drawn: Path, tmp_path: Path) -> None:
    assert contents(write_coco_sample(tmp_path / "again", 30, 10)) == contents(drawn)
    other = contents(write_coco_sample(tmp_path / "other", 30, 10, seed=1))
    assert not [name for name, content in other.items() if contents(drawn)[name] == content]
    write_coco_sample(drawn, 30, 10)
    with pytest.raises(SettingsError, match="other content"):
        write_coco_sample(drawn, 31, 10)
    with pytest.raises(SettingsError, match="train=1"):
        write_coco_sample(tmp_path / "small", 1, 10)


@pytest.mark.usefixtures("parsed_here")
def test_it_has_the_cases_of_real_data(drawn: Path) -> None:
    source = open_coco(drawn, drawn.parent / "work")
    assert source.sizes == {"train": 30, "test": 10}
    reasons = [record.reason for record in source.quarantined]
    assert len(reasons) == 3
    for part in ("the file is truncated", "has no such file", "there is no image 33"):
        assert sum(part in reason for reason in reasons) == 1
    for rule in ("crowds", "grey images", "images without instances", "instances without a labelled joint"):
        assert source.counted[rule] > 0
    assert source.counted["images with an EXIF rotation, left as stored"] == 1
    assert "instances whose num_keypoints is wrong" not in source.counted
    assert "labelled joints outside the image" not in source.counted


def test_joints_lie_on_what_was_painted(drawn: Path) -> None:
    document = json.loads((drawn / "annotations" / "person_keypoints_train2017.json").read_bytes())
    people = [annotation for annotation in document["annotations"] if annotation["num_keypoints"]]
    assert len(people) > 30
    for person in people:
        left, top, width, height = person["bbox"]
        joints = np.reshape(person["keypoints"], (17, 3))
        x, y = joints[joints[:, 2] > 0, :2].T
        assert ((x >= left - 1) & (x <= left + width) & (y >= top - 1) & (y <= top + height)).all()
    picture = cv2.imread(str(drawn / "train2017" / f"{people[-1]['image_id']:012}.jpg"))
    wrists = np.reshape(people[-1]["keypoints"], (17, 3))[9:11]
    for (x, y, labelled), warm in zip(wrists, (False, True), strict=True):
        if labelled:
            blue, _, red = picture[y, x].astype(int)
            assert (red > blue) == warm


def test_a_crowd_is_outlined_as_pycocotools_reads_it(drawn: Path) -> None:
    document = json.loads((drawn / "annotations" / "person_keypoints_train2017.json").read_bytes())
    crowd = next(annotation for annotation in document["annotations"] if annotation["iscrowd"])
    encoded = masks.frPyObjects(crowd["segmentation"], *crowd["segmentation"]["size"])
    assert masks.area(encoded) == crowd["area"]
    assert masks.toBbox(encoded).tolist() == crowd["bbox"]
