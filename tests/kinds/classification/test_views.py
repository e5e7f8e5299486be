"""Figures over views of an image are those of the mean answer, beside those of one view."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from small_dataset import drawn, publish_dataset, small_recipe
from trained_runs import untrained

from podline.base.progress import silent
from podline.documents.completion import read_completion
from podline.evaluation.evaluate import evaluate
from podline.kinds.classification.document import Evaluation
from podline.kinds.classification.settings import ClassificationSettings
from podline.kinds.classification.views import over_views
from podline.recipes.kind_table import read_evaluation
from podline.recipes.settings import ModelSettings
from podline.stages.from_recipe import evaluation_spec
from podline.stages.specs import TrainResult
from podline.store.opening import open_store
from podline.training.export import load_model

TEST = 40
RECIPE = small_recipe(model=ModelSettings(kind="resnet", width=0.25), task=ClassificationSettings(views=6))

pytestmark = pytest.mark.usefixtures("few_layers")


def shifted(image: np.ndarray, down: int, right: int) -> np.ndarray:
    bordered = np.pad(image, ((1, 1), (1, 1), (0, 0)), mode="reflect")
    height, width, _ = image.shape
    return bordered[1 - down : 1 - down + height, 1 - right : 1 - right + width]


@pytest.mark.parametrize("views", [2, 6])
def test_answers_are_the_mean_over_views_of_each_image(views: int) -> None:
    images = np.random.default_rng(1).integers(0, 256, (3, 5, 7, 3), dtype=np.uint8)
    found = np.asarray(
        over_views(lambda given: tf.cast(tf.reshape(given, (len(given), -1)), tf.float32), views)(tf.constant(images))
    )
    for image, answer in zip(images, found, strict=True):
        both = [image, image[:, ::-1]]
        shifts = [shifted(image, *by) for by in ((1, 1), (-1, -1))]
        moved = [*shifts, *(each[:, ::-1] for each in shifts)] if views == 6 else both
        expected = (np.mean(both, axis=0) + np.mean(moved, axis=0)) / 2
        np.testing.assert_allclose(answer, expected.ravel(), rtol=1e-6)


def test_a_run_is_judged_over_views_beside_what_it_is_judged_by(tmp_path: Path) -> None:
    manifest, store = publish_dataset(tmp_path, test=TEST), open_store(tmp_path)
    training = untrained(tmp_path, RECIPE, manifest)
    trained = TrainResult.model_validate(read_completion(store, training.folder, "train").result)
    spec = evaluation_spec(training, trained)
    result = evaluate(spec, silent())
    document, examples = read_evaluation(store, spec.folder), drawn(TEST, 1)
    assert isinstance(document, Evaluation)
    assert document.over_views is not None
    model = load_model(store, spec.folder, trained.weights_sha256)
    plain, averaged = (
        int(np.sum(np.argmax(answer(examples["image"]), 1) == examples["label"]))
        for answer in (model, over_views(model, 6))
    )
    assert (document.trained.correct, document.over_views.correct, document.views) == (plain, averaged, 6)
    assert result.metrics == document.trained.metrics
    assert f"accuracy over 6 views {averaged / TEST:.1%}".replace("%", " %") in "\n".join(result.lines())
    without = training.changed(recipe=RECIPE.changed(task=ClassificationSettings()))
    assert (without.run, without.digest()) == (training.run, training.digest()), "no part of a run's name"
