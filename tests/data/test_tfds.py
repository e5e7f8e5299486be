"""TensorFlow Datasets opens our folders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from small_coco import publish_people
from small_dataset import publish

from podline.data.reader import SplitReader
from podline.data.tfds import tfds_files, tfds_names
from podline.documents.manifest import Manifest, dataset_folder

NAMES = {"label": tuple(f"plant {number} été" for number in range(300)), "coarse_label": ("plants", "animals")}
SIZES = {"train": 23, "test": 7}


def publish_plants(root: Path) -> tuple[Path, Manifest]:
    """A tiny data set with two labels, one of them of 300 classes, as a conversion would leave it."""
    random = np.random.default_rng(0)
    splits = {
        split: {
            "image": random.integers(0, 256, (size, 6, 5, 3), np.uint8),
            **{name: random.integers(0, len(names), size) for name, names in NAMES.items()},
        }
        for split, size in SIZES.items()
    }
    manifest = publish(root, "cifar100", NAMES["label"], splits, shard_records=10)
    for name, content in tfds_files(manifest, NAMES).items():
        (root / manifest.folder / name).write_bytes(content)
    return root / manifest.folder, manifest


# TFDS 4.9 asks protobuf 6 for a field's label, as protobuf 7 will no longer allow.
@pytest.mark.filterwarnings("ignore:label\\(\\) is deprecated:DeprecationWarning:tensorflow_datasets")
def test_every_split_opens_with_the_right_examples(tmp_path: Path) -> None:
    tfds = pytest.importorskip("tensorflow_datasets")
    folder, manifest = publish_plants(tmp_path)
    builder = tfds.builder_from_directory(str(folder))
    assert builder.info.name == "cifar100"
    assert builder.info.features["image"].shape == (6, 5, 3)
    for label, names in NAMES.items():
        assert builder.info.features[label].names == list(names)
    assert set(builder.info.splits) == set(SIZES)
    for split, size in SIZES.items():
        info = builder.info.splits[split]
        assert (info.num_examples, info.shard_lengths) == (size, [s.records for s in manifest.split(split).shards])
        ours = SplitReader(folder.joinpath, manifest, split).gather(np.arange(size))
        theirs = list(builder.as_dataset(split=split, shuffle_files=False).as_numpy_iterator())
        assert len(theirs) == size
        for index, example in enumerate(theirs):
            assert example["image"].dtype == np.uint8
            assert set(example) == set(ours)
            for name, value in example.items():
                assert (value == ours[name][index]).all()


# TFDS 4.9 asks protobuf 6 for a field's label, as protobuf 7 will no longer allow.
@pytest.mark.filterwarnings("ignore:label\\(\\) is deprecated:DeprecationWarning:tensorflow_datasets")
def test_people_and_images_files_are_read_as_well_as_opened(tmp_path: Path) -> None:
    tfds = pytest.importorskip("tensorflow_datasets")
    manifest = publish_people(tmp_path, keep_files=True)
    folder = tmp_path / dataset_folder(manifest.dataset, manifest.fingerprint)
    builder = tfds.builder_from_directory(str(folder))
    for split in manifest.splits:
        ours = SplitReader(folder.joinpath, manifest, split.name).gather(np.arange(split.records))
        theirs = list(builder.as_dataset(split=split.name, shuffle_files=False).as_numpy_iterator())
        assert len(theirs) == split.records > 0
        for index, example in enumerate(theirs):
            assert set(example) == set(ours)
            for name in set(ours) - {"image"}:
                assert example[name].dtype == ours[name].dtype
                assert (example[name] == ours[name][index]).all(), name
            # The file's own pixels, as they are before they are put into a square.
            assert example["image"].shape == (*example["size"][::-1], 3)


def test_names_are_those_of_the_files(tmp_path: Path) -> None:
    _folder, manifest = publish_plants(tmp_path)
    files = tfds_files(manifest, NAMES)
    assert list(files) == tfds_names(NAMES)
    assert json.loads(files["dataset_info.json"])["splits"][0]["shardLengths"] == ["7", "8", "8"]
