"""A Dask cluster, and a pool of Beam workers, whose processes see no folder of the machine that starts a job."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from free_ports import free_ports
from waiting import wait_until

# Of a worker: nothing of the folders in HIDDEN is there. The shell mounts empty ones in a namespace of its own.
ALONE = 'for folder in $HIDDEN; do mount -t tmpfs none "$folder"; done; exec "$@"'


class Cluster(NamedTuple):
    """A scheduler's address, its process and those of the workers; a worker has one process, without a nanny."""

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]

    @property
    def engine(self) -> str:
        return f"dask:{self.address}"


def can_unshare() -> bool:
    """Whether processes can be started that see other folders than this one."""
    return subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


def start_apart(
    folder: Path, hidden: Path, more: Mapping[str, str], *command: str, alone: bool
) -> subprocess.Popen[bytes]:
    """Start a module in a folder, with its log, home and cache there; ``alone``, it sees nothing of what is hidden."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {"HOME": str(folder), "PODLINE_STORE_CACHE": str(folder / "cache"), "HIDDEN": str(hidden), **more}
    apart = ("unshare", "-m", "--propagation", "private", "sh", "-c", ALONE, "sh") if alone else ()
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [*apart, sys.executable, "-m", *command],
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@contextlib.contextmanager
def cluster(
    folder: Path, hidden: Path, *, workers: int = 2, more: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Start a cluster in an empty folder; its workers do not see the files in ``hidden``, if namespaces can be made."""
    folder.mkdir(parents=True)
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *command: str, alone: bool = False) -> subprocess.Popen[bytes]:
        started.append(start_apart(folder / name, hidden, more or {}, *command, alone=alone))
        return started[-1]

    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    try:
        scheduler = start(
            "scheduler", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"
        )
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "0", "--death-timeout", "60")
        several = [
            start(f"worker{number}", "distributed.cli.dask_worker", address, *options, alone=can_unshare())
            for number in range(workers)
        ]
        for number in range(workers):
            log = folder / f"worker{number}" / "log"
            wait_until(lambda log=log: "Registered to" in log.read_text(), log=log)
        yield Cluster(address, scheduler, several)
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait(240)


@contextlib.contextmanager
def worker_pool(folder: Path, hidden: Path, more: Mapping[str, str]) -> Iterator[str]:
    """Yield the address of a pool of workers in an empty folder that do not see the files in ``hidden``."""
    [port] = free_ports(1)
    # The pool starts plain `python`.
    more = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **more}
    command = ("apache_beam.runners.worker.worker_pool_main", f"--service_port={port}")
    process = start_apart(folder, hidden, more, *command, alone=True)
    try:
        wait_until(lambda: _listens(port), log=folder / "log")
        yield f"127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait(240)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
