"""Writes TensorBoard's event files from ``metrics.jsonl``.

A resumed run rewrites the event file from the remaining lines of ``metrics.jsonl``, with the times of these lines. So
the event file has no gap and no repeated step.
"""

# pyright: standard
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from podline.base.errors import StoreError
from podline.documents.metrics_log import FindingLine, MetricsLine, figures_of
from podline.store.contract import explained

# TensorFlow 2 has no public names for these protocol buffers.
v1: Any = tf.compat.v1
# TensorBoard reads any file with "tfevents" in its name; a run has one file over all its starts.
_FILE = "events.out.tfevents.0.podline"


class EventFile:
    """Writes the event file of a run."""

    def __init__(self, folder: Path) -> None:
        """Begin a new file, in place of an earlier start's; the caller first writes the lines of earlier starts.

        Raises:
            StoreError: the file cannot be written.
        """
        self._path = folder / _FILE
        with explained("write", folder):
            folder.mkdir(parents=True, exist_ok=True)
        with self._explained():
            self._writer = tf.io.TFRecordWriter(str(self._path))
            # TensorBoard expects this record at the start of a file of this format version.
            self._writer.write(v1.Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
            self._writer.flush()

    def write(self, line: MetricsLine) -> None:
        """Append a line's values.

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


def _event(line: MetricsLine) -> Any:
    if isinstance(line, FindingLine):
        values = [_text(line)]
    else:
        values = [v1.Summary.Value(tag=name, simple_value=figure) for name, figure in figures_of(line).items()]
    return v1.Event(wall_time=line.time, step=line.step, summary=v1.Summary(value=values))


def _text(line: FindingLine) -> Any:
    text = f"over: {line.message}" if line.over else f"{line.message}; {line.suggestion}"
    return v1.Summary.Value(
        tag=f"findings/{line.finding}/{line.where}",
        metadata=v1.SummaryMetadata(plugin_data=v1.SummaryMetadata.PluginData(plugin_name="text")),
        tensor=tf.make_tensor_proto(text, tf.string),
    )
