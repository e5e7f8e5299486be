"""Processes that train together: waiting for all of them, and decisions that they take as one.

What hangs on a clock, a signal or a file is not the same in every process; acted upon by one alone, it would leave the
others waiting in a sum over all replicas that never comes. So each such question is put to all: a *meeting*, to which
every process must come, in the same order. What follows from the steps themselves (a loss, a score, the number of the
step) is the same everywhere and needs none.
"""

from __future__ import annotations

import hashlib
import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from podline.cluster import Cluster
from podline.errors import ArtifactError, WorkerLostError
from podline.stopwatch import measured

_DIGITS = 12


class Agreement:
    """The agreement of one process with itself: what it thinks is so.

    Attributes:
        chief: whether this process is the one that writes.
        processes: how many there are.
    """

    chief = True
    processes = 1

    def any(self, mine: bool) -> bool:
        """Whether any process says yes."""
        return mine

    def of_chief(self, mine: int) -> int:
        """Return the chief's number, −2⁵³ … 2⁵³."""
        return mine

    def meet(self) -> None:
        """Wait until all processes are here."""
        self.any(False)

    def require_same(self, what: str, mine: str) -> None:
        """Check that all processes have the same value.

        Raises:
            ArtifactError: they have not; raised in all of them.
        """


class WorkersAgreement(Agreement):
    """The agreement of the processes of a ``tf.distribute.MultiWorkerMirroredStrategy``."""

    def __init__(self, strategy: tf.distribute.Strategy, cluster: Cluster) -> None:
        self.chief, self._place, self.processes = cluster.chief, cluster.place, len(cluster.addresses)
        self._strategy = strategy
        self._replicas = strategy.num_replicas_in_sync // self.processes
        # A graph has keys of its own for what it sums, so processes cannot take one meeting for another.
        self._sum = tf.function(lambda values: strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None))

    def any(self, mine: bool) -> bool:
        """Whether it is so for any process."""
        return bool(self._table(int(mine)).any())

    def of_chief(self, mine: int) -> int:
        """Return the chief's number."""
        return int(self._table(mine)[0])

    def require_same(self, what: str, mine: str) -> None:
        """Fails in every process where one has something else."""
        number = int(hashlib.sha256(mine.encode()).hexdigest()[:_DIGITS], 16)
        if self.any(self.of_chief(number) != number):
            raise ArtifactError(f"{what} differ between the workers; here: {mine}; start all of them again")

    @measured("hosts")
    def _table(self, mine: int) -> np.ndarray:
        """Return what each process reports, int64, (processes,)."""

        def row(context: Any) -> tf.Tensor:
            first = context.replica_id_in_sync_group % self._replicas == 0
            values = np.zeros(self.processes, np.int64)
            values[self._place] = mine if first else 0
            return tf.constant(values)

        return self._sum(self._strategy.experimental_distribute_values_from_function(row)).numpy()


T = TypeVar("T")

# Workers are started by hand, or by schedulers that do not start them all at once, or after a retry's delay.
GATHERING_SECONDS = 600.0
_POLL = 0.2
_ANSWER_SECONDS = 2.0


def gathered(make: Callable[[], T], cluster: Cluster, seconds: float = GATHERING_SECONDS) -> T:
    """Return what ``make`` gives when all workers are there; TensorFlow would wait for an hour.

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
