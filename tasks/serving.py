"""What :mod:`tasks.own_server` starts: ``python -m tasks.serving --listen-fd N --lock FILE`` is a Prefect server.

The parent holds the other end of standard input: when that end closes, for whatever reason, this process ends.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import socket
import sys
from pathlib import Path

import uvicorn

from podline import processes

_FACTORY = "prefect.server.api.server:create_app"


class _Server(uvicorn.Server):
    """A server that makes and migrates its database alone, though several may share it afterwards."""

    def __init__(self, config: uvicorn.Config, lock: Path) -> None:
        super().__init__(config)
        self._lock = lock

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the application while no other server of the same home does."""
        with self._lock.open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            await super().startup(sockets)


def main() -> None:
    """Serves until SIGTERM, or until the parent is gone."""
    parser = argparse.ArgumentParser(prog="python -m tasks.serving", description=__doc__)
    parser.add_argument("--listen-fd", type=int, required=True)
    parser.add_argument("--lock", type=Path, required=True)
    arguments = parser.parse_args()
    processes.when_parent_goes(sys.stdin.fileno(), lambda: os.kill(os.getpid(), signal.SIGTERM))
    listening = socket.socket(fileno=arguments.listen_fd)
    config = uvicorn.Config(_FACTORY, factory=True, lifespan="on", log_level="error")
    _Server(config, arguments.lock).run(sockets=[listening])


if __name__ == "__main__":
    main()
