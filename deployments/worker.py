"""``podline worker``: Prefect's worker of a process pool, with a graceful end.

Prefect's worker, asked to end by SIGTERM, kills the processes of its runs, whose work since the last checkpoint is lost
and which look as if they crashed. This one takes up no further runs, has those that are under way save their work,
and puts them back into the queue.
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

from podline import settings
from podline.deployments import project_file
from podline.deployments.up import LEAVE_SECONDS
from podline.supervision import processes
from podline.tasks.runs.asking import require_named
from podline.tasks.runs.planned_stop import put_back

_RUN = "PREFECT__FLOW_RUN_ID"
_API_SECONDS = 10.0


def work(pool: str, name: str, *, until_input_ends: bool) -> None:
    """Take up the runs of a pool until SIGTERM.

    Args:
        pool: the work pool.
        name: what the UI calls the worker; empty names it after the machine.
        until_input_ends: end when standard input does, as it does when the parent is gone.

    Raises:
        SettingsError: no server is named.
    """
    require_named()
    # Its runs inherit it.
    settings.export(settings.HEARTBEAT)
    if project_file.is_installed():
        # Its runs work in temporary folders: a root that is relative would be gone with them.
        settings.keep_places()
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, lambda *_signal: _leave())
    if until_input_ends:
        processes.when_parent_goes(sys.stdin.fileno(), lambda: os.kill(os.getpid(), signal.SIGTERM))
    # Twice a minute it would tell each run that waits for its deployment's limit that it was "submitted" and "aborted".
    logging.getLogger("prefect.flow_runs.worker").setLevel(logging.WARNING)
    asyncio.run(ProcessWorker(work_pool_name=pool, name=name or f"podline on {socket.gethostname()}").start())


def _leave() -> None:
    """End the runs and this process. In the handler of the signal: meanwhile the worker's loop takes up no run."""
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, signal.SIG_IGN)
    started = processes.children(os.getpid())
    runs = {run for run in (processes.variable_of(process, _RUN) for process in started) if run}
    print(f"asked to end; runs in progress: {len(runs)}", flush=True)  # noqa: T201 (its log)
    processes.end(lambda: processes.children(os.getpid()), LEAVE_SECONDS)
    for process in processes.children(os.getpid()):
        processes.kill_group(process)
    # Those whose processes could not: they had not come so far, or took too long.
    putting_back = threading.Thread(target=_put_back, args=(runs,), daemon=True)
    putting_back.start()
    putting_back.join(_API_SECONDS)
    os._exit(0)


def _put_back(runs: set[str]) -> None:
    with get_client(sync_client=True) as client:
        for run in runs:
            with contextlib.suppress(httpx.HTTPError, ObjectNotFound):
                put_back(client, UUID(run))
