"""Which requests reach a Prefect server: by the name that they were sent to, and by the page that sent them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpx
import pytest
from prefect.settings import PREFECT_SERVER_API_AUTH_STRING, temporary_settings
from starlette.websockets import WebSocketDisconnect

from podline.deployments.guard import Guard, allowed, require_secret, url_of
from podline.deployments.server import application
from podline.errors import SettingsError

HERE = ("http://127.0.0.1:4200", "/api", "*", "https://nights.example/api")


async def inner(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "reached"})


def answer(*headers: tuple[str, str], kind: str = "http") -> dict[str, Any]:
    """The first message of the answer to a request with these headers."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    given = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    scope = {"type": kind, "method": "POST", "path": "/api/flows/", "headers": given}
    asyncio.run(Guard(inner, allowed(HERE))(scope, None, send))  # type: ignore[arg-type]
    return sent[0]


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:4200", "origin": "http://127.0.0.1:4200"},
        {"host": "127.0.0.1:4200", "origin": "http://localhost:4200"},
        {"host": "[::1]:4200", "origin": "http://[::1]:4200"},
        # Through a tunnel with another port at its end.
        {"host": "localhost:8080", "origin": "http://localhost:8080"},
        # Behind a proxy with TLS, which tells the name that it was asked by, or its own.
        {"host": "nights.example", "origin": "https://nights.example"},
        {"host": "127.0.0.1:4200", "origin": "https://nights.example"},
        # Another machine of the network.
        {"host": "10.0.0.7:4200", "origin": "http://10.0.0.7:4200"},
    ],
)
def test_what_is_asked_by_its_own_names_and_pages_is_answered(kind: str, headers: dict[str, str]) -> None:
    assert answer(*headers.items(), kind=kind) == {"type": "reached"}


@pytest.mark.parametrize(("kind", "error"), [("websocket", None), ("http", ValueError)])
def test_a_client_that_left_is_no_error_and_any_other_is_one(kind: str, error: type[Exception] | None) -> None:
    async def failing(_scope: Any, _receive: Any, _send: Any) -> None:
        raise error("a bug") if error else WebSocketDisconnect(1006)

    scope = {"type": kind, "method": "POST", "path": "/api/flows/", "headers": [(b"host", b"127.0.0.1:4200")]}
    answering = Guard(failing, allowed(HERE))(scope, None, None)  # type: ignore[arg-type]
    with pytest.raises(error) if error else contextlib.nullcontext():
        asyncio.run(answering)


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"host": "evil.example:4200"}, "Host"),
        ({"host": "localhost.evil.example"}, "Host"),
        ({"host": "[evil"}, "Host"),
        ({"host": "localhost:port"}, "Host"),
        ({}, "Host"),
        ({"host": "127.0.0.1:4200", "origin": "https://evil.example"}, "Origin"),
        ({"host": "127.0.0.1:4200", "origin": "http://127.0.0.1:8888"}, "Origin"),
        ({"host": "127.0.0.1:4200", "origin": "http://127.0.0.1:4200@evil.example"}, "Origin"),
        ({"host": "127.0.0.1:4200", "origin": "null"}, "Origin"),
        ({"host": "127.0.0.1:4200", "origin": "file://127.0.0.1:4200"}, "Origin"),
        ({"host": "127.0.0.1:4200", "origin": "http://nights.example"}, "Origin"),
    ],
)
def test_another_name_or_page_is_refused(headers: dict[str, str], problem: str) -> None:
    assert answer(*headers.items())["status"] == 403
    refused = answer(*headers.items(), kind="websocket")
    assert refused["type"] == "websocket.close"
    assert refused["reason"].startswith(f"{problem}: ")


def test_two_host_headers_are_refused_and_the_server_s_own_beginning_and_end_pass() -> None:
    assert answer(("host", "127.0.0.1:4200"), ("Host", "evil.example"))["status"] == 403
    assert answer(kind="lifespan") == {"type": "reached"}


def test_a_server_for_other_machines_wants_a_secret_and_has_an_address_for_its_own() -> None:
    for host in ("0.0.0.0", "::", "10.0.0.7", "nights.example"):  # noqa: S104 (to be refused)
        with pytest.raises(SettingsError, match=f"--host {host} without a secret.*PREFECT_SERVER_API_AUTH_STRING"):
            require_secret(host, "")
        require_secret(host, "night:shift")
    for host in ("127.0.0.1", "localhost", "::1"):
        require_secret(host, None)
    assert url_of("0.0.0.0", 4200) == "http://127.0.0.1:4200"  # noqa: S104 (a name of it)
    assert url_of("::1", 4200) == "http://[::1]:4200"
    assert url_of("nights.example", 80) == "http://nights.example"


DESCRIPTIONS = ("/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect")


async def _answers(secret: str, *paths: str) -> list[httpx.Response]:
    with temporary_settings({PREFECT_SERVER_API_AUTH_STRING: secret or None}):
        served = application("127.0.0.1", 4200)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="http://127.0.0.1:4200") as client:
        return [await client.get(path) for path in paths]


@pytest.mark.parametrize("secret", ["", "podline:secret"])
def test_the_description_of_the_api_is_for_those_who_have_the_secret(secret: str) -> None:
    *described, of_api = asyncio.run(_answers(secret, *DESCRIPTIONS, "/api/openapi.json"))
    for answer in described:
        is_told = answer.is_success and any(word in answer.text.lower() for word in ("openapi", "swagger"))
        assert is_told is not bool(secret), answer.url
    assert of_api.status_code == (401 if secret else 200)
