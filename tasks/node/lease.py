"""The lease on a TPU node among flows on different machines: Prefect's concurrency limit ``tpu-NODE``, of one slot.

On one machine, users take turns by :mod:`podline.tpu.turn`. The lease keeps flows of several machines from repairing a
node at the same time. Prefect renews it while this process lives, and frees it two minutes after the process has died.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import httpx
from prefect.artifacts import create_table_artifact
from prefect.client.orchestration import get_client
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.concurrency.sync import concurrency
from prefect.logging import get_run_logger

from podline.errors import TpuInUseError
from podline.reporting.templates import markdown
from podline.store.opening import open_store
from podline.tasks.runs.artifact_keys import key_of, recipe_of
from podline.tpu.clock import Clock, SystemClock, in_words
from podline.tpu.tpu_log import TURN, TpuLog, read_tpu_log, rows
from podline.tpu_settings import TpuSettings

CLOCK: Clock = SystemClock()
_SECONDS = 120.0  # Prefect's servers allow no less than 60
_ASK_SECONDS = 5.0


def limit_of(node: str) -> str:
    """Return the name of a node's concurrency limit."""
    return f"tpu-{node}"


@contextlib.contextmanager
def turn_at(tpu: TpuSettings, spec: Any) -> Iterator[None]:
    """Run the body while no other flow uses the node; where models run here, the gate alone takes turns.

    Args:
        tpu: the node, and how long to wait.
        spec: the stage's, whose TPU log tells what was waited for.

    Raises:
        TpuInUseError: the turn did not come.
    """
    with contextlib.ExitStack() as stack:
        if tpu.placement == "node":
            tpu_log = TpuLog(get_run_logger().info, open_store(spec.root), spec.folder)
            _wait_for(stack, tpu, tpu_log)
        yield


def _wait_for(stack: contextlib.ExitStack, tpu: TpuSettings, tpu_log: TpuLog) -> None:
    deadline = time.monotonic() + tpu.limits.turn
    while True:
        try:
            stack.enter_context(lease(tpu.node))
        except (TpuInUseError, httpx.HTTPError) as error:
            why = str(error) if isinstance(error, TpuInUseError) else "the Prefect server does not answer"
            if time.monotonic() >= deadline:
                raise TpuInUseError(f"{why}, for {in_words(tpu.limits.turn)} now") from error
            tpu_log.waited(CLOCK.now(), f"{TURN}: {why}", _ASK_SECONDS)
            time.sleep(_ASK_SECONDS)
        else:
            return


@contextlib.contextmanager
def lease(node: str) -> Iterator[None]:
    """Run the body with the lease; a server that is away meanwhile ends nothing.

    Raises:
        TpuInUseError: another run has it.
        httpx.HTTPError: the server does not answer.
    """
    name = limit_of(node)
    with get_client(sync_client=True) as client:
        client.upsert_global_concurrency_limit_by_name(name, 1)
    stack = contextlib.ExitStack()
    try:
        # No retries of Prefect's: it would wait without a word.
        stack.enter_context(
            concurrency(name, max_retries=0, lease_duration=_SECONDS, strict=True, raise_on_lease_renewal_failure=False)
        )
    except ConcurrencySlotAcquisitionError as error:
        raise TpuInUseError(f"another run has the node {node}") from error
    try:
        yield
    finally:
        with contextlib.suppress(httpx.HTTPError):  # then it ends by itself
            stack.close()


def publish_tpu_log(spec: Any) -> None:
    """Put what happened to the TPU on the run, as a table."""
    # A server that is away for a moment must not cost the stage its work, nor hide why it failed.
    with contextlib.suppress(Exception):
        if found := rows(read_tpu_log(open_store(spec.root), spec.folder)):
            # Prefect's UI reads a table's cells as Markdown.
            cells = [{name: markdown(cell) for name, cell in row.items()} for row in found]
            about = f"What happened to the TPU of {spec.folder}"
            create_table_artifact(cells, key=key_of(recipe_of(spec.folder), "tpu"), description=about)
