"""A round of the patrol: TPU nodes, requests, leases and runs that are left over.

    podline tpu patrol

By schedule it is the deployment tpu-patrol; the setting tpu.patrol says what it may do. Its table is on the run.
"""

from __future__ import annotations

from prefect import flow
from prefect.logging import get_run_logger

from podline import settings
from podline.tasks.node.patrol import patrolled, publish
from podline.tasks.runs.asking import explained, require_named
from podline.tpu.patrol import PatrolFinding


@flow(name="tpu-patrol")
def tpu_patrol() -> list[PatrolFinding]:
    """Look at the TPU's node, its request, its lease and the runs on it; repair what the settings allow."""
    tpu = settings.load().tpu
    if tpu is None:
        # The deployment comes with its schedule, also to those who have no TPU.
        get_run_logger().info("the settings name no TPU; nothing to patrol")
        return []
    findings, problem = patrolled(tpu)
    publish(findings, tpu)
    if problem is not None:
        raise problem
    return findings


def by_hand() -> list[PatrolFinding]:
    """Do one round from the command line.

    Raises:
        SettingsError: nothing names a Prefect server, or it asks for another secret.
        PodlineError: the server does not answer, or refuses.
    """
    require_named()
    with explained():
        return tpu_patrol()
