"""Synchronises processes that train together: waits for all processes, and makes common decisions.

Clocks, signals and files differ between processes. If only one process acted on them, the other processes would wait
forever in an all-reduce. So processes decide by a *meeting*, a collective operation that every process must call, in
the same order. A loss, a score and the step number are equal in all processes and need no meeting.
"""

# pyright: standard
from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from podline.base.errors import ArtifactError, WorkerLostError
from podline.base.stopwatch import measured
from podline.settings.cluster import Cluster

_DIGITS = 12


class Agreement:
    """Makes the common decisions of the processes of a strategy; a single process decides alone.

    Attributes:
        chief: whether this process writes to the store.
        processes: number of processes.
    """

    def __init__(self, strategy: tf.distribute.Strategy, cluster: Cluster | None = None) -> None:
        """Prepare meetings; ``cluster`` has the processes of a ``MultiWorkerMirroredStrategy``."""
        self.chief = not cluster or cluster.chief
        self._place, self.processes = (cluster.place, len(cluster.addresses)) if cluster else (0, 1)
        self._strategy = strategy
        self._replicas = strategy.num_replicas_in_sync // self.processes
        # Each graph has its own keys for its sums, so processes cannot confuse two meetings.
        self._sum = tf.function(lambda values: strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None))

    def any(self, value: bool) -> bool:
        """Return whether any process passes True."""
        return bool(self._table(int(value)).any())

    def of_chief(self, value: int) -> int:
        """Return the number that the chief passes, −2⁵³ … 2⁵³."""
        return int(self._table(value)[0])

    def meet(self) -> None:
        """Wait until all processes call this."""
        self.any(False)

    def require_same(self, what: str, value: str) -> None:
        """Check that all processes have the same value.

        Raises:
            ArtifactError: the values differ; every process raises it.
        """
        number = int(hashlib.sha256(value.encode()).hexdigest()[:_DIGITS], 16)
        if self.any(self.of_chief(number) != number):
            raise ArtifactError(f"{what} differ between the workers; here: {value}; start all of them again")

    def _table(self, value: int) -> np.ndarray:
        """Gather ``value`` from every process: int64, (processes,), by rank."""
        if self.processes == 1:
            return np.array([value])

        def row(context: Any) -> tf.Tensor:
            first = context.replica_id_in_sync_group % self._replicas == 0
            values = np.zeros(self.processes, np.int64)
            values[self._place] = value if first else 0
            return tf.constant(values)

        with measured("hosts"):
            return self._sum(self._strategy.experimental_distribute_values_from_function(row)).numpy()


T = TypeVar("T")

# Workers do not all start at once: by hand, by schedulers, or after a retry's delay.
GATHERING_SECONDS = 600.0
_ANSWER_SECONDS = 2.0


def gathered(make: Callable[[], T], cluster: Cluster, seconds: float = GATHERING_SECONDS) -> T:
    """Return the result of ``make`` when all workers have joined; TensorFlow alone would wait for an hour.

    Raises:
        WorkerLostError: some workers did not join in time; the message names those that do not answer.
        Exception: an error of ``make``.
    """
    made: Future[T] = Future()

    def work() -> None:
        try:
            made.set_result(make())
        except Exception as error:
            made.set_exception(error)

    # A thread that waits in native code cannot be interrupted, so it is left behind.
    threading.Thread(target=work, name="gathering", daemon=True).start()
    if not wait([made], timeout=seconds).done:
        raise WorkerLostError(_missing(cluster, seconds))
    return made.result()


def _missing(cluster: Cluster, seconds: float) -> str:
    silent = [
        f"worker {place} ({address})"
        for place, address in enumerate(cluster.addresses)
        if place != cluster.place and not _answers(address)
    ]
    who = f"no answer from {', '.join(silent)}" if silent else "all answer, but not all have joined"
    return (
        f"got fewer workers than the {len(cluster.addresses)} expected within {seconds:g} s: {who}; "
        "start every one of them with the same command"
    )


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS):
            return True
    except (OSError, ValueError):
        return False
