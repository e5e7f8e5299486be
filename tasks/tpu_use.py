"""One user of the TPU at a time across flows, and what happened to it as a table on the run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from prefect.artifacts import create_table_artifact
from prefect.client.orchestration import get_client
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.concurrency.sync import concurrency

from podline.errors import TpuSetupError
from podline.storage import open_store
from podline.tpu.clock import Clock, SystemClock
from podline.tpu.story import Story
from podline.tpu.story_file import read_story
from tasks.tpu_holder import known_as_holder

LIMIT = "tpu"
CLOCK: Clock = SystemClock()


@contextlib.contextmanager
def lease() -> Iterator[None]:
    """The body is the only user of the limit ``tpu``; one that is killed loses it when its lease runs out.

    A server that is away when the lease is to be renewed ends no training: on the TPU's machine the reservation still
    keeps others away.

    Raises:
        TpuSetupError: the server has no such limit.
    """
    try:
        with concurrency(LIMIT, occupy=1, strict=True, raise_on_lease_renewal_failure=False), known_as_holder():
            yield
    except ConcurrencySlotAcquisitionError as error:
        raise TpuSetupError(
            f"the Prefect server has no concurrency limit {LIMIT!r} ({error}); make it: "
            f"prefect global-concurrency-limit create {LIMIT} --limit 1"
        ) from error


def make_limit() -> None:
    """Has the server know the limit."""
    with get_client(sync_client=True) as client:
        client.upsert_global_concurrency_limit_by_name(LIMIT, 1)


def publish_story(spec: Any) -> None:
    """Puts what happened to the TPU on the run, as a table."""
    rows = Story(read_story(open_store(spec.root), spec.folder)).rows()
    if rows:
        create_table_artifact(rows, key="tpu", description=f"What happened to the TPU of {spec.folder}")
