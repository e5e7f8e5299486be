"""A training that learns its examples by heart says so, and one that does not is silent."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from metrics_lines import steps_line
from small_dataset import FINGERPRINT, drawn, publish_dataset, small_recipe

from podline.base.progress import Reporter, silent
from podline.documents.metrics_log import EvaluationLine, FindingLine, MetricsLine
from podline.evaluation.evaluate import evaluate
from podline.recipes.durations import Duration
from podline.recipes.settings import ScheduleSettings
from podline.report.report import report
from podline.stages.from_recipe import evaluation_spec, report_spec
from podline.stages.specs import TrainSpec
from podline.store.opening import open_store
from podline.training.course import _against_overfitting
from podline.training.findings import Findings, JudgeOverfitting
from podline.training.train import train
from tests.support.metrics import read_metrics


def without_a_pattern(count: int, seed: int) -> dict[str, np.ndarray]:
    """Images whose classes are drawn by lot."""
    random = np.random.default_rng(seed)
    return {
        "image": random.integers(0, 256, (count, 8, 8, 3), np.uint8),
        "label": random.integers(0, 3, count),
    }


def trained(root: Path, splits: dict[str, dict[str, np.ndarray]]) -> tuple[list[FindingLine], list[str], str]:
    """The findings of overfitting of a short training, its warnings, and its report."""
    publish_dataset(root, splits=splits)
    recipe = small_recipe(
        duration=Duration(steps=240),
        evaluate_every=Duration(steps=24),
        schedule=ScheduleSettings(kind="constant", learning_rate=0.05),
    )
    warnings = list[str]()

    def listen(event) -> None:
        if event["event"] == "log" and event["level"] == "warning":
            warnings.append(event["message"])

    store = open_store(root)
    spec = TrainSpec(root=store.uri, recipe=recipe, fingerprint=FINGERPRINT, strategy="cpu", preflight=False)
    result = train(spec, Reporter("train", listen))
    lines = read_metrics(root / spec.folder / "metrics.jsonl")
    judging = evaluation_spec(spec, result)
    asked = report_spec(store, judging, evaluate(judging, silent()).evaluation_sha256, "podline run t")
    page = store.read_bytes(report(asked, silent()).markdown).decode()
    return [line for line in lines if isinstance(line, FindingLine) and line.finding == "overfitting"], warnings, page


@pytest.mark.usefixtures("no_charts")
def test_a_model_that_learns_its_examples_by_heart_is_named_and_one_that_learns_the_classes_is_not(
    tmp_path: Path,
) -> None:
    found, warnings, page = trained(
        tmp_path / "by lot", {"train": without_a_pattern(48, 0), "test": without_a_pattern(60, 1)}
    )
    assert [line.over for line in found] == [False]
    assert found[0].figures["training_accuracy"] > found[0].figures["accuracy"] + 0.3
    [warning] = [line for line in warnings if "the model overfits" in line]
    assert "% of the training examples are right vs " in warning
    assert "of the 60 test examples" in warning
    assert "--set validation_share=0.1 --set early_stop.patience=0.5 keeps the best weights" in warning
    assert "overfitting" in page
    found, warnings, _ = trained(tmp_path / "of classes", {"train": drawn(600, 0), "test": drawn(200, 1)})
    assert (found, [line for line in warnings if "overfits" in line]) == ([], [])


def evaluation(step: int, loss: float, accuracy: float = math.nan, examples: int = 100) -> EvaluationLine:
    return EvaluationLine(
        step=step, epoch=1.0, split="validation", examples=examples, loss=loss, accuracy=accuracy, seconds=1.0, time=0.0
    )


def judged(
    lines: list[tuple[float, float]],
    before: int = 0,
    training: float = math.nan,
    accuracy: float = math.nan,
    examples: int = 100,
) -> list[FindingLine]:
    """The findings of evaluations with a loss each, after steps with another; some of them before an interruption."""
    found, known = list[FindingLine](), list[MetricsLine]()
    for number, (of_steps, loss) in enumerate(lines, 1):
        steps = steps_line(10 * number, of_steps).model_copy(update={"accuracy": training})
        known += [steps, evaluation(10 * number, loss, accuracy, examples)]
    judge = JudgeOverfitting(Findings(found.append, lambda _line: None), ["help"])
    for place, line in enumerate(known):
        judge.note(line)
        if place >= 2 * before and isinstance(line, EvaluationLine):
            judge.judge(line.step)
    return found


RISES = [(3.0, 3.0), (2.0, 2.0), (1.5, 2.1), (1.2, 2.3), (1.0, 2.4), (0.9, 2.6)]


def test_without_an_accuracy_a_loss_that_rises_for_several_evaluations_tells() -> None:
    [line] = judged(RISES)
    assert (line.step, line.where, line.suggestion) == (60, "validation", "help")
    assert line.message == (
        "the model overfits: the validation loss has risen from 2 at step 20 to 2.6, as the training loss fell from 2 "
        "to 0.9"
    )
    assert [line.step for line in judged(RISES, before=5)] == [60], "an interrupted run remembers"
    assert judged(RISES[:5]) == []
    assert judged([(2.0, loss) for _, loss in RISES]) == [], "the training loss does not fall: it diverges"


@pytest.mark.parametrize(
    ("training", "accuracy", "count", "found"),
    [(1.0, 0.8, 4, [40]), (1.0, 0.8, 3, []), (0.88, 0.8, 6, []), (0.9, 0.8, 5, []), (0.9, 0.8, 6, [60])],
)
def test_an_accuracy_that_is_far_below_that_in_training_tells_beyond_chance(
    training: float, accuracy: float, count: int, found: list[int]
) -> None:
    lines = judged(RISES[:count], training=training, accuracy=accuracy)
    assert [line.step for line in lines] == found
    assert judged(RISES, training=training, accuracy=accuracy, examples=40) == []


@pytest.mark.parametrize(
    ("changes", "used"),
    [
        ({}, ""),
        ({"init": {"file": "a.keras"}}, "--init"),
        ({"further": "t-0"}, "--init"),
        ({"early_stop": {}}, "early"),
    ],
)
def test_what_a_run_uses_is_no_remedy(changes: dict[str, Any], used: str) -> None:
    recipe = small_recipe(validation_share=0.1).changed(**changes)
    helps = "; ".join(_against_overfitting(recipe))
    assert ("--init" in helps, "early_stop" in helps) == (used != "--init", used != "early")
