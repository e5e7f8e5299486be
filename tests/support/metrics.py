"""Lines of a run's metrics, read and made, and the result of a training; each value can be given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from podline.documents.metrics_log import EvaluationLine, MetricsLine, MetricsLines, StepsLine
from podline.stages.specs import TrainResult, TrainSpec


def read_metrics(path: Path) -> list[MetricsLine]:
    """Return all lines; raise the errors of :class:`MetricsLines`."""
    return [*MetricsLines(path)]


def steps_line(step: int, *losses: float, **values: Any) -> StepsLine:
    usual: dict[str, Any] = {"epoch": step / 10, "loss": float(np.mean(losses)), "losses": losses, "accuracy": 0.5}
    usual |= {"learning_rate": 0.1, "gradient_norm": 5.0, "gradient_norms": {"stem": 3.0, "classifier": 4.0}}
    usual |= {"examples_per_second": 100.0, "waiting": 0.01, "seconds": 1.5, "time": 1_700_000_000.0}
    return StepsLine(step=step, **(usual | values))


def evaluation_line(step: int, loss: float, **values: Any) -> EvaluationLine:
    usual = {"epoch": 1.0, "split": "validation", "examples": 100, "seconds": 0.1, "time": 0.0}
    return EvaluationLine(step=step, loss=loss, **(usual | values))


def train_result(spec: TrainSpec, weights_sha256: str, **figures: Any) -> TrainResult:
    usual = {"seconds": 1.0, "steps": 1, "epochs": 1.0, "examples": 1, "parameters": 1, "loss": 1.0}
    usual |= {"examples_per_second": 1.0, "waiting_for_input": 0.0}
    return TrainResult(run=spec.run, folder=spec.folder, weights_sha256=weights_sha256, **(usual | figures))
