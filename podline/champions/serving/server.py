"""A small HTTP server for trying out a recipe's champion or a run: ``POST /v1/models/NAME:predict``."""

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

from podline.base.arrays import Pixels
from podline.base.errors import SourceError
from podline.champions.serving.model import Follower, Served
from podline.data.picture_sandbox import PictureFile, PictureSandbox
from podline.store.contract import Store

SIGNATURE = "serving_default"
"""The name of the only signature of a served model."""
MAX_BODY = 16 * 2**20
"""Largest size of a request's body, in bytes."""
MAX_CONNECTIONS = 128
"""Largest number of open connections; further requests get status 503."""
MAX_IMAGES = 128
"""Largest number of images of a request."""
MAX_PIXELS = 4_000_000
"""Largest number of pixels of all images of a request, at the model's input size; one image is always allowed."""

_HEAD_SECONDS, _BODY_SECONDS, _GRACE_SECONDS = 10, 30.0, 30
_THREADS = 4


class Server:
    """The HTTP application, with the served model and the sandboxes that decode pictures."""

    def __init__(self, follower: Follower, pictures: PictureSandbox, log: Callable[[str], None]) -> None:
        self._follower, self._pictures, self._log = follower, pictures, log
        self._threads = ThreadPoolExecutor(_THREADS, "predict")

    def run(self, name: str, listening: socket.socket) -> None:
        """Serve until SIGTERM or SIGINT, and then finish the requests in progress, for at most 30 s."""
        self._name = name
        application = Starlette(
            routes=[
                route
                for place in (f"/v1/models/{name}", f"/v1/models/{name}/versions/{{version:int}}")
                for route in (
                    Route(place, self._status),
                    Route(f"{place}/metadata", self._metadata),
                    Route(f"{place}:predict", self._predict, methods=["POST"]),
                )
            ],
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
        """Close idle connections; uvicorn's time-out ends with the first byte of a request's head."""
        seconds: dict[Any, int] = {}
        while True:
            await asyncio.sleep(1)
            connections: Any = self._server.server_state.connections
            silent = [(each, each.cycle) for each in connections if each.cycle is None or each.cycle.response_complete]
            seconds = {each: seconds.get(each, 0) + 1 for each in silent}
            for connection, _ in (each for each, count in seconds.items() if count > _HEAD_SECONDS):
                connection.transport.abort()

    def _asked(self, request: Request) -> Served:
        """Return the served model; raise status 404 if the request names another version."""
        served, version = self._follower.served, request.path_params.get("version")
        if version not in (None, served.version):
            raise HTTPException(404, f"{self._name} version {version} is not served, only version {served.version}")
        return served

    async def _status(self, request: Request) -> Response:
        served, ok = self._asked(request), {"error_code": "OK", "error_message": ""}
        status = [{"version": str(served.version), "state": "AVAILABLE", "status": ok}]
        found = {"name": self._name, "ready": True, "number": served.version, "run": served.run}
        return JSONResponse({"model_version_status": status, **found, "problem": self._follower.problem})

    async def _metadata(self, request: Request) -> Response:
        served = self._asked(request)
        (name, spec), outputs = served.input, served.function.structured_outputs
        signature = {
            "inputs": {name: _tensor(spec)},
            "outputs": {name: _tensor(outputs[name]) for name in sorted(outputs)},
            "method_name": "tensorflow/serving/predict",
        }
        model = {"name": self._name, "signature_name": "", "version": str(served.version)}
        metadata = {"signature_def": {"signature_def": {SIGNATURE: signature}}}
        classes = served.reader.class_names
        return JSONResponse({"model_spec": model, "metadata": metadata, **({"classes": classes} if classes else {})})

    async def _predict(self, request: Request) -> Response:
        body, served = await _body(request), self._asked(request)
        answer = await asyncio.get_running_loop().run_in_executor(self._threads, self._predictions, body, served)
        return Response(answer, media_type="application/json")

    def _predictions(self, body: bytes, served: Served) -> str:
        """Return the response as TensorFlow Serving's JSON, by rows or columns, with the interpreted ``answers``."""
        values, is_rows = images_in(body, served.input[0])
        images = images_of(values, served.shape, lambda files: self._pictures.decode(files, served.form))
        outputs = served.outputs(images)
        columns: dict[str, list[Any]] = {name: output.tolist() for name, output in outputs.items()}
        only = next(iter(columns.values())) if len(columns) == 1 else None
        rows = only or [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        found = {"predictions": rows} if is_rows else {"outputs": only or columns}
        answers = served.answers(outputs)
        return json.dumps({**found, "answers": answers} if answers else found)


def _tensor(spec: Any) -> dict[str, Any]:
    """Return dtype and shape of an input or output in TensorFlow Serving's JSON form."""
    sizes = [{"size": str(-1 if size is None else size), "name": ""} for size in spec.shape]
    kind = f"DT_{'FLOAT' if spec.dtype.name == 'float32' else spec.dtype.name.upper()}"
    return {"dtype": kind, "tensor_shape": {"dim": sizes, "unknown_rank": False}, "name": spec.name or ""}


def images_in(body: bytes, name: str) -> tuple[list[Any], bool]:
    """Parse the body of a request in TensorFlow Serving's form; return its images, and whether they are given by rows.

    Rows are ``{"instances": [IMAGE, …]}`` or ``{"instances": [{"images": IMAGE}, …]}``. A column is
    ``{"inputs": [IMAGE, …]}`` or ``{"inputs": {"images": [IMAGE, …]}}``; ``images`` is the input's ``name``.

    Raises:
        HTTPException: the body does not have this form.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from None
    given = dict(document) if isinstance(document, dict) else {}
    signature = given.pop("signature_name", SIGNATURE) or SIGNATURE
    if signature != SIGNATURE:
        raise HTTPException(400, f"got the signature_name {signature!r}, expected {SIGNATURE}")
    is_rows = "instances" in given
    values = given.pop("instances" if is_rows else "inputs", None)
    if not is_rows and isinstance(values, dict) and [*values] == [name]:
        values = values[name]
    if not isinstance(values, list) or not values or given:
        raise HTTPException(400, 'the body is not {"instances": [IMAGE, ...]} with at least one image')
    return [each[name] if isinstance(each, dict) and [*each] == [name] else each for each in values], is_rows


def images_of(values: list[Any], shape: tuple[int, ...], decode: Callable[[list[PictureFile]], list[Pixels]]) -> Pixels:
    """Return the images of a request, uint8 (n, height, width, channels).

    Raises:
        HTTPException: there are too many images, one has a wrong shape or dtype, or a file is not a picture.
    """
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
        raise HTTPException(400, f'{where} is not {{"b64": BASE64 OF A PICTURE FILE}}') from None


def _pixels(value: Any, where: str, shape: tuple[int, ...]) -> Pixels:
    try:
        found = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise HTTPException(400, f"{where} is not an array of the shape {shape}: {error}") from None
    if found.shape != shape:
        raise HTTPException(400, f"{where} has the shape {found.shape}, expected {shape}")
    if found.dtype.kind not in "iu" or found.min() < 0 or found.max() > 255:
        raise HTTPException(400, f"{where} has values that are not integers from 0 to 255")
    return found.astype(np.uint8)


async def _body(request: Request) -> bytes:
    """Read a body to its end, even if it is too long, since clients read the response only after sending the body."""
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
        raise HTTPException(400, "the client closed the connection") from None
    if size > MAX_BODY:
        raise HTTPException(413, f"the body has {size:,} bytes, expected at most {MAX_BODY:,}; send fewer images")
    return bytes(body)


async def _refusal(_request: Request, error: Any) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _failure(_request: Request, error: Exception) -> Response:
    """Respond to any exception of a request with status 500, so that the server continues."""
    return JSONResponse({"error": f"{type(error).__name__}: {error}"[:1000]}, 500)


def serve(
    store: Store,
    name: str,
    listening: socket.socket,
    began: Callable[[dict[str, Any]], None],
    log: Callable[[str], None],
) -> None:
    """Serve a recipe's champion, or a run, until SIGTERM or SIGINT.

    Args:
        store: the store.
        name: a recipe or a run; also the name of the model.
        listening: a listening socket.
        began: called once with name, version, run, URL and port.
        log: called with a line at each change of the champion, whether it could be loaded or not.

    Raises:
        StoreError: the champion or run does not exist, or cannot be read.
        ArtifactError: its files differ from the promoted or trained ones.
    """
    follower, (host, port) = Follower(store, name), listening.getsockname()[:2]
    served, place = follower.served, f"[{host}]" if ":" in host else host
    with PictureSandbox() as pictures:
        url = f"http://{place}:{port}/v1/models/{name}"
        began({"model": name, "version": served.version, "run": served.run, "url": url, "port": port})
        Server(follower, pictures, log).run(name, listening)
