"""A patrol: finds TPU nodes, requests, leases and runs that are left over.

    podline tpu patrol

The scheduled deployment is tpu-patrol; the setting tpu.patrol defines its permissions. The run shows its table.
"""

from __future__ import annotations

from prefect import flow
from prefect.logging import get_run_logger

from podline.settings import machine as settings
from podline.tasks.patrol import patrolled, publish
from podline.tasks.server import explained, require_named
from podline.tpu.patrol import PatrolFinding


@flow(name="tpu-patrol")
def tpu_patrol() -> list[PatrolFinding]:
    """Check the TPU's node, its request, its lease and its runs; make the repairs that the settings allow."""
    tpu = settings.load().tpu
    if tpu is None:
        # The scheduled deployment also exists for users without a TPU.
        get_run_logger().info("the settings name no TPU; there is nothing to patrol")
        return []
    findings, problem = patrolled(tpu)
    publish(findings, tpu)
    if problem is not None:
        raise problem
    return findings


def by_hand() -> list[PatrolFinding]:
    """Run a single patrol from the command line.

    Raises:
        SettingsError: the settings name no Prefect server, or the server needs a different secret.
        PodlineError: the server does not answer, or refuses the request.
    """
    require_named()
    with explained():
        return tpu_patrol()
