"""A pool of Beam workers that see none of some folders, as if they were on a machine of their own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from dask_cluster import ALONE
from free_ports import free_ports


@contextlib.contextmanager
def worker_pool(folder: Path, hidden: Path, more: Mapping[str, str]) -> Iterator[str]:
    """Yield the address of a pool that is gone, with all that it started, when the body ends.

    Args:
        folder: an empty one, for the log and for what workers write.
        hidden: what workers must not see.
        more: variables of the workers' environment.
    """
    folder.mkdir(parents=True)
    [port] = free_ports(1)
    own = {"HIDDEN": str(hidden), "PODLINE_STORE_CACHE": str(folder / "cache"), "HOME": str(folder)}
    # The pool starts plain `python`.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    apart = ("unshare", "-m", "--propagation", "private", "sh", "-c", ALONE, "sh")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*apart, sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}"],
            env={**os.environ, "PATH": path, **own, **more},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 240
        while not _listens("127.0.0.1", port):
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.1)
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
