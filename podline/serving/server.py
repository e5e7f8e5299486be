"""Serves a recipe's champion over HTTP, for trying it out: ``POST /v1/models/RECIPE:predict``."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from podline.data.picture_sandbox import PictureFile, PictureSandbox
from podline.errors import SourceError
from podline.serving.model import Champion, Follower, Images
from podline.store.contract import Store

MAX_BODY = 16 * 2**20
"""Largest size of a request's body, in bytes."""
MAX_CONNECTIONS = 128
"""Largest number of open connections; further requests get status 503."""
MAX_IMAGES = 128
"""Images of a request."""
MAX_PIXELS = 4_000_000
"""Largest number of pixels of a request's images at the model's size."""

_HEAD_SECONDS, _BODY_SECONDS, _GRACE_SECONDS = 10, 30.0, 30
_THREADS = 4


class Server:
    """The HTTP application with its champion and sandboxes."""

    def __init__(self, follower: Follower, pictures: PictureSandbox, log: Callable[[str], None]) -> None:
        self._follower, self._pictures, self._log = follower, pictures, log
        self._threads = ThreadPoolExecutor(_THREADS, "predict")

    def run(self, recipe: str, listening: socket.socket) -> None:
        """Serve until SIGTERM or SIGINT; requests in progress are answered."""
        model = f"/v1/models/{recipe}"
        application = Starlette(
            routes=[Route(model, self._status), Route(f"{model}:predict", self._predict, methods=["POST"])],
            exception_handlers={HTTPException: _refusal, Exception: _failure},
            lifespan=self._lifespan,
        )
        config = uvicorn.Config(
            application,
            http="h11",
            log_level=logging.ERROR,
            limit_concurrency=MAX_CONNECTIONS + 1,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        self._server = uvicorn.Server(config)
        for each in (signal.SIGTERM, signal.SIGINT):
            # uvicorn handles these signals while it runs, and then raises them again; a requested stop is no failure.
            signal.signal(each, lambda *_: None)
        self._server.run(sockets=[listening])

    @contextlib.asynccontextmanager
    async def _lifespan(self, _application: Starlette) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._follow()), group.create_task(self._close_silent())]
            yield
            for task in tasks:
                task.cancel()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(1)
            if line := await asyncio.to_thread(self._follower.refresh):
                self._log(line)

    async def _close_silent(self) -> None:
        """Close connections without a next request; uvicorn's time-out only covers the wait for a head's first byte."""
        seconds: dict[Any, int] = {}
        while True:
            await asyncio.sleep(1)
            connections: Any = self._server.server_state.connections
            silent = [(each, each.cycle) for each in connections if each.cycle is None or each.cycle.response_complete]
            seconds = {each: seconds.get(each, 0) + 1 for each in silent}
            for connection, _ in (each for each, count in seconds.items() if count > _HEAD_SECONDS):
                connection.transport.abort()

    async def _status(self, request: Request) -> Response:
        entry, name = self._follower.champion.entry, request.url.path.removeprefix("/v1/models/")
        found = {"name": name, "ready": True, "number": entry.number, "run": entry.run}
        return JSONResponse({**found, "problem": self._follower.problem})

    async def _predict(self, request: Request) -> Response:
        body, champion = await _body(request), self._follower.champion
        answer = await asyncio.get_running_loop().run_in_executor(self._threads, self._predictions, body, champion)
        return Response(answer, media_type="application/json")

    def _predictions(self, body: bytes, champion: Champion) -> str:
        images = images_of(body, champion.shape, lambda files: self._pictures.decode(files, champion.form))
        return json.dumps({"predictions": champion.predictions(images)})


def images_of(body: bytes, shape: tuple[int, ...], decode: Callable[[list[PictureFile]], list[Images]]) -> Images:
    """Return the images (n, height, width, channels) of a request's body.

    Raises:
        HTTPException: the images are missing, too many, or of another shape or type.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from None
    values = document.get("instances") if isinstance(document, dict) else None
    if not isinstance(values, list) or not values or len(document) != 1:
        raise HTTPException(400, 'got another body, expected {"instances": [IMAGE, ...]} with at least one image')
    most = max(1, min(MAX_IMAGES, MAX_PIXELS // (shape[0] * shape[1])))
    if len(values) > most:
        raise HTTPException(400, f"got {len(values):,} images, expected at most {most}; send fewer at once")
    files = {at: _file(value, f"instances[{at}]") for at, value in enumerate(values) if isinstance(value, dict)}
    images = {at: _pixels(value, f"instances[{at}]", shape) for at, value in enumerate(values) if at not in files}
    try:
        images |= zip(files, decode(list(files.values())) if files else [], strict=True)
    except SourceError as error:
        raise HTTPException(400, str(error)) from None
    return np.stack([images[at] for at in range(len(values))])


def _file(value: dict[str, Any], where: str) -> PictureFile:
    try:
        return PictureFile(where, base64.b64decode(value["b64"], validate=True))
    except (KeyError, TypeError, ValueError):
        raise HTTPException(400, f'{where}: got another object, expected {{"b64": BASE64 OF A PICTURE}}') from None


def _pixels(value: Any, where: str, shape: tuple[int, ...]) -> Images:
    try:
        found = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise HTTPException(400, f"{where} is not an array of the shape {shape}: {error}") from None
    if found.shape != shape:
        raise HTTPException(400, f"{where} has the shape {found.shape}, expected {shape}")
    if found.dtype.kind not in "iu" or found.min() < 0 or found.max() > 255:
        raise HTTPException(400, f"{where} has other values than whole numbers of 0 to 255")
    return found.astype(np.uint8)


async def _body(request: Request) -> bytes:
    """Read a body to its end, even if it is too long, since the client reads no answer before."""
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                body += part if size <= MAX_BODY else b""
    except TimeoutError:
        close = {"connection": "close"}
        raise HTTPException(408, f"the body did not come within {_BODY_SECONDS:g} s; send it again", close) from None
    except ClientDisconnect:
        raise HTTPException(400, "the client left") from None
    if size > MAX_BODY:
        raise HTTPException(413, f"the body has {size:,} bytes, expected at most {MAX_BODY:,}; send fewer images")
    return bytes(body)


async def _refusal(_request: Request, error: Any) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _failure(_request: Request, error: Exception) -> Response:
    """Answer any exception for a request with status 500, so that the server continues."""
    return JSONResponse({"error": f"{type(error).__name__}: {error}"[:1000]}, 500)


def serve(
    store: Store,
    recipe: str,
    listening: socket.socket,
    began: Callable[[dict[str, Any]], None],
    log: Callable[[str], None],
) -> None:
    """Serve a recipe's champion until SIGTERM or SIGINT.

    Args:
        store: the store.
        recipe: the recipe of the champion; also the name of the model.
        listening: a listening socket.
        began: called once with the champion and the address.
        log: called with a line at each switch, successful or not.

    Raises:
        StoreError: there is no champion, or it cannot be read.
        ArtifactError: the champion's files differ from the promoted ones.
    """
    follower, (host, port) = Follower(store, recipe), listening.getsockname()[:2]
    entry, place = follower.champion.entry, f"[{host}]" if ":" in host else host
    with PictureSandbox() as pictures:
        url = f"http://{place}:{port}/v1/models/{recipe}"
        began({"model": recipe, "version": entry.number, "run": entry.run, "url": url, "port": port})
        Server(follower, pictures, log).run(recipe, listening)
