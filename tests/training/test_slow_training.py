"""Trainings that are really slowed down are named in the report."""

from __future__ import annotations

import time

import pytest
from small_dataset import FINGERPRINT, publish_dataset, small_recipe

from podline.base.progress import silent
from podline.data.reader import SplitReader
from podline.evaluation.evaluate import evaluate
from podline.ledger.recording import recorded
from podline.recipes.durations import Duration
from podline.report.report import report
from podline.settings.machine import Settings
from podline.stages.from_recipe import evaluation_spec, report_spec
from podline.stages.specs import TrainResult, TrainSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.train import train


def night(store: Store, seed: int) -> tuple[TrainSpec, TrainResult]:
    """A training."""
    recipe = small_recipe(batch_size=16, seed=seed, evaluate_every=None, summary_steps=10, duration=Duration(steps=40))
    spec = TrainSpec(root=store.uri, recipe=recipe, fingerprint=FINGERPRINT, strategy="cpu", preflight=False)
    with recorded(store, "t", "commands", silent()) as notes:
        notes.planned(recipe, Settings(), "cpu")
        notes.asked(spec)
        result = train(spec, silent())
        notes.answered(spec, result, result.seconds)
    return spec, result


def reported(store: Store, spec: TrainSpec, trained: TrainResult) -> str:
    """The report of a training, in Markdown."""
    judging = evaluation_spec(spec, trained)
    asked = report_spec(store, judging, evaluate(judging, silent()).evaluation_sha256, "podline run t")
    return store.read_bytes(report(asked, silent()).markdown).decode()


@pytest.mark.usefixtures("no_charts")
def test_an_input_that_is_slow_is_named_in_the_report(tmp_path, monkeypatch):
    publish_dataset(tmp_path, train=256, test=40)
    store = open_store(tmp_path)
    for seed in range(5):
        spec, result = night(store, seed)
    assert "slower than" not in reported(store, spec, result)
    gather = SplitReader.gather

    def slow(self, *arguments):
        time.sleep(0.15)
        return gather(self, *arguments)

    monkeypatch.setattr(SplitReader, "gather", slow)
    spec, result = night(store, 5)
    page = reported(store, spec, result)
    assert "Training was " in page
    assert "slower than the last 5 runs: waits for input" in page
