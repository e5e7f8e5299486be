"""Runs that are killed, and what is left of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_dataset import FINGERPRINT, small_recipe

from podline.base.progress import Reporter, silent
from podline.documents.metrics_log import StepsLine
from podline.recipes.settings import Recipe
from podline.stages.specs import TrainResult, TrainSpec
from podline.training.train import train
from tests.support.metrics import read_metrics

_CLOCKS = {"seconds", "spans", "time", "examples_per_second", "waiting"}


def lively_recipe(**values: Any) -> Recipe:
    """A recipe whose steps draw numbers and keep a state: dropout, flips, an average of the weights."""
    usual = {"model": {"kind": "linear", "dropout": 0.2}, "augmentation": {"flip": True}, "ema_decay": 0.9}
    return small_recipe(**(usual | {"deterministic": True} | values))


def specs_of(recipe: Recipe, *, preflight: bool = False) -> Callable[..., TrainSpec]:
    """Make specs of a recipe, with some of its values changed, for the small data set of a store."""

    def spec_of(root: Path, **values: Any) -> TrainSpec:
        changed = recipe.changed(**values)
        return TrainSpec(root=str(root), recipe=changed, fingerprint=FINGERPRINT, preflight=preflight)

    return spec_of


def unbroken(spec: TrainSpec) -> tuple[TrainSpec, TrainResult, Path]:
    """Train without any disturbance; return the spec, the result and the run's folder."""
    return spec, train(spec, silent()), Path(spec.root) / spec.folder


class Killed(BaseException):
    """What a SIGKILL is to Python: nothing below catches it."""


def killed_at(spec: TrainSpec, step: int) -> None:
    """Trains until the process dies, as soon as it has told of a step."""

    def act(event: dict) -> None:
        if event["event"] == "progress" and event["done"] >= step:
            raise Killed

    with pytest.raises(Killed):
        train(spec, Reporter("train", act))


def finished_after(spec: TrainSpec, *steps: int) -> TrainResult:
    """Kills a run at each of the steps, and then lets it finish."""
    for step in steps:
        killed_at(spec, step)
    return train(spec, silent())


def bare_metrics(folder: Path) -> list[dict]:
    """The lines of metrics.jsonl without what a clock says."""
    return [line.model_dump(exclude=_CLOCKS) for line in read_metrics(folder / "metrics.jsonl")]


def require_same(spec: TrainSpec, result: TrainResult, unbroken: tuple[TrainSpec, TrainResult, Path]) -> None:
    """Check that a run that was broken off ended with the bits and the metrics of one that was not."""
    assert (result.weights_sha256, result.ending) == (unbroken[1].weights_sha256, unbroken[1].ending)
    assert bare_metrics(Path(spec.root) / spec.folder) == bare_metrics(unbroken[2])


def losses(folder: Path) -> list[float]:
    lines = read_metrics(folder / "metrics.jsonl")
    return [loss for line in lines if isinstance(line, StepsLine) for loss in line.losses]


def training_processes(root: Path, variable: bytes = b"") -> list[int]:
    """The processes that train in a store, with a part of their environment."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command, environment = ((folder / name).read_bytes() for name in ("cmdline", "environ"))
            # Their temporary folders lie in the store.
            if (
                b"podline.stages.supervision.child\0train" in command
                and bytes(root) in environment
                and variable in environment
            ):
                found.append(int(folder.name))
    return found


def arrays_of(folder: Path, step: int) -> dict[str, np.ndarray]:
    with np.load(folder / "checkpoints" / f"step-{step:08d}.npz") as arrays:
        return dict(arrays)
