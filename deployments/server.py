"""The server process: Prefect's application, which answers only requests with the secret.

``python -m podline.deployments.server`` starts it. With ``--listen-fd N`` it serves on a socket of the parent
process. With ``--until-input-ends`` it also ends with the parent, which holds the other end of standard input.

The UI keeps the secret in the browser's storage for its own address, and sends it by itself. So a page of another
server, or one whose name an attacker has redirected to this machine (DNS rebinding), has no secret to send.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from prefect.server.api.server import create_app
from prefect.settings import PREFECT_HOME, PREFECT_SERVER_API_AUTH_STRING, PREFECT_SERVER_API_KEEPALIVE_TIMEOUT
from sqlalchemy import Engine, event

from podline.base.errors import SettingsError
from podline.base.secret import checked
from podline.settings.environment import SERVER_SECRET
from podline.stages.supervision import processes
from podline.store.locks import locked


class _Server(uvicorn.Server):
    """A server that holds a lock while it creates or migrates its database; afterwards several servers may share it."""

    def __init__(self, config: uvicorn.Config, lock: Path) -> None:
        super().__init__(config)
        self._lock = lock

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application while no other server with the same home starts."""
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._lock):
            await super().startup(sockets)


def lock_at_begin() -> None:
    """Make all later SQLite transactions of this process take the write lock when they begin.

    Prefect begins a writing transaction with ``BEGIN DEFERRED``, which takes the write lock at the first write. If the
    transaction has read before, and another one has written meanwhile, SQLite refuses it at once ("database is
    locked"), regardless of the busy timeout. The answer is 503, and the data from the UI is lost. ``BEGIN IMMEDIATE``
    takes the lock at the beginning, and waits for it for up to 60 s, which Prefect sets. Prefect has no setting for it.

    Reads outside of transactions and PostgreSQL are not affected.
    """
    event.listen(Engine, "before_cursor_execute", _immediate, retval=True)


def _immediate(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> tuple[str, Any]:
    return ("BEGIN IMMEDIATE" if statement == "BEGIN DEFERRED" else statement), parameters


def main() -> None:
    """Serve until SIGTERM, or until the parent ends."""
    parser = argparse.ArgumentParser(prog="python -m podline.deployments.server", description=__doc__)
    parser.add_argument("--listen-fd", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=4200)
    parser.add_argument("--until-input-ends", action="store_true")
    arguments = parser.parse_args()
    # Only this user may access the files that it creates, above all the database.
    os.umask(0o077)
    sockets = None
    if arguments.until_input_ends:
        processes.when_parent_goes(sys.stdin.fileno(), lambda: os.kill(os.getpid(), signal.SIGTERM))
    if arguments.listen_fd is not None:
        listening = socket.socket(fileno=arguments.listen_fd)
        arguments.host, arguments.port = listening.getsockname()[:2]
        sockets = [listening]
    try:
        checked(PREFECT_SERVER_API_AUTH_STRING.value() or "", SERVER_SECRET)
    except SettingsError as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    lock_at_begin()
    config = uvicorn.Config(
        create_app(),
        host=arguments.host,
        port=arguments.port,
        lifespan="on",
        log_level=logging.ERROR,
        timeout_keep_alive=PREFECT_SERVER_API_KEEPALIVE_TIMEOUT.value(),
    )
    _Server(config, PREFECT_HOME.value() / "lock").run(sockets=sockets)


if __name__ == "__main__":
    main()
