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

from podline.documents.metrics_log import FindingLine, MetricsLine, figures_of
from podline.errors import StoreError
from podline.store.contract import explained

# TensorBoard takes any file with "tfevents" in its name; one file for the whole run, whatever broke it off.
_FILE = "events.out.tfevents.0.podline"


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
    if isinstance(line, FindingLine):
        values = [_text(line)]
    else:
        values = [Summary.Value(tag=name, simple_value=figure) for name, figure in figures_of(line).items()]
    return Event(wall_time=line.time, step=line.step, summary=Summary(value=values))


def _text(line: FindingLine) -> Summary.Value:
    text = f"over: {line.message}" if line.over else f"{line.message}; {line.suggestion}"
    return Summary.Value(
        tag=f"findings/{line.finding}/{line.where}",
        metadata=SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text")),
        tensor=tf.make_tensor_proto(text, tf.string),
    )
