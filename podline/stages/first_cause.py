"""Shares the first error among workers: the one that failed first writes its error into the store."""

from __future__ import annotations

import contextlib
import time

from podline.base.errors import PodlineError, PreemptedError, TransientError, WorkerLostError, from_json, one_line
from podline.base.frozen import is_object
from podline.settings.cluster import Cluster
from podline.store.contract import Store

# Seconds from the detection of a lost process until its supervisor has written the cause.
_SECONDS, _POLL = 5.0, 0.25
# Older causes belong to an earlier start; the clocks of hosts differ by less.
_OLD_SECONDS = 5.0


def forget_causes(store: Store, run_folder: str, cluster: Cluster) -> None:
    """Delete this process's error of an earlier start; the chief also deletes old errors of other processes."""
    store.delete(_file(run_folder, cluster.place))
    if cluster.chief:
        now = time.time()
        for found in list(store.listing(f"{run_folder}/hosts")):
            if found.published < now - _OLD_SECONDS:
                store.delete(found.name)


def tell_cause(store: Store, run_folder: str, cluster: Cluster, error: PodlineError) -> None:
    """Write this process's error for the others, unless another process was lost or the end was requested."""
    if not isinstance(error, WorkerLostError | PreemptedError):
        with contextlib.suppress(PodlineError):  # the original error matters more
            store.publish_json(_file(run_folder, cluster.place), error.to_json(), replace=True)


def first_cause(store: Store, run_folder: str, cluster: Cluster, lost: WorkerLostError) -> PodlineError:
    """Return the error of another process if it wrote one, else the loss as seen by this process.

    A permanent error keeps its class, since a new start would meet it again.
    """
    others = [place for place in range(len(cluster.addresses)) if place != cluster.place]
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        for place in others:
            with contextlib.suppress(PodlineError):
                said = store.read_json(_file(run_folder, place))
                if not is_object(said):
                    continue
                return ended_first(f"worker {place} ({cluster.addresses[place]})", from_json(said))
        time.sleep(_POLL)
    return lost


def ended_first(worker: str, cause: PodlineError) -> PodlineError:
    """Return the error of a worker for the whole training: transient errors become the loss of that worker."""
    kind = WorkerLostError if isinstance(cause, TransientError) else type(cause)
    return kind(f"{worker} ended first: {one_line(cause)}")


def _file(run_folder: str, place: int) -> str:
    return f"{run_folder}/hosts/{place}.json"
