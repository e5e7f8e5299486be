"""The record layout against TensorFlow's own encoding and parsing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_dataset import encoded

from podline.data.records import Feature, label_feature, layout_of
from podline.data.tfrecord import payloads, seal
from podline.errors import SourceError

LABEL, COARSE = Feature("label", "int64", ()), Feature("coarse_label", "int64", ())

LAYOUTS = {
    "cifar10": [Feature("image", "uint8", (32, 32, 3)), LABEL],
    "cifar100": [Feature("image", "uint8", (32, 32, 3)), LABEL, COARSE],
    "mnist": [Feature("image", "uint8", (28, 28, 1)), LABEL],
    "one pixel": [Feature("image", "uint8", (1, 1, 1)), LABEL],
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


def is_varint(feature: Feature) -> bool:
    return feature.dtype == "int64" and feature.shape == ()


@pytest.mark.parametrize("name", LAYOUTS)
def test_bytes_are_those_of_tensorflow(tmp_path: Path, name: str) -> None:
    import tensorflow as tf  # noqa: PLC0415  (ten seconds that only these tests need)

    def one(feature: Feature, value: np.ndarray) -> tf.train.Feature:
        if is_varint(feature):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=[int(value)]))
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.tobytes()]))

    features, count = LAYOUTS[name], 5
    columns = drawn(features, count)
    with tf.io.TFRecordWriter(str(tmp_path / "plain")) as writer:
        for index in range(count):
            values = {feature.name: one(feature, columns[feature.name][index]) for feature in features}
            example = tf.train.Example(features=tf.train.Features(feature=values))
            writer.write(example.SerializeToString(deterministic=True))
    assert encoded(layout_of(features), columns).tobytes() == (tmp_path / "plain").read_bytes()


@pytest.mark.parametrize("name", LAYOUTS)
def test_values_come_back(name: str) -> None:
    layout, columns = layout_of(LAYOUTS[name]), drawn(LAYOUTS[name], 7)
    frames = encoded(layout, columns)
    assert frames.shape == (7, layout.frame_length)
    for field in layout.fields:
        values = layout.values(frames, field.name)
        assert values.shape == columns[field.name].shape
        assert (values == columns[field.name]).all()


def test_images_and_labels_are_views() -> None:
    layout = layout_of(LAYOUTS["cifar100"])
    frames = encoded(layout, drawn(LAYOUTS["cifar100"], 3))
    for name in ("image", "label", "coarse_label"):
        assert np.shares_memory(layout.values(frames, name), frames)


def test_frames_can_be_filled_again() -> None:
    layout, columns = layout_of(LAYOUTS["cifar10"]), drawn(LAYOUTS["cifar10"], 4)
    frames = encoded(layout, {name: values[::-1] for name, values in columns.items()})
    layout.fill(frames, columns)
    seal(frames)
    assert frames.tobytes() == encoded(layout, columns).tobytes()


@settings(deadline=None)  # a busy machine is no bug
@given(st.lists(st.integers(min_value=-3, max_value=300), min_size=1, max_size=5))
def test_a_label_that_is_no_single_byte_is_refused(labels: list[int]) -> None:
    layout, features = layout_of(LAYOUTS["one pixel"]), LAYOUTS["one pixel"]
    columns = {**drawn(features, len(labels)), "label": np.array(labels)}
    if min(labels) >= 0 and max(labels) < 128:
        assert layout.values(encoded(layout, columns), "label").tolist() == labels
    else:
        with pytest.raises(SourceError, match=f"from {min(labels)} to {max(labels)}; a record holds 0 to 127"):
            encoded(layout, columns)


@pytest.mark.parametrize(("classes", "width"), [(0, 1), (1, 1), (128, 1), (129, 2), (16_384, 2), (16_385, 3)])
def test_a_label_is_as_wide_as_its_classes_need(classes: int, width: int) -> None:
    names = tuple(map(str, range(classes)))
    assert label_feature("label", names) == Feature("label", "int64", (), width, class_names=names)


@pytest.mark.parametrize("classes", [129, 16_384, 16_385, 2_097_152])
def test_wide_labels_are_parsed_by_tensorflow(classes: int) -> None:
    import tensorflow as tf  # noqa: PLC0415  (ten seconds that only these tests need)

    features = [Feature("image", "uint8", (2, 1, 1)), label_feature("label", [""] * classes)]
    layout, labels = layout_of(features), np.array([0, 1, 127, 128, classes // 2, classes - 1])
    frames = encoded(layout, {**drawn(features, len(labels)), "label": labels})
    assert layout.values(frames, "label").tolist() == labels.tolist()
    shapes = {"label": tf.io.FixedLenFeature((), tf.int64), "image": tf.io.FixedLenFeature((), tf.string)}
    parsed = tf.io.parse_example([payload.tobytes() for payload in payloads(frames)], shapes)
    assert parsed["label"].numpy().tolist() == labels.tolist()
    limit = 128 ** features[1].width
    with pytest.raises(SourceError, match=f"to {limit}; a record holds 0 to {limit - 1}"):
        encoded(layout, {**drawn(features, 1), "label": np.array([limit])})


def test_only_a_wide_label_s_width_is_in_a_manifest() -> None:
    fields = layout_of([label_feature("coarse", [""] * 20), label_feature("label", [""] * 300)]).fields
    assert [field.model_dump().get("width") for field in fields] == [None, 2]


def test_features_are_in_the_order_of_their_names() -> None:
    layout = layout_of(LAYOUTS["cifar100"])
    assert [field.name for field in layout.fields] == ["coarse_label", "image", "label"]
