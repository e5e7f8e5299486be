"""The lines of a run's metrics, all at once."""

from __future__ import annotations

from pathlib import Path

from podline.documents.metrics_log import MetricsLine, MetricsLines


def read_metrics(path: Path) -> list[MetricsLine]:
    """Return all lines; raise the errors of :class:`MetricsLines`."""
    return [*MetricsLines(path)]
