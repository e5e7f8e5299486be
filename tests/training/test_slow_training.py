"""Trainings that are really slowed down are named, while they run and in the report."""

from __future__ import annotations

import time

import pytest
from small_dataset import FINGERPRINT, publish_dataset, small_recipe

from podline.data.reader import SplitReader
from podline.documents.metrics_log import FindingLine, read_metrics
from podline.evaluation.evaluate import evaluate
from podline.ledger.recording import recorded
from podline.progress import Reporter, silent
from podline.recipes.durations import Duration
from podline.reporting.report import report
from podline.settings import Settings
from podline.stages.from_recipe import evaluation_spec, report_spec
from podline.stages.specs import TrainResult, TrainSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training import findings
from podline.training.train import train


def night(store: Store, seed: int) -> tuple[TrainSpec, TrainResult, list[str]]:
    """A training; what it warned of comes last."""
    recipe = small_recipe(batch_size=16, seed=seed, evaluate_every=None, summary_steps=10, duration=Duration(steps=40))
    warnings = []
    spec = TrainSpec(root=store.uri, recipe=recipe, fingerprint=FINGERPRINT, strategy="cpu", preflight=False)
    with recorded(store, "t", "commands", silent()) as notes:
        notes.planned(recipe, Settings(), "cpu")
        notes.asked(spec)

        def listen(event) -> None:
            if event["event"] == "log" and event["level"] == "warning":
                warnings.append(event["message"])

        result = train(spec, Reporter("train", listen))
        notes.answered(spec, result, result.seconds)
    return spec, result, warnings


def reported(store: Store, spec: TrainSpec, trained: TrainResult) -> str:
    """The report of a training, in Markdown."""
    judging = evaluation_spec(spec, trained)
    asked = report_spec(store, judging, evaluate(judging, silent()).evaluation_sha256, "podline run t")
    return store.read_bytes(report(asked, silent()).markdown).decode()


@pytest.mark.usefixtures("no_charts")
def test_an_input_that_is_slow_is_named_while_training_runs_and_in_the_report(tmp_path, monkeypatch):
    monkeypatch.setattr(findings, "PACE_SECONDS", 0.0)
    publish_dataset(tmp_path, train=256, test=40)
    store = open_store(tmp_path)
    for seed in range(5):
        spec, result, _ = night(store, seed)
    assert "slower than" not in reported(store, spec, result)
    gather = SplitReader.gather

    def slow(self, *arguments):
        time.sleep(0.15)
        return gather(self, *arguments)

    monkeypatch.setattr(SplitReader, "gather", slow)
    spec, result, warnings = night(store, 5)
    page = reported(store, spec, result)
    [warning] = [each for each in warnings if "slower than" in each]
    assert "slower than the last 5 runs: waits for input" in warning
    lines = read_metrics(store.local(f"{spec.folder}/metrics.jsonl"))
    [found] = [line for line in lines if isinstance(line, FindingLine) and line.finding == "slow"]
    assert found.step <= 30
    assert found.figures["factor"] > 1
    assert "Training was " in page
    assert "slower than the last 5 runs: waits for input" in page
