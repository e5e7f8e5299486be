"""A classifier's figures are those by hand, the same bits in any batches, and over views those of the mean answer."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from small_dataset import drawn, publish_dataset, small_recipe
from trained_runs import untrained

from podline.base.errors import ArtifactError, DivergenceError
from podline.base.progress import Reporter, silent
from podline.contract.case import Case, Judgement
from podline.contract.kind import kind_of
from podline.data.reader import open_split
from podline.documents.completion import read_completion
from podline.documents.manifest import dataset_folder
from podline.evaluation.evaluate import evaluate
from podline.kinds.by_example.judging import answered
from podline.kinds.by_example.measures import figures_of
from podline.kinds.classification.guesses import Guesses
from podline.kinds.classification.records import ClassTargets
from podline.kinds.classification.settings import ClassificationSettings
from podline.kinds.classification.views import over_views
from podline.recipes.kind_table import read_evaluation
from podline.recipes.settings import ModelSettings
from podline.stages.from_recipe import evaluation_spec
from podline.stages.specs import EvaluateSpec, TrainResult
from podline.store.opening import open_store
from podline.training.export import load_model

Batch = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]


def examples(count: int, classes: int, seed: int = 0) -> Batch:
    """Logits of a model that is right more often than not; many are equal, as those of a coarse model are."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, count)
    logits = generator.normal(0, 3, (count, classes)).astype(np.float32)
    logits[np.arange(count), labels] += 4
    logits[::3] = np.round(logits[::3])
    return logits, labels


def guessed(batch: Batch, size: int = 10_000) -> Guesses:
    """What is answered in batches of a size."""
    parts = [tuple(each[start : start + size].copy() for each in batch) for start in range(0, len(batch[1]), size)]
    return Guesses.joined([Guesses.of_logits(*part) for part in parts])


def everything(guesses: Guesses, classes: int) -> list[object]:
    names = [str(number) for number in range(classes)]
    mistaken = guesses.confusion(classes) or guesses.confused(classes)
    figures = figures_of(guesses, "classification", classes)
    return [figures, mistaken, guesses.per_class(names), guesses.to_bytes(), guesses.mistakes()]


@pytest.mark.parametrize("classes", [2, 10, 200])
def test_batches_of_1_7_and_128_give_the_same_bits(classes: int) -> None:
    batch = examples(517, classes)
    whole = everything(guessed(batch), classes)
    for size in (1, 7, 128):
        assert everything(guessed(batch, size), classes) == whole


def test_of_many_classes_the_mistakes_stand_for_the_matrix() -> None:
    logits, labels = examples(2_000, 300)
    guesses, matrix = guessed((logits, labels)), np.zeros((300, 300), int)
    np.add.at(matrix, (labels, logits.argmax(axis=1)), 1)
    np.fill_diagonal(matrix, 0)
    assert guesses.confusion(300) == ()
    found = guesses.confused(300)
    assert sorted(found) == [(*pair, matrix[tuple(pair)]) for pair in np.argwhere(matrix).tolist()]
    assert [-times for _, _, times in found] == sorted(-times for _, _, times in found)


def test_the_figures_by_hand() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8], [0.2, 0.7, 0.1], [0.6, 0.3, 0.1]], np.float32))
    guesses = guessed((logits, np.array([0, 0, 1, 1])))
    metrics = figures_of(guesses, "classification", 3)
    assert metrics.keys() == {"loss", "top1", "calibration_error"}
    assert metrics["top1"].value == 0.5
    expected_loss = -math.fsum(math.log(p) for p in (0.5, 0.1, 0.7, 0.3)) / 4
    assert metrics["loss"].value == pytest.approx(expected_loss, rel=1e-6)  # the logits are float32
    # Confidences 0.5 and 0.7 were right, 0.8 and 0.6 wrong, each in a bin of its own.
    assert metrics["calibration_error"].value == pytest.approx((0.5 + 0.3 + 0.8 + 0.6) / 4, rel=1e-6)
    assert guesses.confusion(3) == ((1, 0, 1), (1, 1, 0), (0, 0, 0))
    worst, other = guesses.mistakes()
    assert (worst.record, worst.label, worst.prediction) == (1, 0, 2)
    assert (worst.confidence, worst.label_probability) == pytest.approx((0.8, 0.1), rel=1e-6)
    assert other.record == 3
    first, second, third = guesses.per_class(["a", "b", "c"])
    assert (first.name, first.examples, first.correct, first.predicted) == ("a", 2, 1, 2)
    assert (second.examples, second.correct, second.predicted) == (2, 1, 1)
    assert (third.accuracy.value, third.accuracy.low, third.accuracy.high, third.predicted) == (0, 0, 1, 1)


def test_calibration_bins_are_closed_above() -> None:
    # Three equal logits give exactly 1/3 = 5/15, which belongs to (4/15, 5/15]; the other example has nearly 1.
    logits = np.array([[0, 0, 0], [0, 30, 0], [0, 0, 0]], np.float32)
    bins = guessed((logits, np.array([0, 0, 2]))).calibration()
    assert [found.examples for found in bins] == [0] * 4 + [2] + [0] * 9 + [1]
    assert (bins[4].confidence, bins[4].accuracy) == (1 / 3, 0.5)
    assert (bins[14].accuracy, bins[0].accuracy, bins[0].confidence) == (0, 0, 0)
    assert (bins[0].low, bins[4].high, bins[14].high) == (0, 5 / 15, 1)


def test_outputs_and_labels_that_cannot_be_name_the_record(tmp_path: Path) -> None:
    images, labels = drawn(10, 1)["image"], np.array([0, 1] * 3 + [2] * 4)
    manifest = publish_dataset(tmp_path, splits={"train": drawn(20, 0), "test": {"image": images, "label": labels}})
    reader = open_split(open_store(tmp_path), dataset_folder("sample", manifest.fingerprint), manifest, "test")

    def model(images_: tf.Tensor, **_: bool) -> tf.Tensor:
        same = tf.reduce_all(images_ == tf.constant(images[6:7]), [1, 2, 3])
        return tf.where(same[:, None], np.inf, 0.0) * tf.ones((1, 3))

    recipe = small_recipe(evaluation_batch_size=4)
    given = kind_of(recipe), recipe
    with pytest.raises(DivergenceError, match="record 6 of the test split: the model's outputs are not finite"):
        answered(*given, model, reader, manifest, silent())  # type: ignore[type-var]
    with pytest.raises(DivergenceError, match="record 6 of the test split: "):
        answered(*given, model, reader, manifest, silent(), np.array([1, 6]))  # type: ignore[type-var]
    two = manifest.model_copy(update={"class_names": manifest.class_names[:2]})
    with pytest.raises(ArtifactError, match="record 6 of the test split has the label 2, expected 0 to 1"):
        answered(*given, blind, reader, two, silent())  # type: ignore[type-var]


def blind(images: tf.Tensor, **_: bool) -> tf.Tensor:
    """A model that answers nothing."""
    return tf.zeros((tf.shape(images)[0], 3))


@pytest.mark.parametrize("share", [0.0, 0.5], ids=["all trained on", "some held out"])
def test_models_see_each_example_once_and_data_must_stay_as_they_are(tmp_path: Path, share: float) -> None:
    manifest, store = publish_dataset(tmp_path, train=20, test=10), open_store(tmp_path)
    named = {"root": str(tmp_path), "run": "r", "dataset": "sample", "fingerprint": manifest.fingerprint}
    spec = EvaluateSpec(**named, weights_sha256="0" * 64, batch_size=4)
    recipe, told = small_recipe(validation_share=share), list[tuple[int, int]]()

    def judge(listener: Callable[[Any], None]) -> Judgement:
        case = Case(spec, recipe, blind, blind, tf.distribute.get_strategy(), store, manifest, Reporter("x", listener))
        return kind_of(recipe).judge(case)

    judge(lambda event: told.append((event["done"], event["total"])))
    # The test split before and after training, and as many training examples, at most those that are trained on.
    assert told[-1] == (30, 30)
    shard = store.local(f"{spec.dataset_folder}/{manifest.split('test').shards[0].file}")
    with pytest.raises(ArtifactError, match="was changed while it was read"):
        judge(lambda _: os.utime(shard, (1, 1)))
    reader = open_split(store, spec.dataset_folder, manifest, "test")
    with pytest.raises(ArtifactError, match="was changed while it was read"):
        answered(kind_of(recipe), recipe, blind, reader, manifest, Reporter("x", lambda _: os.utime(shard, (2, 2))))  # type: ignore[type-var]


@pytest.mark.parametrize("views", [2, 6])
def test_answers_over_views_are_the_mean_over_mirrored_and_shifted_images(views: int) -> None:
    images = np.random.default_rng(1).integers(0, 256, (3, 5, 7, 3), dtype=np.uint8)
    found = over_views(lambda given: tf.cast(tf.reshape(given, (len(given), -1)), tf.float32), views)(images)
    bordered = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="reflect")
    shifted = [bordered[:, :-2, :-2], bordered[:, 2:, 2:]] if views == 6 else [images]
    means = [np.mean([each, each[:, :, ::-1]], axis=0) for each in (images, *shifted)]
    expected = (means[0] + np.mean(means[1:], axis=0)) / 2
    np.testing.assert_allclose(found, expected.reshape(3, -1), rtol=1e-6)


@pytest.mark.usefixtures("few_layers")
def test_a_run_is_judged_over_views_beside_what_it_is_judged_by(tmp_path: Path) -> None:
    manifest, store = publish_dataset(tmp_path, test=40), open_store(tmp_path)
    recipe = small_recipe(model=ModelSettings(kind="resnet", width=0.25), task=ClassificationSettings(views=6))
    training = untrained(tmp_path, recipe, manifest)
    trained = TrainResult.model_validate(read_completion(store, training.folder, "train").result)
    spec = evaluation_spec(training, trained)
    result = evaluate(spec, silent())
    document, examples = read_evaluation(store, spec.folder), drawn(40, 1)
    model = load_model(store, spec.folder, trained.weights_sha256)
    plain, averaged = (
        int(np.sum(np.argmax(answer(examples["image"]), 1) == examples["label"]))
        for answer in (model, over_views(model, 6))
    )
    assert (document.trained.correct, document.over_views.correct, document.views) == (plain, averaged, 6)
    assert result.metrics == document.trained.metrics
    assert f"accuracy over 6 views {averaged / 40:.1%}".replace("%", " %") in "\n".join(result.lines())
    without = training.changed(recipe=recipe.changed(task=ClassificationSettings()))
    assert (without.run, without.digest()) == (training.run, training.digest()), "no part of a run's name"


@pytest.mark.parametrize("value", [b"green", np.int64(1), np.float32(1.0), np.str_("green")])
def test_a_source_may_give_a_label_as_bytes_or_as_a_value_of_numpy(value: Any) -> None:
    assert ClassTargets().text(value, ("red", "green")) == "green"
