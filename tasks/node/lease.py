"""The lease on a TPU node among flows on different machines: Prefect's concurrency limit ``tpu-NODE``, of one slot.

Users on one machine take turns by :mod:`podline.tpu.turn`. The lease prevents flows on several machines from repairing
a node at the same time. Prefect renews it while this process lives, and frees it two minutes after the process's death.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import httpx
from prefect.artifacts import create_table_artifact
from prefect.client.orchestration import get_client
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.concurrency.sync import concurrency

from podline.errors import TpuInUseError
from podline.figures import duration
from podline.reporting.escaping import markdown
from podline.supervision.running import Runner
from podline.supervision.supervisor import run_stage
from podline.tasks.node.node_run import run_on_node
from podline.tasks.runs.names import key_of, recipe_of
from podline.tpu.clock import SYSTEM_CLOCK
from podline.tpu.tpu_log import TURN, TpuLog, rows
from podline.tpu_settings import TpuSettings

_SECONDS = 120.0  # Prefect's servers allow no less than 60
_ASK_SECONDS = 5.0


def limit_of(node: str) -> str:
    """Return the name of a node's concurrency limit."""
    return f"tpu-{node}"


@contextlib.contextmanager
def placed(tpu: TpuSettings, tpu_log: TpuLog) -> Iterator[Runner]:
    """Yield the function that runs a stage here or on the node, exclusively; finally publish the TPU log.

    If models run on this machine, only the gate is used.

    Args:
        tpu: settings with the node and the patience.
        tpu_log: gets the reasons for waiting.

    Raises:
        TpuInUseError: the lease was not available in time.
    """
    try:
        with contextlib.ExitStack() as stack:
            if tpu.placement == "node":
                _wait_for(stack, tpu, tpu_log)
                yield run_on_node
            else:
                yield run_stage
    finally:
        _publish(tpu_log)


def _wait_for(stack: contextlib.ExitStack, tpu: TpuSettings, tpu_log: TpuLog) -> None:
    deadline = time.monotonic() + tpu.limits.turn
    while True:
        try:
            stack.enter_context(lease(tpu.node))
        except (TpuInUseError, httpx.HTTPError) as error:
            why = str(error) if isinstance(error, TpuInUseError) else "the Prefect server does not answer"
            if time.monotonic() >= deadline:
                raise TpuInUseError(f"{why}, for {duration(tpu.limits.turn)} now") from error
            tpu_log.waited(SYSTEM_CLOCK.now(), f"{TURN}: {why}", _ASK_SECONDS)
            time.sleep(_ASK_SECONDS)
        else:
            return


@contextlib.contextmanager
def lease(node: str) -> Iterator[None]:
    """Run the body with the lease; an unavailable server during the body is ignored.

    Raises:
        TpuInUseError: another run has the lease.
        httpx.HTTPError: the server does not answer.
    """
    name = limit_of(node)
    with get_client(sync_client=True) as client:
        client.upsert_global_concurrency_limit_by_name(name, 1)
    stack = contextlib.ExitStack()
    try:
        # Without Prefect's own retries, which would wait without a message.
        stack.enter_context(
            concurrency(name, max_retries=0, lease_duration=_SECONDS, strict=True, raise_on_lease_renewal_failure=False)
        )
    except ConcurrencySlotAcquisitionError as error:
        raise TpuInUseError(f"another run has the node {node}") from error
    try:
        yield
    finally:
        with contextlib.suppress(httpx.HTTPError):  # the lease then expires
            stack.close()


def _publish(tpu_log: TpuLog) -> None:
    """Put the TPU log on the run as a table."""
    # An unavailable server must not fail the stage, nor hide its error.
    with contextlib.suppress(Exception):
        # Prefect's UI reads a table's cells as Markdown.
        cells = [{name: markdown(cell) for name, cell in row.items()} for row in rows(tpu_log.entries)]
        about = f"What happened to the TPU of {tpu_log.folder}"
        create_table_artifact(cells, key=key_of(recipe_of(tpu_log.folder), "tpu"), description=about)
