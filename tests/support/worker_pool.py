"""A pool of Beam workers that see none of some folders, as if they were on a machine of their own."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from dask_cluster import start_apart
from free_ports import free_ports
from waiting import wait_until


@contextlib.contextmanager
def worker_pool(folder: Path, hidden: Path, more: Mapping[str, str]) -> Iterator[str]:
    """Yield the address of a pool of workers in an empty folder that do not see the files in ``hidden``."""
    [port] = free_ports(1)
    # The pool starts plain `python`.
    more = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **more}
    command = ("apache_beam.runners.worker.worker_pool_main", f"--service_port={port}")
    process = start_apart(folder, hidden, more, *command, alone=True)
    try:
        wait_until(lambda: _listens("127.0.0.1", port), log=folder / "log")
        yield f"127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait(240)


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True
