"""Runs a task's work on the TPU: waits for the lease, then shows what happened as a table on the run."""

from __future__ import annotations

import contextlib
from typing import Any

from prefect.artifacts import create_table_artifact

from podline.reporting.templates import markdown
from podline.store.opening import open_store
from podline.supervision.running import Turn
from podline.supervision.supervisor import Ending
from podline.tasks.node.tpu_lease import lease
from podline.tasks.runs.artifact_keys import key_of, recipe_of
from podline.tpu.clock import Clock, SystemClock
from podline.tpu.tpu_log import TpuLog
from podline.tpu.tpu_log_file import read_tpu_log
from podline.tpu_settings import TpuSettings

CLOCK: Clock = SystemClock()


def turn(tpu: TpuSettings) -> Turn:
    """The way to a flow run's turn at a TPU."""

    def enter(tpu_log: TpuLog, ending: Ending) -> contextlib.AbstractContextManager[object]:
        return lease(tpu_log, ending, CLOCK, tpu.limits.turn)

    return enter


def publish_tpu_log(spec: Any) -> None:
    """Puts what happened to the TPU on the run, as a table."""
    rows = TpuLog(read_tpu_log(open_store(spec.root), spec.folder)).rows()
    # A server that is away for a moment must not cost the stage its work, nor hide why it failed.
    with contextlib.suppress(Exception):
        if rows:
            about = f"What happened to the TPU of {spec.folder}"
            # Prefect's UI reads a table's cells as Markdown.
            cells = [{name: markdown(cell) for name, cell in row.items()} for row in rows]
            create_table_artifact(cells, key=key_of(recipe_of(spec.folder), "tpu"), description=about)
