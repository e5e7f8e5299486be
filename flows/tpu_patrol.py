"""A round of the patrol: TPUs, requests, leases, runs and locks that nobody stands behind any more.

    podline tpu patrol

By schedule, as the deployment tpu-patrol; what it does is the setting tpu.patrol's to say. Its table is on the run.
"""

from __future__ import annotations

from prefect import flow

from podline.tasks.node.patrol import patrolled
from podline.tpu.patrol import PatrolFinding


@flow(name="tpu-patrol")
def tpu_patrol() -> list[PatrolFinding]:
    """List the project's TPUs and requests, the lease, living runs and the lock; repair what the settings allow."""
    return patrolled()
