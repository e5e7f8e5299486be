"""Records are those of TensorFlow's own encoding and parsing, and TensorFlow Datasets opens our folders."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_coco import publish_people
from small_dataset import encoded, publish

from podline.base.errors import SourceError
from podline.data.reader import SplitReader
from podline.data.records import label_feature, layout_of
from podline.data.tfds import tfds_files, tfds_names
from podline.data.tfrecord import framed, masked_crcs, payloads, seal
from podline.documents.feature import Feature
from podline.documents.manifest import Manifest

LABEL, COARSE = Feature("label", "int64", ()), Feature("coarse_label", "int64", ())

LAYOUTS = {
    "cifar100": [Feature("image", "uint8", (32, 32, 3)), LABEL, COARSE],
    "sizes around a varint's second byte": [
        Feature(f"x{size:03}", "uint8", (size,)) for size in (1, 118, 119, 120, 127, 128)
    ],
    "floats and wide integers": [
        Feature("keypoints", "float32", (4, 17, 3)),
        Feature("areas", "float64", (4,)),
        Feature("ids", "int64", (2,)),
        Feature("person", "int16", ()),
    ],
}


def drawn(features: Iterable[Feature], count: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        feature.name: random.integers(0, 120, (count, *feature.shape)).astype(feature.dtype) for feature in features
    }


@pytest.mark.parametrize("name", LAYOUTS)
def test_bytes_are_those_of_tensorflow_and_values_come_back(tmp_path: Path, name: str) -> None:
    import tensorflow as tf  # noqa: PLC0415  (ten seconds that only these tests need)

    def one(feature: Feature, value: np.ndarray) -> tf.train.Feature:
        if feature.dtype == "int64" and feature.shape == ():
            return tf.train.Feature(int64_list=tf.train.Int64List(value=[int(value)]))
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.tobytes()]))

    features, count = LAYOUTS[name], 5
    columns = drawn(features, count)
    with tf.io.TFRecordWriter(str(tmp_path / "plain")) as writer:
        for index in range(count):
            values = {feature.name: one(feature, columns[feature.name][index]) for feature in features}
            example = tf.train.Example(features=tf.train.Features(feature=values))
            writer.write(example.SerializeToString(deterministic=True))
    layout = layout_of(features)
    frames = encoded(layout, columns)
    assert frames.tobytes() == (tmp_path / "plain").read_bytes()
    assert frames.tobytes() == b"".join(framed(payload.tobytes()) for payload in payloads(frames))
    assert frames[:, -4:].tobytes() == masked_crcs(payloads(frames)).tobytes()
    for field in layout.fields:
        np.testing.assert_array_equal(layout.values(frames, field.name), columns[field.name])


def test_images_and_labels_are_views_of_frames_that_can_be_filled_again() -> None:
    layout, columns = layout_of(LAYOUTS["cifar100"]), drawn(LAYOUTS["cifar100"], 4)
    frames = encoded(layout, {name: values[::-1] for name, values in columns.items()})
    for name in ("image", "label", "coarse_label"):
        assert np.shares_memory(layout.values(frames, name), frames)
    layout.fill(frames, columns)
    seal(frames)
    assert frames.tobytes() == encoded(layout, columns).tobytes()


@pytest.mark.parametrize(("classes", "width"), [(0, 1), (1, 1), (128, 1), (129, 2), (16_384, 2), (16_385, 3)])
def test_a_label_is_as_wide_as_its_classes_need(classes: int, width: int) -> None:
    names = tuple(map(str, range(classes)))
    feature = label_feature("label", names)
    assert feature == Feature("label", "int64", (), width, class_names=names)
    [field] = layout_of([feature]).fields
    assert field.model_dump().get("width") == (width if width > 1 else None)


@pytest.mark.parametrize("classes", [128, 16_384, 16_385])
def test_wide_labels_are_parsed_by_tensorflow(classes: int) -> None:
    import tensorflow as tf  # noqa: PLC0415  (ten seconds that only these tests need)

    features = [Feature("image", "uint8", (2, 1, 1)), label_feature("label", [""] * classes)]
    layout, labels = layout_of(features), np.array([0, 1, 127, min(128, classes - 1), classes // 2, classes - 1])
    frames = encoded(layout, {**drawn(features, len(labels)), "label": labels})
    assert layout.values(frames, "label").tolist() == labels.tolist()
    shapes = {"label": tf.io.FixedLenFeature((), tf.int64), "image": tf.io.FixedLenFeature((), tf.string)}
    parsed = tf.io.parse_example([payload.tobytes() for payload in payloads(frames)], shapes)
    assert parsed["label"].numpy().tolist() == labels.tolist()
    limit = 128 ** features[1].width
    for bad in (limit, -1):
        with pytest.raises(SourceError, match=f"from {min(bad, 5)} to {max(bad, 5)}, expected 0 to {limit - 1}"):
            encoded(layout, {**drawn(features, 2), "label": np.array([5, bad])})


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
