"""Writes the ``metrics.jsonl`` and ``events.jsonl`` of a run; see :mod:`podline.documents.metrics_log`."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from podline.base.errors import ArtifactError
from podline.base.frozen import Frozen
from podline.base.stopwatch import spans
from podline.documents.metrics_log import EventKind, EventLine, MetricsLine, read_events
from podline.store.contract import explained

_BLOCK = 1 << 20


class LogMark(Frozen):
    """The length of ``metrics.jsonl`` at the time of a checkpoint, and the sha256 of its content."""

    bytes: int
    sha256: str


def _hash_of(path: Path, length: int) -> Any:
    """Return the unfinished sha256 of the first ``length`` bytes of a file; the caller can add further bytes."""
    sha256 = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(min(length, _BLOCK)):
            sha256.update(block)
            length -= len(block)
    return sha256


class MetricsLog:
    """Appends lines to a run's ``metrics.jsonl``. Call :meth:`cut` before the first line.

    :meth:`write` flushes every line to the operating system; :meth:`mark` also waits for the disk (fsync).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hash = hashlib.sha256()
        self._bytes = 0
        with explained("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = path.open("ab")

    def require(self, mark: LogMark) -> None:
        """Check that the first ``mark.bytes`` bytes still have the sha256 of ``mark``; :meth:`cut` truncates there.

        Raises:
            ArtifactError: the content has changed.
        """
        with explained("read", self.path):
            found, length = _hash_of(self.path, mark.bytes), self.path.stat().st_size
        if length < mark.bytes or found.hexdigest() != mark.sha256:
            raise ArtifactError(
                f"{self.path} no longer begins with the {mark.bytes} bytes that it had at the time of the checkpoint"
            )
        self._hash, self._bytes = found, mark.bytes

    def cut(self, *, checked: bool) -> None:
        """Truncate the log.

        Args:
            checked: truncate to the length that :meth:`require` has just checked; else remove all lines.
        """
        if not checked:
            self._hash, self._bytes = hashlib.sha256(), 0
        with explained("write", self.path):
            self._stream.truncate(self._bytes)
            self._stream.seek(self._bytes)

    def write(self, line: MetricsLine) -> None:
        """Append a line."""
        data = (json.dumps(line.model_dump(mode="json"), allow_nan=False) + "\n").encode()
        with explained("write", self.path):
            self._stream.write(data)
            self._stream.flush()
        self._hash.update(data)
        self._bytes += len(data)

    def mark(self) -> LogMark:
        """Wait until all lines are on the disk; return the log's length and checksum."""
        with explained("write", self.path):
            os.fsync(self._stream.fileno())
        return LogMark(bytes=self._bytes, sha256=self._hash.hexdigest())

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *_error: object) -> None:
        with explained("write", self.path):
            self._stream.close()


class EventLog:
    """Appends events to a run's ``events.jsonl``; opening removes an unfinished last line of a killed process."""

    def __init__(self, path: Path, before: Callable[[], None] | None = None) -> None:
        """Open the log.

        Args:
            path: path of ``events.jsonl``.
            before: called before each line is written; if it raises an error, the line is not written.
        """
        self.path, self._before = path, before
        with explained("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                content = path.read_bytes()
                os.truncate(path, content.rfind(b"\n") + 1)

    def write(self, event: EventKind, step: int, message: str) -> None:
        """Append an event, and wait until the line is on the disk."""
        if self._before:
            self._before()
        line = EventLine(time=time.time(), event=event, step=step, message=message, spans=spans())
        with explained("write", self.path), self.path.open("ab") as stream:
            stream.write((line.model_dump_json() + "\n").encode())
            stream.flush()
            os.fsync(stream.fileno())

    def read(self) -> list[EventLine]:
        """Return all events so far."""
        return read_events(self.path) if self.path.exists() else []
