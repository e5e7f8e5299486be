"""The server process: Prefect's application behind :mod:`podline.deployments.guard`.

``python -m podline.deployments.server`` starts it. With ``--listen-fd N`` it serves on a socket of the parent
process. With ``--until-input-ends`` it also ends with the parent, which holds the other end of standard input.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from prefect.server.api.server import create_app
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_HOME,
    PREFECT_SERVER_API_AUTH_STRING,
    PREFECT_SERVER_API_KEEPALIVE_TIMEOUT,
    PREFECT_SERVER_CORS_ALLOWED_ORIGINS,
    PREFECT_UI_API_URL,
    PREFECT_UI_URL,
    temporary_settings,
)
from starlette.routing import Mount
from starlette.types import ASGIApp

from podline.deployments.guard import Guard, allowed, require_secret, url_of
from podline.deployments.sqlite_writes import lock_at_begin
from podline.errors import SettingsError
from podline.store.locks import locked
from podline.supervision import processes

_ANY_PAGE = "*"


class _Server(uvicorn.Server):
    """A server that creates and migrates its database exclusively, though several may share it afterwards."""

    def __init__(self, config: uvicorn.Config, lock: Path) -> None:
        super().__init__(config)
        self._lock = lock

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application while no other server with the same home starts."""
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._lock):
            await super().startup(sockets)


def application(host: str, port: int) -> ASGIApp:
    """Return Prefect's application for its own pages and those in PREFECT_SERVER_CORS_ALLOWED_ORIGINS.

    Args:
        host: the address that it listens on.
        port: the port that it listens on.
    """
    listed = [origin.strip() for origin in PREFECT_SERVER_CORS_ALLOWED_ORIGINS.value().split(",")]
    named = (PREFECT_API_URL.value(), PREFECT_UI_URL.value(), PREFECT_UI_API_URL.value())
    ours = allowed([url_of(host, port), *listed, *(url for url in named if url)])
    # Prefect's default allows all pages.
    origins = ",".join(sorted(ours.origins)) if _ANY_PAGE in listed else PREFECT_SERVER_CORS_ALLOWED_ORIGINS.value()
    with temporary_settings({PREFECT_SERVER_CORS_ALLOWED_ORIGINS: origins}):
        served = create_app()
    if PREFECT_SERVER_API_AUTH_STRING.value():
        _close_descriptions(served)
    return Guard(served, ours)


def _close_descriptions(app: FastAPI) -> None:
    """Remove /docs and /openapi.json, which Prefect serves without the secret; the copies below /api require it."""
    ui = [
        each.app for each in app.routes if isinstance(each, Mount) and not each.path and isinstance(each.app, FastAPI)
    ]
    for each in (app, *ui):
        described = {each.docs_url, each.redoc_url, each.openapi_url, each.swagger_ui_oauth2_redirect_url}
        each.router.routes[:] = [route for route in each.routes if getattr(route, "path", None) not in described]


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
        require_secret(arguments.host, PREFECT_SERVER_API_AUTH_STRING.value())
    except SettingsError as error:
        parser.error(str(error))
    lock_at_begin()
    config = uvicorn.Config(
        application(arguments.host, arguments.port),
        host=arguments.host,
        port=arguments.port,
        lifespan="on",
        log_level=logging.ERROR,
        timeout_keep_alive=PREFECT_SERVER_API_KEEPALIVE_TIMEOUT.value(),
    )
    _Server(config, PREFECT_HOME.value() / "lock").run(sockets=sockets)


if __name__ == "__main__":
    main()
