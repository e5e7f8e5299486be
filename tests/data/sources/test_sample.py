"""The data sets that are drawn: figures in CIFAR-10's layout, people in COCO's."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest
from coco_files import open_coco
from pycocotools import mask as masks

from podline.base.errors import SettingsError
from podline.data.people.sample import write_coco_sample
from podline.data.sources.download import download
from podline.data.sources.opening import open_source
from podline.data.sources.sample import FOLDER, write_sample
from podline.data.sources.shapes import draw
from podline.store import digests

pytestmark = pytest.mark.usefixtures("parsed_here")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sample(tmp_path_factory.mktemp("drawn"), train=1203, test=400)


def test_the_same_bytes_on_every_machine(tmp_path: Path) -> None:
    """These checksums change only when the drawings are meant to.

    A linear model on these drawings is near guessing, no image comes twice, and each figure stands out: measured when
    the checksums were written.
    """
    folder = write_sample(tmp_path, train=20, test=10) / FOLDER
    names = "batches.meta.txt", "data_batch_1.bin", "data_batch_5.bin", "test_batch.bin"
    found = [digests.of_file(folder / name)[:16] for name in names]
    assert found == ["d6d6b63816b127e1", "5968b8e6baf28d9f", "e8750c75a610c5c7", "20534fed8f6b2d2d"]


def test_an_image_depends_on_its_seed_split_and_place_alone_and_shows_its_label() -> None:
    places, labels = np.arange(100), (np.arange(100) % 10).astype(np.uint8)
    images = draw(0, "train", places, labels)
    np.testing.assert_array_equal(draw(0, "train", places[7:9], labels[7:9]), images[7:9])
    for others in (draw(1, "train", places, labels), draw(0, "test", places, labels)):
        assert (others != images).reshape(100, -1).mean(axis=1).min() > 0.9
    assert images.shape == (100, 3, 32, 32)
    assert (images.min(), images.max()) == (0, 255)
    other = draw(0, "train", places, (labels + 3) % 10)
    assert (np.abs(images.astype(int) - other).max(axis=(1, 2, 3)) > 40).all(), "every figure stands out"


def test_it_is_a_source(drawn: Path, tmp_path: Path) -> None:
    source = open_source("sample", str(drawn), tmp_path / "work")
    assert source.sizes == {"train": 1203, "test": 400}
    assert (source.quarantined, source.contradicting) == ((), {}), "no image comes twice"
    for split, most in zip(source.splits, (121, 40), strict=True):
        labels = split.read(np.arange(len(split)))["label"]
        counts = np.bincount(labels, minlength=10)
        assert set(counts) <= {most, most - 1}, "as many of each class as can be"
        assert not (labels == np.arange(len(split)) % 10).all()
    found = source.splits[1].read(np.arange(5))
    np.testing.assert_array_equal(
        found["image"].transpose(0, 3, 1, 2), draw(0, "test", np.arange(5), found["label"].astype(np.uint8))
    )


@pytest.mark.parametrize("counts", [{"train": 4}, {"train": 500_001}, {"seed": -1}])
def test_counts_have_bounds(tmp_path: Path, counts: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match="expected train from 5 to 500,000"):
        write_sample(tmp_path, **counts)
    assert list(tmp_path.iterdir()) == []


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_coco_sample(tmp_path_factory.mktemp("people"), train=30, test=10)


def test_a_bucket_is_no_folder_for_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for write in (write_sample, write_coco_sample, partial(download, "mnist")):
        with pytest.raises(SettingsError, match=r"gs://bucket/x is not on this machine; give a local path"):
            write(Path("gs://bucket/x"))
    assert not list(tmp_path.iterdir())


def test_the_same_seed_draws_the_same_people(people: Path, tmp_path: Path) -> None:
    assert contents(write_coco_sample(tmp_path / "again", 30, 10)) == contents(people)
    other = contents(write_coco_sample(tmp_path / "other", 30, 10, seed=1))
    assert not [name for name, content in other.items() if contents(people)[name] == content]
    write_coco_sample(people, 30, 10)
    with pytest.raises(SettingsError, match="other content"):
        write_coco_sample(people, 31, 10)
    with pytest.raises(SettingsError, match="train=1"):
        write_coco_sample(tmp_path / "small", 1, 10)


def test_people_have_the_cases_of_real_data(people: Path) -> None:
    source = open_coco(people, people.parent / "work")
    assert source.sizes == {"train": 30, "test": 10}
    reasons = [record.reason for record in source.quarantined]
    assert len(reasons) == 3
    for part in ("is truncated", "is not in the source", "there is no image 33"):
        assert sum(part in reason for reason in reasons) == 1
    for rule in ("crowds", "images without instances", "instances without a labelled joint"):
        assert source.counted[rule] > 0
    assert source.counted["left as stored in spite of EXIF"] == 1


def test_joints_lie_on_what_was_painted_and_a_crowd_within_its_outline(people: Path) -> None:
    document = json.loads((people / "annotations" / "person_keypoints_train2017.json").read_bytes())
    labelled = [annotation for annotation in document["annotations"] if annotation["num_keypoints"]]
    assert len(labelled) > 30
    for person in labelled:
        left, top, width, height = person["bbox"]
        joints = np.reshape(person["keypoints"], (17, 3))
        x, y = joints[joints[:, 2] > 0, :2].T
        assert ((x >= left - 1) & (x <= left + width) & (y >= top - 1) & (y <= top + height)).all()
    picture = cv2.imread(str(people / "train2017" / f"{labelled[-1]['image_id']:012}.jpg"))
    for (x, y, visible), warm in zip(joints[9:11], (False, True), strict=True):  # its wrists
        if visible:
            blue, _, red = picture[y, x].astype(int)
            assert (red > blue) == warm
    crowd = next(annotation for annotation in document["annotations"] if annotation["iscrowd"])
    encoded = masks.frPyObjects(crowd["segmentation"], *crowd["segmentation"]["size"])
    assert masks.area(encoded) == crowd["area"]
    assert masks.toBbox(encoded).tolist() == crowd["bbox"]
