"""A real PostgreSQL for the length of a test: a cluster in a folder of its own, with a password, on a free port."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from free_ports import free_ports

# Debian puts servers of several versions side by side, beside PATH.
_DEBIAN = Path("/usr/lib/postgresql")
_USER, _PASSWORD = "podline", "correct horse"


@contextlib.contextmanager
def postgres_url() -> Iterator[str]:
    """The address of its database, for SQLAlchemy's asyncpg; a test that needs one skips where there is none."""
    folders = sorted(_DEBIAN.glob("*/bin"), reverse=True)
    pg_ctl = shutil.which("pg_ctl", path=os.pathsep.join([os.environ.get("PATH", ""), *map(str, folders)]))
    if pg_ctl is None:
        pytest.skip(f"no pg_ctl on PATH nor in {_DEBIAN}/*/bin; install PostgreSQL to test with it")
    # Not in pytest's folder: PostgreSQL refuses to be root, and nobody else may look in there.
    with tempfile.TemporaryDirectory(prefix="podline-postgres-") as name:
        folder = Path(name)
        (folder / "password").write_text(_PASSWORD)
        for path in (folder, folder / "password"):
            _hand_over(path)
        auth = f"--auth=scram-sha-256 --username={_USER} --pwfile={folder}/password --no-sync"
        _do([pg_ctl, "initdb", "--pgdata", f"{folder}/data", "--options", auth])
        [port] = free_ports(1)
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        _do([pg_ctl, "start", "--pgdata", f"{folder}/data", "--log", f"{folder}/log", "--options", options, "--wait"])
        try:
            yield f"postgresql+asyncpg://{_USER}:{_PASSWORD.replace(' ', '%20')}@127.0.0.1:{port}/postgres"
        finally:
            _do([pg_ctl, "stop", "--pgdata", f"{folder}/data", "--mode", "immediate", "--wait"])


def _hand_over(path: Path) -> None:
    if os.geteuid() == 0:
        shutil.chown(path, "nobody")


def _do(command: list[str]) -> None:
    user = "nobody" if os.geteuid() == 0 else None
    done = subprocess.run(
        command, user=user, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
