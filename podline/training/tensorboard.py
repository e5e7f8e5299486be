"""Writes TensorBoard's event files from ``metrics.jsonl``.

The event file is derived data: a resumed run rewrites it from the remaining lines, with their own times, so it has no
gap and no repeated step.
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

# TensorBoard reads any file with "tfevents" in its name; a run has one file over all its starts.
_FILE = "events.out.tfevents.0.podline"


class EventFile:
    """Writes the event file of a run."""

    def __init__(self, folder: Path, lines: Iterable[MetricsLine]) -> None:
        """Write a new file with the existing lines.

        Raises:
            StoreError: the file cannot be written.
        """
        self._path = folder / _FILE
        with explained("write", folder):
            folder.mkdir(parents=True, exist_ok=True)
        with self._explained():
            self._writer = tf.io.TFRecordWriter(str(self._path))
            # TensorBoard expects this record at the start of a file of this format version.
            self._writer.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
            for line in lines:
                self._writer.write(_event(line).SerializeToString())
            self._writer.flush()

    def write(self, line: MetricsLine) -> None:
        """Append a line's figures.

        Raises:
            StoreError: the line cannot be written.
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
