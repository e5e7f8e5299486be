"""Serves the pages of stores beside Prefect's UI: ``/podline/stores/<key>/runs/<run>/report.html``; read only.

The server's secret is asked for as HTTP Basic, which a browser asks its user for once. A page may do nothing but be
looked at: its policy allows no script, no form and no request, so whatever got into one has no way to Prefect's API.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import html
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from podline.deployments import served_stores
from podline.errors import ArtifactError, PodlineError
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.opening import open_store
from podline.store.sealed_text import INDEX
from podline.tasks.addresses import PREFIX, SIGN, Known

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".md": "text/markdown; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".webp": "image/webp",
    ".svg": "image/svg+xml",
}
"""What is served, by the end of the name."""
# Hidden files begin with a dot; a percent sign would be one that was encoded twice.
_PART = re.compile(r"\w[\w .,+=@~-]*")
# Dots, slashes and NUL need no encoding, or are none of a name's.
_DISGUISED = re.compile(rb"%(2e|2f|5c|00)", re.IGNORECASE)
_PIECE = 2**18
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # What a person opens in another tab is outside of the sandbox again.
        "sandbox allow-popups allow-popups-to-escape-sandbox allow-downloads",
    )
)
_HEADERS = {
    SIGN: "1",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": _POLICY,
    # No other server's page can have it as a picture or a script either.
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}


class _Found(NamedTuple):
    """A page: of which kind, of which content, and the content itself."""

    kind: str
    sha256: str
    bytes: int
    pieces: Iterator[bytes]


class Pages:
    """Answers what begins with :data:`~podline.tasks.addresses.PREFIX`, and hands on all else."""

    def __init__(self, app: ASGIApp, secret: str, base: str) -> None:
        """An application before another one.

        Args:
            app: gets what is none of the pages.
            secret: ``user:password``, without which nothing is answered; with an empty one anybody is.
            base: the path below which a proxy has the UI; pages are below it as well.
        """
        self._app, self._secret, self._base = app, secret, base.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, web socket or event of the server's life."""
        path = scope.get("path", "").removeprefix(self._base) if scope["type"] == "http" else ""
        if path != PREFIX.rstrip("/") and not path.startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        answer = await self._answer(Request(scope), path.removeprefix(PREFIX))
        answer.headers.update(_HEADERS)
        await answer(scope, receive, send)

    async def _answer(self, request: Request, path: str) -> Response:
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("pages are read only: GET or HEAD\n", 405, {"Allow": "GET, HEAD"})
        if not self._may(request.headers.get("Authorization", "")):
            asked = {"WWW-Authenticate": 'Basic realm="Podline", charset="UTF-8"'}
            return PlainTextResponse("the server's secret, user:password, is missing or another one\n", 401, asked)
        if _DISGUISED.search(request.scope.get("raw_path") or b""):
            return _missing("no page has such an address")
        match path.split("/"):
            case ["podline"]:  # without a slash at its end
                return _elsewhere("podline/")
            case [""]:
                return await _stores("")
            case ["nights", deployment]:
                key = await served_stores.key_of_deployment(deployment)
                return _elsewhere(f"../stores/{key}/{INDEX}") if key else await _stores("../")
            case ["stores", _key, ""]:
                return _elsewhere(INDEX)
            case ["stores", key, *parts]:
                return await self._page(request, key, parts)
        return _missing("no page has such an address")

    def _may(self, authorization: str) -> bool:
        if not self._secret:
            return True
        scheme, _, encoded = authorization.partition(" ")
        try:
            given = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            return False
        return scheme.lower() == "basic" and hmac.compare_digest(given, self._secret.encode())

    async def _page(self, request: Request, key: str, parts: list[str]) -> Response:
        known = await served_stores.named(key)
        if known is None:
            return _missing(f"no run has named a store {key} to this server")
        if not _is_page(parts):
            return _missing(f"pages, pictures and tables are served ({', '.join(KINDS)}), no hidden ones")
        try:
            found = await to_thread.run_sync(_look, known, "/".join(parts))
        except PodlineError as error:
            return PlainTextResponse(f"{error}\n", 502)
        if isinstance(found, str):
            return _missing(found)
        headers = {"ETag": f'"{found.sha256}"', "Content-Length": str(found.bytes), "Content-Type": found.kind}
        if headers["ETag"] in request.headers.get("If-None-Match", ""):
            return Response(status_code=304, headers={"ETag": headers["ETag"]})
        if request.method == "HEAD":
            return Response(headers=headers)
        return StreamingResponse(found.pieces, headers=headers)


def _is_page(parts: list[str]) -> bool:
    return all(map(_PART.fullmatch, parts)) and PurePosixPath(parts[-1]).suffix in KINDS


def _look(known: Known, name: str) -> _Found | str:
    """A page of a store, or a line that says why there is none; blocks."""
    store = open_store(known.uri)
    if isinstance(store, FolderStore):
        if not store.scratch.is_dir():
            return f"{store.where(name)} is not on this server's machine; it is on {known.machine}, where its run was"
        if not _leads_to_page(store.root, name):
            return _not_there(store, name)
    for last in (False, True):
        found = store.find(name)
        if found is None:
            return _not_there(store, name)
        try:
            sha256 = store.sha256(name, found)
            pieces = store.read_pieces(name, _PIECE, found.version)
            first = next(pieces, b"")
        except ArtifactError:  # it was published anew in between
            if last:
                raise
            continue
        return _Found(KINDS[PurePosixPath(name).suffix], sha256, found.bytes, chain([first], pieces))
    raise AssertionError


def _leads_to_page(root: Path, name: str) -> bool:
    """Whether a file, wherever links lead to, is a page of the same folder."""
    try:
        return _is_page([*(root / name).resolve(strict=True).relative_to(root.resolve()).parts])
    except (OSError, ValueError, RuntimeError):
        return False


def _not_there(store: Store, name: str) -> str:
    how = "; it is written when a run ends, and by `podline runs index`" if name == INDEX else ""
    return f"{store.where(name)} is not there{how}"


async def _stores(here: str) -> Response:
    """The way to the index of the only store, or a list of all.

    Args:
        here: the way from the asking page's folder to :data:`~podline.tasks.addresses.PREFIX`.
    """
    stores = await served_stores.all_named()
    if not stores:
        return _missing("no run has named its store to this server yet; one does when it ends")
    if len(stores) == 1:
        return _elsewhere(f"{here}stores/{next(iter(stores))}/{INDEX}")
    rows = (
        f'<li><a href="{here}stores/{key}/{INDEX}">{html.escape(known.uri)}</a></li>'
        for key, known in sorted(stores.items(), key=lambda store: store[1].uri)
    )
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Stores · Podline</title><h1>Stores</h1>'
    return HTMLResponse(f"{head}<ul>{''.join(rows)}</ul></html>\n")


def _elsewhere(place: str) -> Response:
    return Response(status_code=303, headers={"Location": place})


def _missing(line: str) -> Response:
    return PlainTextResponse(f"{line}\n", 404)
