"""Prefect's application as Podline's server runs it: without the secret, none of its routes answers."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prefect.server.api.server import API_ROUTERS, create_app
from prefect.settings import PREFECT_SERVER_API_AUTH_STRING, temporary_settings
from starlette.routing import Mount

SECRET, WRONG = ("night", "shift-7421"), ("night", "shift-742")
# Probes, and what every copy of Prefect says of itself: its API in words, and where the UI finds it.
OPEN = {"/api/health", "/api/ready", "/ui-settings", "/docs", "/docs/oauth2-redirect", "/openapi.json", "/redoc"}


@pytest.fixture(scope="module")
def served() -> Iterator[Any]:
    with temporary_settings({PREFECT_SERVER_API_AUTH_STRING: ":".join(SECRET)}):
        yield create_app()


def _routes() -> list[Any]:
    """The routes of the API, which its application has behind a private class."""
    return [route for router in API_ROUTERS for route in router.routes]


def _requests(served: Any) -> list[tuple[str, str]]:
    """The method and the path of every request that the application answers."""
    mounted = [(mount.path, mount.routes) for mount in served.routes if isinstance(mount, Mount)]
    groups = [("", served.routes), *mounted, ("/api", _routes())]
    return [
        (method, prefix + re.sub(r"\{[^}]*\}", str(uuid.UUID(int=1)), route.path))
        for prefix, routes in groups
        for route in routes
        for method in sorted(getattr(route, "methods", None) or ())
    ]


def test_without_the_secret_no_route_answers(served: Any) -> None:
    async def asked(auth: tuple[str, str] | None, requests: list[tuple[str, str]]) -> dict[str, int]:
        transport = httpx.ASGITransport(served)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:4200", auth=auth) as client:
            return {path: (await client.request(method, path)).status_code for method, path in requests}

    requests = _requests(served)
    assert len(requests) > 200
    answers = asyncio.run(asked(None, requests))
    assert {path for path, code in answers.items() if code != httpx.codes.UNAUTHORIZED} <= OPEN
    some = [("GET", "/api/admin/version"), ("GET", "/api/openapi.json")]
    assert set(asyncio.run(asked(WRONG, some)).values()) == {httpx.codes.UNAUTHORIZED}
    assert set(asyncio.run(asked(SECRET, some)).values()) == {httpx.codes.OK}


def _heard(served: Any, path: str, subprotocols: list[str], first: dict[str, str]) -> list[str]:
    """The types of the messages by which a websocket answers to a first message."""
    coming = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": json.dumps(first)}]
    sent: list[str] = []

    async def receive() -> dict[str, Any]:
        return coming.pop(0) if coming else {"type": "websocket.disconnect", "code": 1000}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    scope = {"type": "websocket", "path": path, "query_string": b"", "headers": [], "subprotocols": subprotocols}
    scope["headers"] = [(b"sec-websocket-protocol", each.encode()) for each in subprotocols]
    asyncio.run(served(scope, receive, send))
    return sent


def test_nor_does_any_websocket(served: Any) -> None:
    paths = [f"/api{route.path}" for route in _routes() if not hasattr(route, "methods")]
    assert len(paths) >= 3
    for path in paths:
        assert _heard(served, path, [], {}) == ["websocket.close"]
        for first in ({"type": "auth", "token": ":".join(WRONG)}, {"type": "auth"}, {"type": "subscribe"}):
            assert _heard(served, path, ["prefect"], first) == ["websocket.accept", "websocket.close"]
        right = {"type": "auth", "token": ":".join(SECRET)}
        assert "websocket.send" in _heard(served, path, ["prefect"], right)


@pytest.mark.parametrize(("module", "secret"), [("server", "nächte:shift"), ("pages", "no-colon"), ("pages", "")])
def test_without_a_secret_that_works_nothing_is_served(module: str, secret: str) -> None:
    variable = {"server": "PREFECT_SERVER_API_AUTH_STRING", "pages": "PODLINE_PAGES_SECRET"}[module]
    done = subprocess.run(
        [sys.executable, "-m", f"podline.deployments.{module}"],
        env={variable: secret},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert re.fullmatch(rf"\S.* error: got .* in {variable}, expected USER:PASSWORD .*\n", done.stderr)
