"""Serves the pages of stores at separate addresses: ``/stores/<key>/runs/<run>/report.html``; read only.

``python -m podline.deployments.pages`` serves the stores in the settings (:func:`served`). It requires a secret of its
own by HTTP Basic, which a browser requests once from its user: whoever may read a report cannot start a run. A page's
policy forbids scripts, forms and requests, so injected content has no effect. A browser does not give answers
to pages of other servers.
"""

from __future__ import annotations

import argparse
import base64
import hmac
import html
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path, PurePosixPath

import uvicorn
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from podline.base.errors import PodlineError
from podline.base.secret import checked
from podline.settings import environment
from podline.stages.supervision import processes
from podline.store.contract import INDEX, SCRATCH, Store
from podline.store.folder import FolderStore
from podline.store.page_links import served

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
"""The content types that are served, by file suffix."""
# Hidden files begin with a dot; a percent sign would indicate double encoding.
_PART = re.compile(r"\w[\w .,+=@~-]*")
# Dots, slashes and NUL need no encoding, or cannot be part of a name.
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
        # Links that a person opens in another tab leave the sandbox.
        "sandbox allow-popups allow-popups-to-escape-sandbox allow-downloads",
    )
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": _POLICY,
    # Pages of other servers cannot embed an answer as a picture or script either.
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}


class Pages:
    """An ASGI application that serves the pages of stores."""

    def __init__(self, stores: Mapping[str, Store], secret: str) -> None:
        """Create the application.

        Args:
            stores: the stores to serve, by their keys in addresses; see :func:`podline.store.page_links.served`.
            secret: the secret that every request needs, ``user:password``.
        """
        self._stores, self._secret = stores, secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        answer = await self._answer(Request(scope))
        answer.headers.update(_HEADERS)
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("pages are read only: GET or HEAD\n", 405, {"Allow": "GET, HEAD"})
        if not self._may(request.headers.get("Authorization", "")):
            asked = {"WWW-Authenticate": 'Basic realm="Podline", charset="UTF-8"'}
            return PlainTextResponse("the secret of the pages, user:password, is missing or wrong\n", 401, asked)
        if _DISGUISED.search(request.scope.get("raw_path") or b""):
            return _missing("no page has this address")
        match request.scope["path"].split("/"):
            case ["", ""]:
                return self._index()
            case ["", "stores", _key, ""]:
                return _redirect(INDEX)
            case ["", "stores", key] if key in self._stores:
                return _redirect(f"{key}/{INDEX}")
            case ["", "stores", key, *parts] if key in self._stores:
                return await _page(self._stores[key], request, parts)
            case ["", "stores", key, *_parts]:
                return _missing(f"store {key} is not served; the settings root and pages.stores name the served stores")
        return _missing("no page has this address")

    def _index(self) -> Response:
        """Redirect to the index of a single store, or list several stores."""
        if len(self._stores) == 1:
            return _redirect(f"stores/{next(iter(self._stores))}/{INDEX}")
        rows = (
            f'<li><a href="stores/{key}/{INDEX}">{html.escape(store.uri)}</a></li>'
            for key, store in self._stores.items()
        )
        head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Stores · Podline</title><h1>Stores</h1>'
        return HTMLResponse(f"{head}<ul>{''.join(rows)}</ul></html>\n")

    def _may(self, authorization: str) -> bool:
        scheme, _, encoded = authorization.partition(" ")
        try:
            given = base64.b64decode(encoded, validate=True)
        except ValueError:  # it is not base64, or not even ASCII
            return False
        return scheme.lower() == "basic" and hmac.compare_digest(given, self._secret.encode())


async def _page(store: Store, request: Request, parts: list[str]) -> Response:
    if not _is_page(parts):
        return _missing(f"only pages, pictures and tables are served ({', '.join(KINDS)}), and no hidden files")
    try:
        found = await to_thread.run_sync(_look, store, "/".join(parts))
    except PodlineError as error:
        return PlainTextResponse(f"{error}\n", 502)
    if isinstance(found, str):
        return _missing(found)
    length, pieces = found
    headers = {"Content-Length": str(length), "Content-Type": KINDS[PurePosixPath(parts[-1]).suffix]}
    return Response(headers=headers) if request.method == "HEAD" else StreamingResponse(pieces, headers=headers)


def _is_page(parts: list[str]) -> bool:
    return all(map(_PART.fullmatch, parts)) and PurePosixPath(parts[-1]).suffix in KINDS


def _look(store: Store, name: str) -> tuple[int, Iterator[bytes]] | str:
    """Return a page's size and content, or the reason why it is missing; this call blocks."""
    if isinstance(store, FolderStore):
        if not (store.root / SCRATCH).is_dir():
            return f"{store.uri} is not a store on this machine; its pages are served on the machine with its folder"
        if not _leads_to_page(store.root, name):
            return _not_there(store, name)
    found = store.find(name)
    if found is None:
        return _not_there(store, name)
    pieces = store.read_pieces(name, _PIECE, found.version)
    # An unreadable page fails here, before the answer begins.
    return found.bytes, chain([next(pieces, b"")], pieces)


def _leads_to_page(root: Path, name: str) -> bool:
    """Return whether a file, after links are resolved, is a page in the same folder; `runs` itself may be a link."""
    above = ("runs",) if name.startswith("runs/") else ()
    try:
        below = (root / name).resolve(strict=True).relative_to(root.joinpath(*above).resolve())
        return _is_page([*above, *below.parts])
    except (OSError, ValueError, RuntimeError):
        return False


def _not_there(store: Store, name: str) -> str:
    how = "; it is written at the end of a run, and by `podline runs nights`" if name == INDEX else ""
    return f"{store.where(name)} is not there{how}"


def _redirect(place: str) -> Response:
    return Response(status_code=303, headers={"Location": place})


def _missing(line: str) -> Response:
    return PlainTextResponse(f"{line}\n", 404)


def main() -> None:
    """Serve until SIGTERM, or with ``--until-input-ends`` until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m podline.deployments.pages", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=4201)
    parser.add_argument("--until-input-ends", action="store_true", help="end when standard input ends")
    arguments = parser.parse_args()
    if arguments.until_input_ends:
        processes.when_parent_goes(sys.stdin.fileno(), lambda: os.kill(os.getpid(), signal.SIGTERM))
    try:
        app = Pages(served(), checked(environment.value_of(environment.PAGES_SECRET), environment.PAGES_SECRET))
    except PodlineError as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    uvicorn.run(app, host=arguments.host, port=arguments.port, lifespan="off", log_level="error")


if __name__ == "__main__":
    main()
