"""Several labels through the whole chain: converted, trained, evaluated, reported, promoted, asked, exported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from parsing_here import parsing_here
from several_labels import COLOURS, as_joined, drawn

from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.champions.exporting import export
from podline.champions.promote import promote
from podline.compare.comparison import compare
from podline.compare.known import Evaluated
from podline.contract.answers import CommonExamples
from podline.contract.case import Case
from podline.contract.kind import kind_of
from podline.documents.manifest import read_manifest
from podline.evaluation.evaluate import evaluate
from podline.evaluation.predicting import run as predict
from podline.kinds.labels import sections
from podline.kinds.labels.document import LabelsEvaluation
from podline.kinds.labels.recipes.labels import RECIPE
from podline.kinds.labels.scores import Scores, probabilities
from podline.recipes.durations import Duration
from podline.recipes.kind_table import read_evaluation
from podline.report.facts import gather
from podline.report.report import report
from podline.stages.from_recipe import evaluation_spec, promotion_spec, report_spec, training_spec
from podline.stages.specs import ConvertSpec, EvaluateSpec, PromoteResult, TrainSpec
from podline.stages.tools import ExportSpec, PredictSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.export import load_model
from podline.training.train import train

pytestmark = pytest.mark.usefixtures("few_layers", "few_draws")


class Finished(NamedTuple):
    """A run that went through all stages."""

    training: TrainSpec
    judged: EvaluateSpec
    promoted: PromoteResult
    folder: str


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("labels")
    as_joined(folder / "raw", drawn(600))
    given = {"root": str(folder / "root"), "dataset": "labels.squares", "source": str(folder / "raw"), "side": 16}
    with parsing_here():
        convert(ConvertSpec.model_validate(given), silent())
    return open_store(given["root"])


@pytest.fixture(scope="module")
def runs(store: Store) -> list[Finished]:
    """Two trainings, of two seeds, through all stages."""
    [fingerprint] = {name.split("/")[2] for name in store.list("datasets/labels.squares")}
    found = []
    for seed in (0, 1):
        recipe = RECIPE.changed(
            dataset="labels.squares",
            model=RECIPE.model.changed(width=0.2),
            batch_size=32,
            fit=None,
            duration=Duration(steps=240),
            evaluate_every=Duration(steps=40),
            augmentation=RECIPE.augmentation.changed(pad=1),
            deterministic=True,
            seed=seed,
        )
        training = training_spec(store, recipe, fingerprint, "cpu").changed(preflight=False)
        trained = train(training, silent())
        judged = evaluation_spec(training, trained)
        evaluated = evaluate(judged, silent())
        assert not evaluated.failure
        promoted = promote(promotion_spec(training, trained, evaluated), silent())
        found.append(Finished(training, judged, promoted, trained.folder))
    return found


def test_it_learns_and_is_judged_by_its_scores(store: Store, runs: list[Finished]) -> None:
    found, scores = read_evaluation(store, runs[0].folder), Scores.read(store, runs[0].folder)
    assert found.trained.metrics["map"].value == scores.mean_precision().value > 0.9
    assert found.guessing.high < 0.6
    assert 0.3 < found.guessing.value < 0.55, "near the share of images with a label"
    assert (found.thresholds_on, found.threshold_examples) == ("validation", 40), "held out of training"
    assert all(label.own_threshold for label in found.labels)
    for place, label in enumerate(found.labels):
        assert label.name == sorted(COLOURS)[place]
        assert label.positives == scores.labels[:, place].sum()
        named = probabilities(scores.logits[:, place]) >= label.threshold
        assert np.array_equal(named, scores.named[:, place])
        right = int((named & scores.labels[:, place]).sum())
        assert (label.named, label.right) == (named.sum(), right)
        assert label.f1 is not None
        assert label.f1.value == pytest.approx(2 * right / (label.positives + label.named))


def test_thresholds_come_from_training_images_if_none_were_held_out(store: Store, runs: list[Finished]) -> None:
    training, spec, _, folder = runs[0]
    model, recipe = load_model(store, folder, spec.weights_sha256), training.recipe.changed(validation_share=0.0)
    manifest = read_manifest(store, training.dataset_folder)
    case = Case(spec, recipe, model, model, tf.distribute.get_strategy(), store, manifest, silent())
    kind = kind_of(recipe)
    found = LabelsEvaluation.of(kind.judge(case).document)
    assert (found.thresholds_on, found.threshold_examples) == ("train", found.seen.examples)
    # Probabilities between one half and the threshold that the evaluation chose.
    chosen = np.array([label.threshold for label in LabelsEvaluation.of(read_evaluation(store, folder)).labels])
    near = tf.constant(np.log(between := (chosen + 0.5) / 2) - np.log(1 - between), tf.float32)
    examples = CommonExamples(store, spec.dataset_folder, manifest, "test", silent())
    again = kind.answers().again(examples, training, lambda images, **_: tf.tile(near[None], (tf.shape(images)[0], 1)))
    assert (again.named == (chosen < 0.5)).all()


def test_the_second_is_judged_against_the_first_image_by_image(store: Store, runs: list[Finished]) -> None:
    sides = [Evaluated(run.training, run.folder, read_evaluation(store, run.folder)) for run in runs]
    found = compare(store, *sides, silent()).comparison
    before, after = (Scores.read(store, run.folder) for run in runs)
    change = found.difference
    assert change.low < change.value < change.high
    assert change.value == pytest.approx(after.mean_precision().value - before.mean_precision().value)
    assert change.gained == (after.right & ~before.right).sum()
    assert {part.name for part in found.parts} == set(COLOURS)
    assert (runs[0].promoted.promoted, runs[1].promoted.reference) == (True, runs[0].training.run)
    checks = json.loads(store.read_bytes(f"{runs[1].folder}/promotion.json"))["checks"]
    assert {check["name"] for check in checks if check["rule"] == "class"} == set(COLOURS)
    assert [check["name"] for check in checks if check["rule"] == "main"] == ["mAP"]


def test_its_page_has_every_label_and_its_export_is_judged_by_them(
    store: Store, runs: list[Finished], tmp_path: Path
) -> None:
    sha256 = store.sha256(f"{runs[1].folder}/evaluation.json")
    made = report(report_spec(store, runs[1].judged, sha256, "podline run labels"), silent())
    page = store.read_bytes(made.html).decode()
    assert all(name in page for name in (*COLOURS, "mAP", "Average precision of each label", "held out"))
    assert len(page) < 1_500_000
    facts = gather(store, report_spec(store, runs[1].judged, sha256, "podline run labels"), silent())
    own = facts.manifest.splits[0].model_copy(update={"name": "validation"})
    apart = facts.manifest.model_copy(update={"splits": (*facts.manifest.splits, own)})
    [*_, note] = sections.metrics.blocks(replace(facts, manifest=apart))
    assert "highest F1 on 40 images of the validation split" in str(note)
    given = {"root": store.uri, "run": runs[0].training.run, "weights_sha256": runs[0].judged.weights_sha256}
    result = export(ExportSpec(**given, format="tflite-int8", file=str(tmp_path / "model"), examples=40), silent())
    scores = Scores.read(store, runs[0].folder).at(np.arange(40))
    assert (result.measure, result.model) == ("map", scores.mean_precision().value)
    assert result.exported > 0.8


def test_it_names_the_labels_of_pictures(
    store: Store, runs: list[Finished], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = drawn(60)[-20:]
    for image in images:
        (tmp_path / image.name).write_bytes(image.data)
    paths = tuple(str(tmp_path / image.name) for image in images)
    spec = PredictSpec(root=store.uri, run=runs[0].training.run, images=paths, out=str(tmp_path / "out"))
    found = predict(spec, silent())
    said = [{share["name"] for share in each["classes"]} for each in json.loads(Path(found.json_file).read_text())]
    assert sum(names == set(image.labels) for names, image in zip(said, images, strict=True)) >= 15
    assert any(line.endswith(": none") for line in found.lines()[:-1]), "an image without any"
    everything = predict(spec.changed(threshold=0.0), silent()).pictures[0].classes
    assert len(everything or ()) == 3
    monkeypatch.setattr("podline.contract.picture_reader._MOST", 1)  # classes of a classifier
    for top, expected in ((None, 3), (2, 2)):
        table = tmp_path / "answers.csv"
        predict(spec.changed(threshold=0.0, table=str(table), top=top), silent())
        assert sum(each.startswith("confidence") for each in pd.read_csv(table)) == expected
