"""Waits for the other workers, and names those that did not come. Needs no TensorFlow."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from podline.cluster import Cluster
from podline.errors import WorkerLostError

T = TypeVar("T")

# Workers are started by hand, or by schedulers that do not start them all at once, or after a retry's delay.
GATHERING_SECONDS = 600.0
_POLL = 0.2
_ANSWER_SECONDS = 2.0


def gathered(make: Callable[[], T], cluster: Cluster, seconds: float = GATHERING_SECONDS) -> T:
    """What ``make`` returns, which it does when all workers are there; TensorFlow would wait for an hour.

    Args:
        make: starts this process's server, then waits for the others.
        cluster: who they are.
        seconds: how long to wait.

    Raises:
        WorkerLostError: they did not come; names those that do not answer.
        Exception: what ``make`` raises.
    """
    answers: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            answers.put((make(), None))
        except Exception as error:
            answers.put((None, error))

    # What waits in native code cannot be interrupted; a thread of its own is left behind instead.
    threading.Thread(target=work, name="gathering", daemon=True).start()
    deadline = time.monotonic() + seconds
    while True:
        try:
            made, error = answers.get(timeout=_POLL)
        except queue.Empty:
            if time.monotonic() > deadline:
                raise WorkerLostError(_missing(cluster, seconds)) from None
            continue
        if error is not None:
            raise error
        return made  # pyright: ignore[reportReturnType] (what was made, whatever it is)


def _missing(cluster: Cluster, seconds: float) -> str:
    silent = [
        f"worker {place} ({address})"
        for place, address in enumerate(cluster.addresses)
        if place != cluster.place and not _answers(address)
    ]
    who = f"{', '.join(silent)} does not answer" if silent else "all answer, but not all have joined"
    return (
        f"of {len(cluster.addresses)} workers not all were there within {seconds:g} s: {who}; "
        "start every one of them with the same command"
    )


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS):
            return True
    except (OSError, ValueError):
        return False
