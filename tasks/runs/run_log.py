"""Writes a stage's events to its Prefect run: to the log, and to the run's card."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable

from prefect.logging import get_run_logger

from podline.progress import Event, Listener, terminal, to_logger
from podline.stages.progress_words import StagePace, amount, metrics
from podline.tasks.runs.progress_card import show

_ARTIFACT_SECONDS = 3.0
_LAST_SECONDS = 5.0


def stage_listener(stage: str, title: str = "") -> Listener:
    """Return a listener that writes to the terminal, the run's log and its card; call it in the task run.

    Args:
        stage: name of the stage.
        title: title of its row on the card, if it differs from the stage.
    """
    listeners = (terminal(), _whatever_the_console_does(to_logger(get_run_logger())), ProgressCard(title or stage))

    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell


def _whatever_the_console_does(listener: Listener) -> Listener:
    """Wrap a listener so that a broken console does not end the stage.

    Prefect's console is rich's, which raises SystemExit when the worker that reads its output has ended.
    """

    def tell(event: Event) -> None:
        with contextlib.suppress(SystemExit):
            listener(event)

    return tell


class ProgressCard:
    """Shows a stage's progress on its run, at most every few seconds.

    A separate thread writes the card: requests to an unavailable server take more than a minute, while the stage must
    be watched. Outdated values are not written.
    """

    def __init__(self, stage: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._stage, self._clock = stage, clock
        self._pace = StagePace(clock)
        self._wanted_at, self._share = float("-inf"), 0.0
        self._wanted: tuple[float, str] | None = None
        self._lock = threading.Lock()
        self._writer: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        """Update the card by an event."""
        if event["event"] == "result" and self._share < 100.0:
            end = "reused after verification" if event["result"].get("reused") else "done"
            self._want(100.0, end).join(_LAST_SECONDS)
        if event["event"] == "waiting":
            self._want(self._share, event["message"])
        if event["event"] != "progress" or not event["total"]:
            return
        share = min(100.0, 100.0 * event["done"] / event["total"])
        left = self._pace.left(event)
        if share < 100.0 and self._clock() - self._wanted_at < _ARTIFACT_SECONDS:
            return
        self._wanted_at, self._share = self._clock(), share
        parts = (amount(event), metrics(event["metrics"], ", "), left, event.get("note", ""))
        writer = self._want(share, ", ".join(part for part in parts if part))
        if share == 100.0:
            writer.join(_LAST_SECONDS)

    def _want(self, share: float, description: str) -> threading.Thread:
        """Pass the newest values to the writing thread, or start one."""
        with self._lock:
            self._wanted = share, description
            if self._writer is None:
                # The thread's context determines the run of the card.
                work = contextvars.copy_context().run
                self._writer = threading.Thread(target=work, args=(self._write,), name="progress", daemon=True)
                self._writer.start()
            return self._writer

    def _write(self) -> None:
        while True:
            with self._lock:
                wanted, self._wanted = self._wanted, None
                if wanted is None:
                    self._writer = None
                    return
            # An unavailable server must not fail the stage.
            with contextlib.suppress(Exception):
                show(self._stage, *wanted)
