"""Runs that decide by their validation part, whole and broken off."""

from __future__ import annotations

from pathlib import Path

import pytest
from dying_runs import bare_metrics, finished_after, losses
from small_dataset import FINGERPRINT, publish_dataset

from podline.progress import silent
from podline.recipes.settings import (
    AugmentationSettings,
    Duration,
    ModelSettings,
    PlateauSettings,
    Recipe,
    ScheduleSettings,
)
from podline.stages import TrainSpec
from podline.training import loop
from podline.training.metrics_log import EvaluationLine, PlateauLine, StepsLine, read_events, read_metrics
from podline.training.train import train

# 96 examples, of which 24 are held out: 9 steps of 8 an epoch; a checkpoint at 8, 16, 24 and at the end.
RECIPE = Recipe(
    name="t",
    dataset="sample",
    model=ModelSettings(kind="linear", dropout=0.2),
    batch_size=8,
    evaluation_batch_size=16,
    duration=Duration(steps=30),
    # No loss halves in four steps: the rate is lowered at every other evaluation.
    schedule=ScheduleSettings(
        kind="plateau", learning_rate=0.001, plateau=PlateauSettings(factor=0.5, patience=1, least=0.5)
    ),
    augmentation=AugmentationSettings(flip=True),
    ema_decay=0.9,
    validation_share=0.25,
    evaluate_every=Duration(steps=4),
    checkpoint_steps=8,
    summary_steps=5,
    deterministic=True,
)


@pytest.fixture(autouse=True)
def _all_the_news(monkeypatch):
    """Progress is told after every part, however fast: a run dies at the very step that a test names."""
    monkeypatch.setattr(loop, "_NEWS_SECONDS", -1.0)


def spec_of(root: Path, **values) -> TrainSpec:
    publish_dataset(root)
    recipe = Recipe.model_validate(RECIPE.model_dump() | values)
    return TrainSpec(root=str(root), recipe=recipe, fingerprint=FINGERPRINT)


@pytest.fixture(scope="module")
def lowered(tmp_path_factory) -> tuple[TrainSpec, str, Path]:
    """An unbroken run whose rate is lowered several times."""
    spec = spec_of(tmp_path_factory.mktemp("lowered"))
    result = train(spec, silent())
    return spec, result.weights_sha256, Path(spec.root) / spec.folder


def test_the_rate_follows_the_decisions_and_these_are_told_everywhere(lowered):
    spec, _, folder = lowered
    lines = read_metrics(folder / "metrics.jsonl")
    decisions = [line for line in lines if isinstance(line, PlateauLine)]
    evaluations = [line for line in lines if isinstance(line, EvaluationLine)]
    assert [line.step for line in decisions] == [line.step for line in evaluations] == [4, 8, 12, 16, 20, 24, 28, 30]
    assert {(line.split, line.examples) for line in evaluations} == {("validation", 24)}
    assert [line.value for line in decisions] == [line.loss for line in evaluations]
    assert decisions[-1].factor <= 0.25
    told = [event.step for event in read_events(folder / "events.jsonl") if event.event == "rate_lowered"]
    assert told == [line.step for line in decisions if line.lowered]
    for line in lines:
        if isinstance(line, StepsLine):
            before = [decision.factor for decision in decisions if decision.step < line.step]
            assert line.learning_rate == spec.recipe.schedule.learning_rate * (before or [1.0])[-1]


def test_the_rate_that_is_written_is_the_rate_that_is_taken(lowered, tmp_path):
    """The same run with a constant rate has the same losses up to the first lowering, and others from then on."""
    _, _, folder = lowered
    constant = spec_of(tmp_path, schedule=ScheduleSettings(kind="constant", learning_rate=0.001).model_dump())
    train(constant, silent())
    first = next(
        line.step for line in read_metrics(folder / "metrics.jsonl") if isinstance(line, PlateauLine) and line.lowered
    )
    ours, theirs = losses(folder), losses(tmp_path / constant.folder)
    # The first step at the new rate still has a loss of the weights before it.
    assert ours[: first + 1] == theirs[: first + 1]
    assert not set(ours[first + 1 :]) & set(theirs[first + 1 :])


@pytest.mark.parametrize("steps", [(3,), (9, 18), (13,), (25, 29)])
def test_a_run_killed_between_its_decisions_ends_with_the_same_bits(lowered, tmp_path, steps):
    _, weights, folder = lowered
    spec = spec_of(tmp_path)
    assert finished_after(spec, *steps).weights_sha256 == weights
    assert bare_metrics(tmp_path / spec.folder) == bare_metrics(folder)
