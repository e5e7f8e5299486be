"""The record layout against TensorFlow's own encoding and parsing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from small_dataset import encoded

from podline.base.errors import SourceError
from podline.data.records import label_feature, layout_of
from podline.data.tfrecord import framed, masked_crcs, payloads, seal
from podline.documents.feature import Feature

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
        with pytest.raises(SourceError, match=f"from {min(bad, 5)} to {max(bad, 5)}; a record holds 0 to {limit - 1}"):
            encoded(layout, {**drawn(features, 2), "label": np.array([5, bad])})
