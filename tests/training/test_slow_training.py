"""Trainings that are really slowed down are named, while they run and in the report."""

from __future__ import annotations

import time

import pytest
from small_dataset import FINGERPRINT, publish_dataset, small_recipe

from podline.data.reader import SplitReader
from podline.documents.completion import read_completion
from podline.documents.metrics_log import FindingLine, read_metrics
from podline.errors import SettingsError
from podline.evaluation.evaluate import evaluate
from podline.ledger.recording import recorded
from podline.progress import Reporter, silent
from podline.recipes.durations import Duration
from podline.reporting.report import report
from podline.settings import Settings, gpus_are_hidden
from podline.stages.specs import EvaluateSpec, ReportSpec, TrainSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.strategies import accelerators
from podline.training import devices, findings
from podline.training.train import train


def night(store: Store, seed: int) -> tuple[TrainSpec, list[str]]:
    """A training; its spec, and what it warned of."""
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
    return spec, warnings


def reported(store: Store, spec: TrainSpec) -> str:
    """The report of a training, in Markdown."""
    judging = EvaluateSpec(
        root=store.uri,
        run=spec.run,
        dataset="sample",
        fingerprint=FINGERPRINT,
        weights_sha256=read_completion(store, spec.folder, "train").result["weights_sha256"],
    )
    judged = evaluate(judging, silent())
    asked = ReportSpec(
        root=store.uri,
        run=spec.run,
        dataset="sample",
        fingerprint=FINGERPRINT,
        evaluation_sha256=judged.evaluation_sha256,
    )
    return store.read_bytes(report(asked, silent()).markdown).decode()


@pytest.mark.usefixtures("no_charts")
def test_an_input_that_is_slow_is_named_while_training_runs_and_in_the_report(tmp_path, monkeypatch):
    monkeypatch.setattr(findings, "PACE_SECONDS", 0.0)
    publish_dataset(tmp_path, train=256, test=40)
    store = open_store(tmp_path)
    for seed in range(5):
        spec, _ = night(store, seed)
    assert "slower than" not in reported(store, spec)
    gather = SplitReader.gather

    def slow(self, *arguments):
        time.sleep(0.15)
        return gather(self, *arguments)

    monkeypatch.setattr(SplitReader, "gather", slow)
    spec, warnings = night(store, 5)
    page = reported(store, spec)
    [warning] = [each for each in warnings if "slower than" in each]
    assert "slower than the last 5 runs: waits for input" in warning
    lines = read_metrics(store.local(f"{spec.folder}/metrics.jsonl"))
    [found] = [line for line in lines if isinstance(line, FindingLine) and line.finding == "slow"]
    assert found.step <= 30
    assert found.figures["factor"] > 1
    assert "Training was " in page
    assert "slower than the last 5 runs: waits for input" in page


@pytest.mark.parametrize(("devices", "hidden"), [("0", False), ("", True), ("-1", True)])
def test_gpus_may_be_hidden(monkeypatch, devices, hidden):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    assert gpus_are_hidden() is hidden


def test_the_machines_accelerators_are_seen_by_their_nodes(tmp_path):
    (tmp_path / "dev").mkdir()
    assert accelerators(tmp_path) == []
    for name in ("nvidiactl", "nvidia0", "nvidia1", "accel0"):
        (tmp_path / "dev" / name).touch()
    assert accelerators(tmp_path) == ["an NVIDIA GPU (/dev/nvidia0)", "a TPU (/dev/accel0)"]


def test_auto_that_falls_back_is_loud_and_may_be_an_error(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "accelerators", lambda: ["an NVIDIA GPU (/dev/nvidia0)"])
    assert devices.fallback("auto").startswith("THE MODEL RUNS ON THE CPU: this machine has an NVIDIA GPU (/dev/nv")
    assert devices.fallback("cpu") == ""
    monkeypatch.setenv("PODLINE_REQUIRE_ACCELERATOR", "true")
    devices._strategy.cache_clear()
    with pytest.raises(SettingsError, match=r"sees no GPU \(an NVIDIA GPU \(/dev/nvidia0\)\) and require_accelerator"):
        devices._strategy("auto")
    monkeypatch.setattr(devices, "accelerators", list)
    assert devices.fallback("auto") == ""
