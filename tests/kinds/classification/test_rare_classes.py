"""What a classifier's training does for classes with few examples: weights, balanced sampling, focal loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_dataset import FINGERPRINT, publish_dataset, small_recipe

from podline.base.errors import SettingsError
from podline.documents.manifest import Manifest
from podline.kinds.classification.objective import ClassificationObjective, cross_entropy
from podline.kinds.classification.settings import ClassificationSettings
from podline.kinds.classification.weights import class_weights
from podline.recipes.durations import Duration
from podline.recipes.settings import LossSettings, Recipe, ScheduleSettings
from podline.store.opening import open_store
from podline.training.plan import plan_training
from podline.training.run import build_trainer, configure_process

LOGITS = np.array([[2.0, 0.0, -1.0], [0.0, 1.0, 0.0], [-3.0, 4.0, 0.5]], np.float32)
LABELS = np.array([0, 2, 0])


def overlapping(counts: tuple[int, int, int], seed: int) -> dict[str, np.ndarray]:
    """Draw grey images of three classes, whose levels differ by one deviation from class to class."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.repeat(np.arange(3), counts))
    levels = np.array([108, 128, 148])[labels] + random.normal(0, 20, len(labels))
    images = np.broadcast_to(levels.clip(0, 255)[:, None, None, None], (len(labels), 8, 8, 3))
    return {"image": images.astype(np.uint8), "label": labels}


TEST = overlapping((100, 100, 100), 1)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def manifest(root: Path) -> Manifest:
    """Of 1,920 training examples, of which 1,600 are dark, 240 stripes and 80 bright."""
    return publish_dataset(root, splits={"train": overlapping((1600, 240, 80), 0), "test": TEST})


def test_balanced_weights_are_scikit_learn_s_and_one_for_no_class_is_refused(manifest: Manifest) -> None:
    def weighing(weights: Any) -> Recipe:
        return small_recipe(task=ClassificationSettings(class_weights=weights))

    found = class_weights(weighing("balanced"), manifest)
    np.testing.assert_allclose(found, [1920 / (3 * 1600), 1920 / (3 * 240), 1920 / (3 * 80)], rtol=1e-6)
    named = class_weights(weighing({"bright": 5}), manifest)
    assert named is not None
    assert named.tolist() == [1, 1, 5]
    assert class_weights(small_recipe(), manifest) is None
    words = r"task\.class_weights: got 'brigth', expected a class of sample; did you mean 'bright'"
    with pytest.raises(SettingsError, match=words):
        plan_training(weighing({"brigth": 2}), manifest)


def test_weights_multiply_the_loss_of_training_alone() -> None:
    weighted = ClassificationObjective(weights=np.array([0.5, 1, 4], np.float32))
    plain = cross_entropy(tf.constant(LABELS), LOGITS)
    [found] = weighted.terms({"label": tf.constant(LABELS)}, LOGITS).values()
    np.testing.assert_allclose(found, plain * [0.5, 4, 0.5], rtol=1e-6)
    [evaluated] = weighted.evaluated.terms({"label": tf.constant(LABELS)}, LOGITS).values()
    np.testing.assert_array_equal(evaluated, plain)
    [unknown] = weighted.terms({"label": tf.constant([0, 3, -1])}, LOGITS).values()
    assert np.isnan(unknown).tolist() == [False, True, True]


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_focal_loss_is_keras_s_and_has_a_gradient_everywhere(gamma: float) -> None:
    objective = ClassificationObjective(settings=LossSettings(kind="focal", gamma=gamma))
    [found] = objective.terms({"label": tf.constant(LABELS)}, LOGITS).values()
    expected = keras.losses.categorical_focal_crossentropy(
        tf.one_hot(LABELS, 3), LOGITS, alpha=1.0, gamma=gamma, from_logits=True
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    far = tf.constant([[200.0, 0.0], [0.0, 200.0], [0.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch(far)
        [losses] = objective.terms({"label": tf.constant([0, 0, 0])}, far).values()
    gradient = tape.gradient(losses, far).numpy()
    assert np.isfinite(gradient).all()
    assert np.abs(gradient[0]).max() < 1e-3
    assert gradient[1, 0] < -0.9


def trained(root: Path, manifest: Manifest, **task: Any) -> tuple[float, int]:
    """Train a linear model on the imbalanced examples: the mean of the classes' accuracies, and the steps."""
    rate = ScheduleSettings(kind="cosine", learning_rate=0.003)
    given = {"batch_size": 32, "duration": Duration(epochs=10), "schedule": rate, "deterministic": True}
    asked = small_recipe(**given, task=ClassificationSettings(**task))
    strategy = configure_process(asked, "cpu")
    trainer = build_trainer(open_store(root), f"datasets/sample/{FINGERPRINT}", asked, manifest, strategy)
    [phase] = trainer.plan.phases
    parts = strategy.distribute_datasets_from_function(
        lambda context: trainer.batches(phase).dataset(0, trainer.plan.total_steps, context)
    )
    trainer.training_steps(parts, phase).advance(trainer.plan.total_steps)
    guesses = np.argmax(trainer.state.model.predict(TEST["image"], verbose=0), axis=-1)
    return float((guesses == TEST["label"]).mean()), trainer.plan.total_steps  # its classes have one size


def test_rare_classes_are_told_better_with_weights_and_with_balanced_sampling(root: Path, manifest: Manifest) -> None:
    plain, steps = trained(root, manifest)
    weighted, _ = trained(root, manifest, class_weights="balanced")
    balanced, same = trained(root, manifest, sampling="balanced")
    assert same == steps == 600
    # 0.34 vs 0.64 and 0.64: without either, nearly all are taken for the frequent class, a third of them.
    assert weighted > plain + 0.2
    assert balanced > plain + 0.2
