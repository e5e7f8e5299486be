"""Mixed batches: pixels, targets and shares, and the loss that is made of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from small_dataset import FINGERPRINT, publish_dataset

from podline.data.order import TrainingOrder
from podline.data.reader import SplitReader
from podline.documents.manifest import Manifest
from podline.input.augmentation import augmented
from podline.input.chance import Chance
from podline.input.mixing import SHARE, mixed
from podline.input.pipeline import TrainingInput
from podline.kinds.classification.objective import ClassificationObjective
from podline.kinds.labels.objective import LabelsObjective
from podline.recipes.settings import AugmentationSettings

BATCH, COUNT = 8, 96
BOTH = AugmentationSettings(flip=True, mixup=0.4, cutmix=1)


@pytest.fixture(name="manifest")
def _manifest(tmp_path: Path) -> Manifest:
    return publish_dataset(tmp_path)


def source(root: Path, manifest: Manifest, settings: AugmentationSettings) -> TrainingInput:
    reader = SplitReader((root / "datasets" / "sample" / FINGERPRINT).joinpath, manifest, "train")
    return TrainingInput(reader, manifest, ("image", "label"), TrainingOrder(COUNT, BATCH, seed=3), settings)


def pair(count: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], Chance]:
    """Black images of class 0 and white partners of class 1."""
    shape = (count, 32, 32, 3)
    black = {"image": np.zeros(shape, np.uint8), "label": np.zeros(count, np.int64)}
    white = {"image": np.full(shape, 255, np.uint8), "label": np.ones(count, np.int64)}
    return black, white, Chance(1, 2, np.arange(count))


@pytest.mark.parametrize("alpha", [0.2, 1, 4])
def test_mixup_blends_by_shares_from_a_beta_distribution(alpha: float) -> None:
    black, white, chance = pair(4000)
    made = mixed(black, white, AugmentationSettings(mixup=alpha), chance)
    shares = made[SHARE].astype(float)
    assert np.abs(made["image"] - 255 * (1 - shares)[:, None, None, None]).max() <= 0.51
    assert shares.min() >= 0.5
    drawn = np.random.default_rng(0).beta(alpha, alpha, 100_000)
    levels = [0.1, 0.25, 0.5, 0.75, 0.9]
    expected = np.quantile(np.maximum(drawn, 1 - drawn), levels)
    np.testing.assert_allclose(np.quantile(shares, levels), expected, atol=0.02)
    assert made["label"].tolist() == [0] * 4000
    assert made["partner label"].tolist() == [1] * 4000


def test_cutmix_pastes_a_rectangle_and_its_share_is_what_is_left() -> None:
    black, white, chance = pair(1000)
    made = mixed(black, white, AugmentationSettings(cutmix=1), chance)
    pasted = made["image"][..., 0] == 255
    assert set(np.unique(made["image"]).tolist()) == {0, 255}
    np.testing.assert_allclose(made[SHARE], 1 - pasted.mean(axis=(1, 2)), rtol=1e-6)
    assert (made[SHARE] >= 0.5).all()
    assert 0.75 < made[SHARE].mean() < 0.9  # 0.75 without what lies outside
    for mask in pasted:
        assert mask.sum() == mask.any(axis=1).sum() * mask.any(axis=0).sum()
    assert pasted.any(axis=0).all()


def test_a_partner_is_any_example_of_the_epoch_as_it_is_augmented_itself(tmp_path: Path, manifest: Manifest) -> None:
    settings = AugmentationSettings(flip=True, crop=0.5, cutmix=1)
    made = source(tmp_path, manifest, settings)
    epoch, ids, stored = made.read(17)
    assert epoch == 1
    partners = made.order.partners(epoch, ids)
    alone = augmented(stored, ids, settings, 3, epoch, manifest)
    others = augmented(made.reader.gather(partners), partners, settings, 3, epoch, manifest)
    expected = mixed(alone, {name: others[name] for name in stored}, settings, Chance(3, epoch, ids))
    batch = made.batch(17)
    assert sorted(batch) == sorted(expected) == ["image", "label", "partner label", SHARE]
    assert all(np.array_equal(batch[name], expected[name]) for name in batch)
    drawn = np.concatenate([made.order.partners(epoch, np.arange(COUNT)) for epoch in range(40)])
    assert np.bincount(drawn, minlength=COUNT).min() > 15  # 40 on average


def test_partners_of_a_balanced_order_are_as_balanced(tmp_path: Path, manifest: Manifest) -> None:
    made = source(tmp_path, manifest, BOTH)
    labels = np.where(np.arange(COUNT) < 6, 0, 1)
    balanced = replace(made, order=made.order.balanced(labels))
    partners = balanced.order.records(balanced.order.partners(0, np.arange(2000)))
    assert (labels[partners] == 0).mean() == pytest.approx(0.5, abs=0.05)
    assert balanced.batch(1)["image"].shape == (BATCH, 8, 8, 3)


@pytest.mark.parametrize("settings", [BOTH, AugmentationSettings(mixup=1, image_size=6)], ids=["both", "resized"])
def test_replicas_and_resumed_runs_have_the_same_batches(
    tmp_path: Path, manifest: Manifest, settings: AugmentationSettings
) -> None:
    made = source(tmp_path, manifest, settings)
    whole = [made.batch(step) for step in range(20)]
    resumed = source(tmp_path, manifest, settings)
    for step in (13, 4, 19):
        parts = [resumed.batch(step, replica, 4) for replica in range(4)]
        for name, values in whole[step].items():
            assert np.array_equal(np.concatenate([part[name] for part in parts]), values), name
    elements = list(source(tmp_path, manifest, settings).dataset(11, 14).as_numpy_iterator())
    for batch, expected in zip(elements, whole[11:14], strict=True):
        assert all(np.array_equal(batch[name], values) for name, values in expected.items())
        assert batch.keys() == expected.keys()


def test_the_loss_of_a_mixed_example_is_that_of_the_soft_target() -> None:
    logits = np.random.default_rng(0).normal(0, 2, (5, 4)).astype(np.float32)
    own, other, share = np.array([0, 1, 2, 3, 1]), np.array([3, 1, 0, 2, 2]), np.float32([0.5, 0.7, 1, 0.9, 0.6])
    batch = {"label": tf.constant(own), "partner label": tf.constant(other), SHARE: tf.constant(share)}
    soft = share[:, None] * np.eye(4)[own] + (1 - share[:, None]) * np.eye(4)[other]
    soft = 0.9 * soft + 0.1 / 4
    expected = -(soft * (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))).sum(axis=1)
    objective = ClassificationObjective(smoothing=0.1)
    np.testing.assert_allclose(objective.terms(batch, tf.constant(logits))["cross_entropy"], expected, rtol=1e-5)
    right = objective.measures(batch, tf.constant(logits))["correct"].numpy()
    assert right.tolist() == (logits.argmax(axis=1) == own).tolist()
    several, others = np.random.default_rng(1).integers(0, 2, (2, 5, 4))
    batch |= {"labels": tf.constant(several), "partner labels": tf.constant(others)}
    soft = share[:, None] * several + (1 - share[:, None]) * others
    probabilities = 1 / (1 + np.exp(-logits.astype(float)))
    expected = -(soft * np.log(probabilities) + (1 - soft) * np.log(1 - probabilities)).sum(axis=1)
    found = LabelsObjective().terms(batch, tf.constant(logits))["cross_entropy"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
