"""An evaluation says what the published model answers, the same for any batch size, and refuses other bytes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from small_dataset import CLASS_NAMES, FINGERPRINT, drawn, publish_dataset, small_recipe
from support.extending import install

from podline.base.errors import ArtifactError, SettingsError, StoreError
from podline.base.progress import silent
from podline.documents.metrics_log import EvaluationLine
from podline.evaluation.evaluate import evaluate
from podline.kinds.classification.document import Evaluation
from podline.kinds.classification.guesses import Guesses
from podline.recipes.durations import Duration
from podline.recipes.kind_table import read_evaluation
from podline.recipes.settings import ModelSettings, ScheduleSettings
from podline.stages.completed import find
from podline.stages.specs import EvaluateSpec, TrainSpec
from podline.store.opening import open_store
from podline.training.export import load_model
from podline.training.train import train
from tests.support.metrics import read_metrics

TEST = 40

pytestmark = pytest.mark.usefixtures("few_layers")


def trained(root: Path, **values) -> EvaluateSpec:
    """A run, and what it takes to evaluate it."""
    model, rate = ModelSettings(kind="resnet", width=0.25), ScheduleSettings(kind="constant", learning_rate=0.05)
    recipe = small_recipe(model=model, batch_size=16, schedule=rate, **values)
    spec = TrainSpec(root=str(root), recipe=recipe, fingerprint=FINGERPRINT)
    result = train(spec, silent())
    named = {"root": str(root), "run": result.run, "dataset": "sample", "fingerprint": FINGERPRINT}
    return EvaluateSpec(**named, weights_sha256=result.weights_sha256, batch_size=16)


@pytest.fixture(scope="module")
def spec(tmp_path_factory) -> EvaluateSpec:
    root = tmp_path_factory.mktemp("root")
    publish_dataset(root, train=96, test=TEST)
    return trained(root, duration=Duration(epochs=4))


@pytest.fixture(scope="module")
def document(spec) -> Evaluation:
    evaluate(spec, silent())
    return read_evaluation(open_store(spec.root), spec.folder)


def test_the_document_is_what_the_published_model_gets_on_the_test_split(spec, document):
    examples = drawn(TEST, 1)
    logits = np.asarray(load_model(open_store(spec.root), spec.folder, spec.weights_sha256)(examples["image"]))
    guesses = np.argmax(logits, 1)
    assert document.trained.examples == TEST
    assert document.trained.correct == np.sum(guesses == examples["label"])
    confusion = np.zeros((3, 3), int)
    np.add.at(confusion, (examples["label"], guesses), 1)
    assert np.array_equal(document.confusion, confusion)
    log_sum = np.log(np.sum(np.exp(logits.astype(np.float64)), 1))
    loss = np.mean(log_sum - logits[np.arange(TEST), examples["label"]])
    assert document.trained.metrics["loss"].value == pytest.approx(loss, rel=1e-5)
    assert [mistake.record for mistake in document.mistakes if guesses[mistake.record] == mistake.label] == []
    assert [figures.name for figures in document.per_class] == list(CLASS_NAMES)
    assert (document.run, document.weights_sha256, document.split) == (spec.run, spec.weights_sha256, "test")
    last = read_metrics(open_store(spec.root).local(f"{spec.folder}/metrics.jsonl"))[-1]
    assert isinstance(last, EvaluationLine)
    assert last.accuracy == document.trained.metrics["top1"].value
    # The loop sums float32 on the device, with fused batch norm; the document sums exactly, with the exported one.
    assert last.loss == pytest.approx(document.trained.metrics["loss"].value, rel=1e-4)


@pytest.mark.skipif(
    "avx512f" not in Path("/proc/cpuinfo").read_text(),
    reason="without AVX-512 TensorFlow adds the sums of a small batch in another order",
)
@pytest.mark.parametrize("batch_size", [1, 128])
def test_the_batch_size_makes_no_difference_not_even_in_the_last_bit(spec, document, batch_size):
    store = open_store(spec.root)
    before = store.sha256(f"{spec.folder}/evaluation.json")
    result = evaluate(spec.model_copy(update={"batch_size": batch_size}), silent())
    assert read_evaluation(store, spec.folder) == document
    assert result.evaluation_sha256 == before


def test_a_model_that_learned_nothing_fails_the_sanity_check_which_names_a_small_split(tmp_path: Path):
    few = {"image": drawn(8, 1)["image"], "label": np.array([0, 0, 0, 0, 0, 1, 1, 2])}
    publish_dataset(tmp_path, splits={"train": drawn(60, 0), "test": few})
    spec = trained(tmp_path, duration=Duration(steps=1))
    failure = evaluate(spec, silent()).failure
    assert re.match(r"sanity check: t-\w+ has the accuracy .*% on 8 test examples, and guessing gives", failure)
    assert f"the test split is small: always predicting {CLASS_NAMES[0]!r}, the class of 5 of 8 images" in failure
    assert not read_evaluation(open_store(tmp_path), spec.folder).better_than_guessing
    assert find(spec, silent()).failure == failure


def test_models_that_a_run_does_not_use_are_not_imported(spec, document, tmp_path: Path, monkeypatch):
    toml = '[project.entry-points."podline.models"]\nother = "other:net"\n'
    monkeypatch.syspath_prepend(install(tmp_path, {"other": f"open({str(tmp_path / 'imported')!r}, 'w')"}, toml))
    evaluate(spec, silent())
    assert not (tmp_path / "imported").exists()
    assert read_evaluation(open_store(spec.root), spec.folder) == document


def test_damaged_or_foreign_artifacts_are_named(spec, tmp_path: Path):
    store = open_store(spec.root)
    with pytest.raises(ArtifactError, match=r"weights\.npz has sha256 .* vs 000000000000.*; train the run again"):
        evaluate(spec.model_copy(update={"weights_sha256": "0" * 64}), silent())
    with pytest.raises(StoreError, match="run `podline convert` first"):
        evaluate(spec.model_copy(update={"fingerprint": "f" * 16}), silent())
    with pytest.raises(StoreError, match=r"spec\.json does not exist; `podline runs list`"):
        evaluate(spec.model_copy(update={"run": "another"}), silent())
    content = store.read_json(name := f"{spec.folder}/spec.json")
    store.publish_json(name, content | {"fingerprint": "f" * 16}, replace=True)
    with pytest.raises(SettingsError, match=re.escape(f"cannot be evaluated on {spec.dataset_folder}")):
        evaluate(spec, silent())
    store.publish_json(name, content, replace=True)


def test_what_is_said_of_each_example_lies_beside_the_document(spec, document):
    store = open_store(spec.root)
    found = Guesses.read(store, spec.folder)
    assert np.array_equal(found.labels, drawn(TEST, 1)["label"])
    assert found.right.sum() == document.trained.correct
    for mistake in document.mistakes:
        assert found.confidences[mistake.record] == mistake.confidence
        assert found.label_probabilities[mistake.record] == mistake.label_probability
    path = store.local(f"{spec.folder}/guesses.npz")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ArtifactError, match=r"guesses\.npz has sha256 .* as written; run evaluate again"):
        Guesses.read(store, spec.folder)
    path.unlink()
    with pytest.raises(StoreError, match="podline evaluate"):
        Guesses.read(store, spec.folder)
    evaluate(spec, silent())
    assert path.read_bytes() == whole
