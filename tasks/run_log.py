"""A stage's events on its Prefect run: in its log, and as a progress artifact that moves."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.logging import get_run_logger

from podline.progress import Event, Listener, to_logger
from tasks.listening import terminal

_ARTIFACT_SECONDS = 3.0


def everyone(stage: str) -> Listener:
    """All who listen to a stage's task run: the terminal, the log, the artifact. To be called inside the run."""
    listeners = (terminal(), to_logger(get_run_logger()), ProgressArtifact(stage))

    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell


class ProgressArtifact:
    """Shows a stage's progress on its run, at most every few seconds."""

    def __init__(self, stage: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._stage, self._clock = stage, clock
        self._artifact: UUID | None = None
        self._written = float("-inf")

    def __call__(self, event: Event) -> None:
        """Moves the artifact on."""
        if event["event"] != "progress" or not event["total"]:
            return
        share = min(100.0, 100.0 * event["done"] / event["total"])
        if share < 100.0 and self._clock() - self._written < _ARTIFACT_SECONDS:
            return
        self._written = self._clock()
        # A server that is away for a moment must not cost the stage its work.
        with contextlib.suppress(Exception):
            self._write(share, f"{self._stage}: {event['done']:,} of {event['total']:,} {event['unit']}")

    def _write(self, share: float, description: str) -> None:
        if self._artifact is None:
            self._artifact = create_progress_artifact(share, f"{self._stage}-progress", description)  # type: ignore[assignment]
        else:
            update_progress_artifact(self._artifact, share, description)
