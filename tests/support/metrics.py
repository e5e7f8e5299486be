"""Lines of a run's metrics: read all at once, and made."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from podline.documents.metrics_log import MetricsLine, MetricsLines, StepsLine


def read_metrics(path: Path) -> list[MetricsLine]:
    """Return all lines; raise the errors of :class:`MetricsLines`."""
    return [*MetricsLines(path)]


def steps_line(step: int, *losses: float) -> StepsLine:
    """A stretch that ends with ``step``."""
    return StepsLine(
        step=step,
        epoch=step / 10,
        loss=float(np.mean(losses)),
        accuracy=0.5,
        learning_rate=0.1,
        gradient_norm=5.0,
        gradient_norms={"stem": 3.0, "classifier": 4.0},
        examples_per_second=100.0,
        waiting=0.01,
        seconds=1.5,
        time=1_700_000_000.0,
        losses=losses,
    )
