"""A batch is a function of its number, for any number of hosts and replicas."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow as tf
from small_dataset import drawn, publish_dataset
from small_poses import POSE, publish_poses

from podline.base.errors import ArtifactError
from podline.data.order import TrainingOrder
from podline.data.reader import SplitReader
from podline.documents.manifest import Manifest
from podline.input.augmentation import augment
from podline.input.pipeline import MASK, EvaluationInput, TrainingInput
from podline.kinds.pose.augmentation import augmented
from podline.kinds.pose.settings import PoseAugmentationSettings
from podline.recipes.settings import AugmentationSettings

FIELDS = ("image", "label")
TRAIN, TEST = 50, 9
NO_CHANCE = AugmentationSettings()
CHANCE = AugmentationSettings(pad=1, flip=True, cutout=3)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def manifest(root: Path) -> Manifest:
    return publish_dataset(root, train=TRAIN, test=TEST)


@pytest.fixture(scope="module")
def folder(root: Path, manifest: Manifest) -> Path:
    return root / manifest.folder


def training(folder: Path, manifest: Manifest, augmentation=NO_CHANCE) -> TrainingInput:
    reader = SplitReader(folder.joinpath, manifest, "train")
    return TrainingInput(reader, manifest, FIELDS, order=TrainingOrder(TRAIN, 8, seed=3), augmentation=augmentation)


def evaluation(folder: Path, manifest: Manifest, batch_size: int, ids=None) -> EvaluationInput:
    reader = SplitReader(folder.joinpath, manifest, "test")
    return EvaluationInput(reader, manifest, FIELDS, batch_size=batch_size, ids=ids)


def arrays(dataset: tf.data.Dataset) -> list[dict[str, np.ndarray]]:
    return list(dataset.as_numpy_iterator())


def same(left: list[dict[str, np.ndarray]], right: list[dict[str, np.ndarray]]) -> bool:
    return len(left) == len(right) and all(
        one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
        for one, other in zip(left, right, strict=True)
    )


def test_a_batch_is_the_examples_that_the_order_says_as_they_were_converted(folder, manifest):
    source, order = drawn(TRAIN, 0), TrainingOrder(TRAIN, 8, seed=3)
    batches = arrays(training(folder, manifest).dataset(0, 13))
    assert len(batches) == 13
    for step, batch in enumerate(batches):
        _, ids = order.batch(step)
        assert np.array_equal(batch["image"], source["image"][ids])
        assert np.array_equal(batch["label"], source["label"][ids])


def test_pixels_stay_uint8_and_every_shape_is_static(folder, manifest):
    assert training(folder, manifest, CHANCE).dataset(0, 1).element_spec == {
        "image": tf.TensorSpec((8, 8, 8, 3), tf.uint8),
        "label": tf.TensorSpec((8,), tf.int64),
    }
    assert evaluation(folder, manifest, 4).dataset().element_spec[MASK] == tf.TensorSpec((3,), tf.float32)


def test_a_run_that_goes_on_at_any_step_gets_its_batches_augmented_by_epoch_and_id(folder, manifest):
    source, fill = training(folder, manifest, CHANCE), np.rint(manifest.split("train").mean).astype(np.uint8)
    whole = [source.batch(step) for step in range(20)]
    for step in (0, 6, 7, 19):
        assert same(arrays(training(folder, manifest, CHANCE).dataset(step, 20)), whole[step:])
        epoch, ids, stored = source.read(step)
        batch = whole[step]
        assert np.array_equal(batch["image"], augment(stored["image"], ids, CHANCE, 3, epoch, fill))
        assert not np.array_equal(batch["image"], stored["image"])
        assert np.array_equal(batch["label"], stored["label"])


@pytest.mark.parametrize(
    ("batch_size", "ids", "size"),
    [(1, range(TEST), 2), (4, range(TEST), 3), (500, range(TEST), TEST), (4, [1, 2, 4, 5, 7, 8], 3), (9, [5], 2)],
)
def test_evaluation_has_every_example_once_and_masks_the_little_padding(folder, manifest, batch_size, ids, size):
    source = evaluation(folder, manifest, batch_size, None if len(ids) == TEST else np.array(ids))
    batches = arrays(source.dataset())
    assert (source.count, source.batches()) == (len(ids), len(batches))
    assert all(len(batch["label"]) == size for batch in batches)
    mask = np.concatenate([batch[MASK] for batch in batches])
    assert mask.tolist() == [1.0] * len(ids) + [0.0] * (len(mask) - len(ids))
    for name, expected in drawn(TEST, 1).items():
        values = np.concatenate([batch[name] for batch in batches])
        assert np.array_equal(values[mask == 1], expected[ids])


def test_people_are_augmented_with_their_image_by_epoch_and_id(tmp_path):
    manifest = publish_poses(tmp_path)
    reader = SplitReader((tmp_path / manifest.folder).joinpath, manifest, "train")
    fields, order = ("image", "keypoints", "ignored"), TrainingOrder(len(reader), 4, seed=3)
    made = TrainingInput(reader, manifest, fields, order=order, augmentation=POSE.augmentation)
    epoch, ids, stored = made.read(9)
    assert epoch > 0
    [batch] = arrays(made.dataset(9, 10))
    assert list(batch) == list(fields)
    for place, number in enumerate(ids):
        alone = {name: values[place : place + 1] for name, values in stored.items()}
        expected = augmented(alone, [number], POSE.augmentation, 3, epoch, manifest)
        assert all(np.array_equal(batch[name][place], expected[name][0]) for name in fields)
    assert (batch["keypoints"] != stored["keypoints"]).any()
    still = TrainingInput(reader, manifest, fields, order=order, augmentation=PoseAugmentationSettings())
    assert same([still.batch(9)], [stored])


def test_an_error_in_a_stage_comes_out_as_itself(folder, manifest, monkeypatch):
    source = evaluation(folder, manifest, 4)
    monkeypatch.setattr(SplitReader, "gather", Mock(side_effect=ArtifactError("damaged")))
    with pytest.raises(ArtifactError, match="damaged"), source.explained():
        arrays(source.dataset())
    with pytest.raises(tf.errors.OutOfRangeError), training(folder, manifest).explained():
        raise tf.errors.OutOfRangeError(None, None, "TensorFlow's own")


class Witness(SplitReader):
    """A reader that notes what is read."""

    seen: list[list[int]]

    def gather(self, indices, fields=None):
        self.seen.append(indices.tolist())
        return super().gather(indices, fields)


@pytest.mark.parametrize(("hosts", "replicas"), [(1, 2), (2, 2), (2, 4), (4, 4)])
def test_hosts_read_disjoint_parts_of_the_same_batches_and_nothing_else(folder, manifest, hosts, replicas):
    steps, order = 9, TrainingOrder(TRAIN, 8, seed=3)
    whole = arrays(training(folder, manifest, CHANCE).dataset(0, steps))
    shares: list[list[dict[str, np.ndarray]]] = [[] for _ in range(steps)]
    for host in range(hosts):
        witness = Witness(folder.joinpath, manifest, "train")
        witness.seen = []
        source = TrainingInput(witness, manifest, FIELDS, order=order, augmentation=CHANCE)
        context = tf.distribute.InputContext(hosts, host, replicas)
        local = replicas // hosts
        elements = source.dataset(0, steps, context=context).take(steps * local).as_numpy_iterator()
        for index, part in enumerate(elements):
            shares[index // local].append(part)
        # Prefetching goes on past the end, and begins again: what is read is the host's own all the same.
        own = [np.split(order.batch(step)[1], hosts)[host] for step in range(steps)]
        assert {tuple(ids) for ids in witness.seen} == {tuple(ids) for mine in own for ids in np.split(mine, local)}
    for step, parts in enumerate(shares):
        together = {name: np.concatenate([part[name] for part in parts]) for name in FIELDS}
        assert all(np.array_equal(together[name], whole[step][name]) for name in FIELDS)


@pytest.mark.parametrize(("hosts", "replicas"), [(1, 3), (2, 2), (2, 4)])
def test_an_evaluation_s_parts_hold_every_example_once(folder, manifest, hosts, replicas):
    source = evaluation(folder, manifest, batch_size=4)
    parts: dict[int, dict[str, np.ndarray]] = {}
    local = replicas // hosts
    for host in range(hosts):
        context = tf.distribute.InputContext(hosts, host, replicas)
        elements = source.dataset(context).take(source.batches(replicas) * local).as_numpy_iterator()
        for index, part in enumerate(elements):
            parts[(index // local) * replicas + host * local + index % local] = part
    labels = [parts[place]["label"][parts[place][MASK] > 0] for place in sorted(parts)]
    assert np.array_equal(np.concatenate(labels), drawn(TEST, 1)["label"])
