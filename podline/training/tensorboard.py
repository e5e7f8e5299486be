"""Writes TensorBoard's event files from ``metrics.jsonl``.

The event file holds nothing of its own: a run that goes on writes it again from the lines that are left, with their own
times, so it has no gap and no repeat either.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import tensorflow as tf
from tensorflow.core.framework.summary_pb2 import Summary, SummaryMetadata
from tensorflow.core.util.event_pb2 import Event

from podline.documents.metrics_log import (
    DecisionLine,
    EvaluationLine,
    FindingLine,
    MetricsLine,
    StepsLine,
)
from podline.errors import StoreError
from podline.store.contract import explained

# TensorBoard takes any file with "tfevents" in its name; one file for the whole run, whatever broke it off.
_FILE = "events.out.tfevents.0.podline"
_FIGURES = {
    "train": ("loss", "accuracy", "learning_rate", "gradient_norm", "examples_per_second", "waiting"),
    "evaluation": ("loss", "accuracy"),
    "plateau": ("factor",),
    "annealing": ("energy", "temperature", "accepted"),
    "early_stop": ("value", "best", "stalled"),
}


class EventFile:
    """An event file while a run writes it."""

    def __init__(self, folder: Path, lines: Iterable[MetricsLine]) -> None:
        """Begins the file with the lines that there are.

        Raises:
            StoreError: it cannot be written.
        """
        self._path = folder / _FILE
        with explained("write", folder):
            folder.mkdir(parents=True, exist_ok=True)
        with self._explained():
            self._writer = tf.io.TFRecordWriter(str(self._path))
            # What TensorBoard looks for at the start of a file of this version of the format.
            self._writer.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
            for line in lines:
                self._writer.write(_event(line).SerializeToString())
            self._writer.flush()

    def write(self, line: MetricsLine) -> None:
        """Append a line's figures.

        Raises:
            StoreError: it cannot be written.
        """
        with self._explained():
            self._writer.write(_event(line).SerializeToString())
            self._writer.flush()

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, *_error: object) -> None:
        with self._explained():
            self._writer.close()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except tf.errors.OpError as error:
            raise StoreError(f"cannot write {error.message}; free some space, or choose another --root") from error


def _event(line: MetricsLine) -> Event:
    values = [_text(line)] if isinstance(line, FindingLine) else _scalars(line)
    return Event(wall_time=line.time, step=line.step, summary=Summary(value=values))


def _text(line: FindingLine) -> Summary.Value:
    text = f"over: {line.message}" if line.over else f"{line.message}; {line.suggestion}"
    return Summary.Value(
        tag=f"findings/{line.finding}/{line.where}",
        metadata=SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text")),
        tensor=tf.make_tensor_proto(text, tf.string),
    )


def _scalars(line: StepsLine | EvaluationLine | DecisionLine) -> list[Summary.Value]:
    group = line.split if isinstance(line, EvaluationLine) else line.kind
    figures = {name: getattr(line, name) for name in _FIGURES[line.kind]}
    if isinstance(line, StepsLine | EvaluationLine) and line.measures:
        figures = {name: figure for name, figure in figures.items() if name != "accuracy"} | line.measures
    if isinstance(line, StepsLine):
        figures |= {f"gradient_norm/{block}": norm for block, norm in line.gradient_norms.items()}
    return [Summary.Value(tag=f"{group}/{name}", simple_value=figure) for name, figure in figures.items()]
