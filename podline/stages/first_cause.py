"""Shares the error of the worker that failed first with the other workers, through a file in the store."""

from __future__ import annotations

import contextlib
import time

from podline.base.errors import PodlineError, PreemptedError, TransientError, WorkerLostError, from_json, one_line
from podline.settings.cluster import Cluster
from podline.store.contract import Store

# Seconds to wait until the supervisor of a lost process has written the error.
_SECONDS, _POLL = 5.0, 0.25
# An error file that is older belongs to an earlier start; the clocks of hosts differ by less.
_OLD_SECONDS = 5.0


def forget_causes(store: Store, run_folder: str, cluster: Cluster) -> None:
    """Delete the error file of this process; the chief also deletes the error files of earlier starts."""
    store.delete(_file(run_folder, cluster.place))
    if cluster.chief:
        now = time.time()
        for found in list(store.listing(f"{run_folder}/hosts")):
            if found.published < now - _OLD_SECONDS:
                store.delete(found.name)


def tell_cause(store: Store, run_folder: str, cluster: Cluster, error: PodlineError) -> None:
    """Publish an error of this process for the other workers.

    The loss of another worker and a preemption are not published, since they are not the cause.
    """
    if not isinstance(error, WorkerLostError | PreemptedError):
        with contextlib.suppress(PodlineError):  # the original error matters more
            store.publish_json(_file(run_folder, cluster.place), error.to_json(), replace=True)


def first_cause(store: Store, run_folder: str, cluster: Cluster, lost: WorkerLostError) -> PodlineError:
    """Return the error that another worker published, or ``lost`` if none did within 5 seconds."""
    others = [place for place in range(len(cluster.addresses)) if place != cluster.place]
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        for place in others:
            with contextlib.suppress(PodlineError):
                document = store.read_json(_file(run_folder, place))
                return ended_first(f"worker {place} ({cluster.addresses[place]})", from_json(document))
        time.sleep(_POLL)
    return lost


def ended_first(worker: str, cause: PodlineError) -> PodlineError:
    """Return the error with which the whole training fails after the error of one worker.

    A transient error becomes a :class:`WorkerLostError`. Another error keeps its class, since a new start would fail
    in the same way.
    """
    kind = WorkerLostError if isinstance(cause, TransientError) else type(cause)
    return kind(f"{worker} ended first: {one_line(cause)}")


def _file(run_folder: str, place: int) -> str:
    return f"{run_folder}/hosts/{place}.json"
