"""Checks host names, origins and the secret of requests before Prefect handles them.

A secret protects against other people. This module protects against other servers' pages in the user's own browser: the
browser states the page's server in ``Origin``, and the requested server's name in ``Host``. A page whose name an
attacker has redirected to this machine (DNS rebinding) has the same origin as the server, but an unknown host name.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from podline.errors import SettingsError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
# A server that listens on all addresses can also be reached at these.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (not an address to listen at)
_POLICY_VIOLATION = 1008
_FORBIDDEN = 403


@dataclass(frozen=True)
class Allowed:
    """The host names and origins that a server accepts.

    Attributes:
        hosts: names in ``Host``, without a port. A numeric address needs no entry, since name servers cannot redirect
            it.
        origins: pages that may send requests, ``scheme://host:port``, in addition to the server's own pages.
    """

    hosts: frozenset[str]
    origins: frozenset[str]


def allowed(urls: Iterable[str]) -> Allowed:
    """Return the hosts and origins that a server accepts.

    Args:
        urls: addresses of the server and of pages that may send it requests; values without a host (``*``, ``/api``)
            are ignored.
    """
    hosts, origins = {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()}, set[str]()
    for url in map(_split, urls):
        if url is None or not url.hostname:
            continue
        hosts.add(url.hostname)
        # A page may be opened under one name of the loopback interface, and send requests to another.
        names = LOOPBACK if url.hostname in LOOPBACK else (url.hostname,)
        origins |= {_origin(url.scheme, name, url.port) for name in names}
    return Allowed(frozenset(hosts), frozenset(origins))


class Guard:
    """An application that forwards requests and web sockets, or refuses them with 403 and the reason."""

    def __init__(self, app: ASGIApp, allowed: Allowed) -> None:
        self._app, self._allowed = app, allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, a web socket or a lifespan event of the server."""
        problem = self._problem(scope) if scope["type"] in ("http", "websocket") else ""
        if not problem:
            # The client is gone, and Prefect does not handle it everywhere: uvicorn would write a traceback.
            with contextlib.suppress(WebSocketDisconnect):
                await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await PlainTextResponse(f"{problem}\n", _FORBIDDEN)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": problem})

    def _problem(self, scope: MutableMapping[str, Any]) -> str:
        """Return the reason to refuse a request; empty if there is none."""
        hosts, origins = (_headers(scope, name) for name in (b"host", b"origin"))
        host = _split(f"//{hosts[0]}") if len(hosts) == 1 else None
        if host is None or not self._known(host.hostname):
            return "Host: not a name of this server; set it in PREFECT_API_URL, PREFECT_UI_URL or PREFECT_UI_API_URL"
        # A browser sends it with every request that may change data, and with every web socket; other programs do not.
        if origins and not self._ours(origins, host):
            return "Origin: a page of another server; allow it in PREFECT_SERVER_CORS_ALLOWED_ORIGINS"
        return ""

    def _known(self, name: str | None) -> bool:
        return bool(name) and (name in self._allowed.hosts or _in_figures(str(name)))

    def _ours(self, origins: list[str], host: SplitResult) -> bool:
        """Return whether a page comes from this server, or is listed as allowed."""
        asking = _split(origins[0]) if len(origins) == 1 else None
        if asking is None or not asking.hostname:
            return False
        # Behind a TLS proxy, the page's scheme differs, and the names are the same.
        same = asking.scheme in ("http", "https") and asking.netloc.lower() == host.netloc.lower()
        return same or _origin(asking.scheme, asking.hostname, asking.port) in self._allowed.origins


def require_secret(host: str, secret: str | None) -> None:
    """Check that a server which other machines can reach has a secret.

    Raises:
        SettingsError: it has none.
    """
    if host not in LOOPBACK and not secret:
        raise SettingsError(
            f"--host {host} without a secret allows other machines to run any command here; set "
            "PREFECT_SERVER_API_AUTH_STRING, for example to podline:SECRET, or omit --host"
        )


def url_of(host: str, port: int) -> str:
    """Return a server's address on its own machine, without a path."""
    return _origin("http", _EVERYWHERE.get(host, host), port)


def _headers(scope: MutableMapping[str, Any], name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def _split(url: str) -> SplitResult | None:
    """Return the parts of an address; None if it is invalid."""
    try:
        parts = urlsplit(url.strip())
        _ = parts.port  # raises if it is not a number
    except ValueError:
        return None
    return parts


def _origin(scheme: str, name: str, port: int | None) -> str:
    host = f"[{name}]" if ":" in name else name
    is_default = port in (None, {"http": 80, "https": 443}.get(scheme))
    return f"{scheme}://{host}" if is_default else f"{scheme}://{host}:{port}"


def _in_figures(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
