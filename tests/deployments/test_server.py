"""Podline's server answers nothing without the secret, orders events, lets writes wait, and forgets old flow runs."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from prefect.server.api.server import API_ROUTERS, create_app
from prefect.server.database.configurations import AioSqliteConfiguration
from prefect.server.events.ordering import CausalOrdering, EventArrivedEarly, memory
from prefect.server.events.schemas.events import ReceivedEvent
from prefect.settings import PREFECT_SERVER_API_AUTH_STRING, temporary_settings
from prefect.settings.models.server.services import ServerServicesDBVacuumSettings
from starlette.routing import Mount

from podline.deployments import event_order, server
from podline.settings.environment import server_environment

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
    assert re.fullmatch(rf"\S.* error: {variable} .*, expected USER:PASSWORD .*\n", done.stderr)


def told(order: type[CausalOrdering], *events: ReceivedEvent) -> list[uuid.UUID]:
    heard = []

    async def hear(event: ReceivedEvent, depth: int = 0) -> None:
        async with ordering.preceding_event_confirmed(hear, event, depth):
            heard.append(event.id)

    async def hear_all() -> None:
        for event in events:
            await hear(event)
        assert await ordering.get_lost_followers() == []

    memory.CausalOrdering.clear_all_scopes()
    ordering = order(scope="a test")
    asyncio.run(hear_all())
    return heard


def test_an_event_does_not_wait_for_one_that_never_comes_and_is_heard_of_once() -> None:
    """This fails if Prefect orders events otherwise."""
    given = {"occurred": "2026-01-01T00:00:00Z", "event": "prefect.flow-run.Crashed"}
    given["resource"] = {"prefect.resource.id": "prefect.flow-run.1"}
    crashed, begun_again = (
        ReceivedEvent.model_validate({**given, "id": uuid.UUID(int=number), "follows": uuid.UUID(int=number - 1)})
        for number in (2, 3)
    )
    for order in ([crashed, begun_again], [begun_again, crashed]):
        assert told(event_order.CausalOrdering, *order) == [each.id for each in order]
    with pytest.raises(EventArrivedEarly):
        told(memory.CausalOrdering, crashed)


async def _read_then_write(file: Path) -> str:
    """Read and write in one transaction of Prefect's, while another connection tries to write in between."""
    configuration = AioSqliteConfiguration(connection_url=f"sqlite+aiosqlite:///{file}")
    engine = await configuration.engine()
    async with await configuration.session(engine) as session, configuration.begin_transaction(session):
        await session.execute(sa.text("SELECT * FROM runs"))
        try:
            with sqlite3.connect(file, timeout=0) as other:
                other.execute("INSERT INTO runs VALUES (1)")
        except sqlite3.OperationalError as error:
            refused = str(error)
        else:
            refused = ""
        await session.execute(sa.text("INSERT INTO runs VALUES (2)"))
    return refused


def test_a_transaction_that_has_read_can_still_write(tmp_path: Path) -> None:
    """This fails if Prefect begins transactions on SQLite otherwise."""
    with sqlite3.connect(tmp_path / "prefect.db") as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE runs (number INTEGER)")
    server.lock_at_begin()
    try:
        # The other one has to wait: it, and not the transaction, is what meets the lock.
        assert "locked" in asyncio.run(_read_then_write(tmp_path / "prefect.db"))
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", server._immediate)
    with sqlite3.connect(tmp_path / "prefect.db") as database:
        assert database.execute("SELECT number FROM runs").fetchall() == [(2,)]


def test_flow_runs_go_90_days_after_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server_environment(tmp_path, "", "", {}).items():
        monkeypatch.setenv(name, value)
    kept = ServerServicesDBVacuumSettings()
    assert (kept.enabled, kept.retention_period) == ({"events", "flow_runs"}, timedelta(days=90))
