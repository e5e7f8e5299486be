"""``podline worker``: Prefect's worker of a process pool, with a graceful end.

On SIGTERM, Prefect's worker kills the processes of its runs, which then appear to have crashed; their work since the
last checkpoint is lost. This worker accepts no more runs, lets the current runs save their work, and returns them to
the queue. Runs of other flows of the pool end as Crashed, as Prefect's worker leaves them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.workers.process import ProcessWorker

from podline.deployments import project_file
from podline.deployments.up import LEAVE_SECONDS
from podline.settings import environment
from podline.settings import machine as settings
from podline.stages.supervision import processes
from podline.tasks.server import require_named
from podline.tasks.stops import leave_by_worker

_RUN = "PREFECT__FLOW_RUN_ID"
_API_SECONDS = 10.0


def work(pool: str, name: str, *, until_input_ends: bool) -> None:
    """Run the queued runs of a pool until SIGTERM or SIGINT.

    Args:
        pool: the work pool.
        name: the worker's name in the UI; if empty, "podline on HOST".
        until_input_ends: whether to end with standard input, which closes when the parent ends.

    Raises:
        SettingsError: no server is named.
    """
    require_named()
    # The runs inherit it.
    environment.export(environment.HEARTBEAT)
    if project_file.is_installed():
        # The runs work in temporary folders, where a relative root would be lost.
        settings.keep_places()
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, lambda *_signal: _leave())
    if until_input_ends:
        processes.when_parent_goes(sys.stdin.fileno(), lambda: os.kill(os.getpid(), signal.SIGTERM))
    # Otherwise runs that wait for their deployment's limit would log "submitted" and "aborted" twice a minute.
    logging.getLogger("prefect.flow_runs.worker").setLevel(logging.WARNING)
    asyncio.run(ProcessWorker(work_pool_name=pool, name=name or f"podline on {socket.gethostname()}").start())


def _leave() -> None:
    """End the runs and this process. The signal handler calls this, so the worker's loop accepts no more runs."""
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, signal.SIG_IGN)
    started = processes.children(os.getpid())
    runs = {run for run in (processes.variable_of(process, _RUN) for process in started) if run}
    print(f"ending; runs in progress: {len(runs)}", flush=True)  # noqa: T201 (its log)
    processes.end(lambda: processes.children(os.getpid()), LEAVE_SECONDS)
    for process in processes.children(os.getpid()):
        processes.kill_group(process)
    # Return the runs whose processes could not do so themselves: they had just started, or took too long.
    putting_back = threading.Thread(target=_put_back, args=(runs,), daemon=True)
    putting_back.start()
    putting_back.join(_API_SECONDS)
    os._exit(0)


def _put_back(runs: set[str]) -> None:
    with get_client(sync_client=True) as client:
        for run in runs:
            with contextlib.suppress(httpx.HTTPError, ObjectNotFound):
                leave_by_worker(client, UUID(run))
