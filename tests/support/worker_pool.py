"""A pool of Beam workers in namespaces of its own: of mounts, and where it can be made, of the network."""

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


@contextlib.contextmanager
def worker_pool(folder: Path, hidden: Path, more: Mapping[str, str]) -> Iterator[str]:
    """The address of a pool that is gone when the body ends.

    Args:
        folder: an empty one, for the log and for what workers write.
        hidden: what workers must not see.
        more: variables of the workers' environment.
    """
    folder.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}"]
    own = {"HIDDEN": str(hidden), "PODLINE_STORE_CACHE": str(folder / "cache"), "HOME": str(folder)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", ALONE, "sh", *command],
            # The pool starts plain `python`.
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **own, **more},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(port)
        yield f"localhost:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait(240)


def _wait(port: int) -> None:
    deadline = time.monotonic() + 240
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return
