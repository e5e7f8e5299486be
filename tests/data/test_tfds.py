"""TensorFlow Datasets opens our folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_coco import publish_people
from small_dataset import publish

from podline.data.reader import SplitReader
from podline.data.tfds import tfds_files, tfds_names
from podline.documents.manifest import Manifest

# TFDS 4.9 asks protobuf 6 for a field's label, as protobuf 7 will no longer allow.
pytestmark = pytest.mark.filterwarnings("ignore:label\\(\\) is deprecated:DeprecationWarning:tensorflow_datasets")
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


def assert_same(folder: Path, manifest: Manifest, builder: Any, fields: set[str]) -> None:
    """All examples, as TensorFlow Datasets gives them in their order."""
    for split in manifest.splits:
        info = builder.info.splits[split.name]
        assert (info.num_examples, info.shard_lengths) == (split.records, [shard.records for shard in split.shards])
        ours = SplitReader(folder.joinpath, manifest, split.name).gather(np.arange(split.records))
        theirs = list(builder.as_dataset(split=split.name, shuffle_files=False).as_numpy_iterator())
        assert len(theirs) == split.records > 0
        for index, example in enumerate(theirs):
            assert set(example) == set(ours)
            for name in fields:
                assert example[name].dtype == ours[name].dtype
                assert (example[name] == ours[name][index]).all(), name
            assert example["image"].shape == ours["image"][index].shape


def test_every_split_opens_with_the_right_examples(tmp_path: Path) -> None:
    tfds = pytest.importorskip("tensorflow_datasets")
    folder, manifest = publish_plants(tmp_path)
    builder = tfds.builder_from_directory(str(folder))
    assert builder.info.name == "cifar100"
    assert builder.info.features["image"].shape == (6, 5, 3)
    for label, names in NAMES.items():
        assert builder.info.features[label].names == list(names)
    assert set(builder.info.splits) == set(SIZES)
    assert_same(folder, manifest, builder, {"image", *NAMES})
    assert list(tfds_files(manifest, NAMES)) == tfds_names(NAMES)


def test_people_and_images_files_are_read_as_well_as_opened(tmp_path: Path) -> None:
    tfds = pytest.importorskip("tensorflow_datasets")
    manifest = publish_people(tmp_path, keep_jpeg=True)
    folder = tmp_path / manifest.folder
    fields = {field.name for field in manifest.fields} - {"image"}
    assert_same(folder, manifest, tfds.builder_from_directory(str(folder)), fields)
