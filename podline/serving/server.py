"""Serves a recipe's champion over HTTP until SIGTERM; follows promotions and rollbacks meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from podline.data.picture_sandbox import PictureSandboxes
from podline.serving.dialect import RequestError, Target, answered, asked, encoded, target_of
from podline.serving.versions import Version, Versions
from podline.store.contract import Store

MAX_BODY = 16 * 2**20
"""Bytes of a request's body; more is refused before it is read."""
MAX_REQUESTS = 64
"""Whole requests that are answered or wait at once; more are refused."""
MAX_CONNECTIONS = 128
"""Open connections; for one more, the one that has waited longest for its request is closed."""
HEAD_SECONDS = 5.0
"""Within which the head of a request comes, from the first byte of a connection or of the next request."""

_BODY_SECONDS, _REST_SECONDS, _POLL_SECONDS, _GRACE_SECONDS = 30.0, 5.0, 1.0, 30
_THREADS = 4
HEALTH = "/health"


class Application:
    """The dialect as an ASGI application."""

    def __init__(self, versions: Versions, pictures: PictureSandboxes) -> None:
        self._versions, self._pictures = versions, pictures
        self._threads = ThreadPoolExecutor(_THREADS, "predict")
        self._at_work = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            return
        try:
            status, body = 200, await self._answer(Request(scope, receive))
        except RequestError as error:
            status, body = error.status, encoded({"error": str(error)})
        except ClientDisconnect:
            return
        except Exception as error:
            # Whatever TensorFlow says of a request, one answer fails and not the server.
            logging.getLogger(__name__).exception("a request failed")
            status, body = 500, encoded({"error": f"{type(error).__name__}: {error}"[:1000]})
        headers = None
        if status in (408, 413):
            # The rest of a body that was not read must not be taken for the next request.
            headers = {"connection": "close"}
        if status == 413:
            await _drop_rest(Request(scope, receive))
        await Response(body, status, headers, "application/json")(scope, receive, send)

    async def _answer(self, request: Request) -> bytes:
        if request.url.path == HEALTH:
            return encoded({"status": "ok", "version": str(self._versions.champion.number)})
        target = target_of(request.method, request.url.path)
        if target.verb == "status":
            return encoded(self._versions.status(target))
        version = self._versions.version(target)
        if target.verb == "metadata":
            return encoded(_metadata(target, version))
        if target.verb != "predict":
            raise RequestError(f"{target.verb} is not served: the model has no such signature; use predict", 501)
        # Whoever sends slowly keeps nobody else waiting: only a request that is whole counts.
        body = await _body(request)
        if self._at_work >= MAX_REQUESTS:
            raise RequestError(f"{MAX_REQUESTS} requests are being answered vs {MAX_REQUESTS} at most; try again", 503)
        self._at_work += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._predicted, body, version)
        finally:
            self._at_work -= 1

    def _predicted(self, body: bytes, version: Version) -> bytes:
        model = version.model
        wanted = asked(body, model.input, model.shape, lambda files: map(model.fit, self._pictures.decode(files)))
        return answered(model.answer(wanted.images, wanted.signature), by_row=wanted.by_row)


def _metadata(target: Target, version: Version) -> dict[str, Any]:
    spec = {"name": target.model, "signature_name": "", "version": str(version.number)}
    return {"model_spec": spec, "metadata": {"signature_def": {"signature_def": version.model.metadata}}}


async def _body(request: Request) -> bytes:
    said, found = request.headers.get("content-length", "0"), bytearray()
    too_long = f"the body has {{}} bytes vs {MAX_BODY:,} at most; send fewer images at once"
    if int(said) > MAX_BODY:
        raise RequestError(too_long.format(f"{int(said):,}"), 413)
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                found += part
                if len(found) > MAX_BODY:
                    raise RequestError(too_long.format(f"more than {MAX_BODY:,}"), 413)
    except TimeoutError:
        raise RequestError(f"the body did not come within {_BODY_SECONDS:g} s; send it again", 408) from None
    return bytes(found)


async def _drop_rest(request: Request) -> None:
    """Reads what comes of a body, within bounds: TCP takes an answer back whose sender closes with bytes unread."""
    if "expect" in request.headers:  # a client that waits for the answer before it sends
        return
    dropped = 0
    with contextlib.suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(_REST_SECONDS):
            async for part in request.stream():
                dropped += len(part)
                if dropped > MAX_BODY:
                    return


class _Connection(H11Protocol):
    """An HTTP connection that is closed if the head of its next request does not come in time.

    uvicorn's ``timeout_keep_alive`` ends with the first byte of a head, and its ``limit_concurrency`` refuses whoever
    comes last, not who waits.
    """

    _deadline: asyncio.TimerHandle | None = None

    @property
    def _answers(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _whole(self) -> bool:
        """Whether a request is here with its body and is being answered."""
        return self._answers and not self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        self._set_deadline()
        if len(self.connections) > MAX_CONNECTIONS:
            waiting = [each for each in self.connections if isinstance(each, _Connection) and not each._whole]
            if waiting:
                min(waiting, key=lambda each: each._since)._abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._clear_deadline()

    def _set_deadline(self) -> None:
        """Start the time in which a head must come; the application has one of its own for a body."""
        if self._answers:
            self._clear_deadline()
        elif self._deadline is None and not self.transport.is_closing():
            self._since = self.loop.time()
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._abort)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _abort(self) -> None:
        self.connections.discard(self)
        self.transport.abort()


class _Server(uvicorn.Server):
    """A server that says when it listens, and follows the champion while it does."""

    def __init__(self, config: uvicorn.Config, began: Callable[[], None], follow: Callable[[], Any]) -> None:
        super().__init__(config)
        self._began, self._follow = began, follow

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._following = asyncio.create_task(self._followed())
        self._began()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._following.cancel()
        await super().shutdown(sockets)

    async def _followed(self) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            await asyncio.to_thread(self._follow)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """A stop that was asked for is an end like any other: uvicorn's own raises the signal once more."""
        wanted = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(each, self.handle_exit) for each in wanted]
        try:
            yield
        finally:
            for each, handler in zip(wanted, before, strict=True):
                signal.signal(each, handler)


def serve(
    store: Store,
    recipe: str,
    listening: socket.socket,
    began: Callable[[dict[str, Any]], None],
    log: Callable[[str], None],
) -> None:
    """Serves until SIGTERM or SIGINT; requests that are being answered then are answered.

    Args:
        store: the store.
        recipe: whose champion; its name is the model's.
        listening: a bound socket.
        began: told, once, what is served and where.
        log: told, in a line, of each switch, and of one that fails.

    Raises:
        StoreError: there is no champion, or it cannot be read.
        ArtifactError: it is not what was promoted.
    """
    versions = Versions(store, recipe)
    host, port = listening.getsockname()[:2]
    place = f"[{host}]" if ":" in host else host
    said = ""

    def follow() -> None:
        nonlocal said
        try:
            now = versions.refresh()
        except Exception as error:
            # Whatever is wrong with the new one, the old one is served.
            if str(error) != said:
                log(f"warning: number {versions.champion.number} stays: {error}")
            said = str(error)
        else:
            if now is not None:
                log(f"serves number {now.number}, {now.entry.run}")

    def listens() -> None:
        now = versions.champion
        url = f"http://{place}:{port}/v1/models/{recipe}"
        began({"model": recipe, "version": now.number, "run": now.entry.run, "url": url, "port": port})

    with PictureSandboxes(_THREADS) as pictures:
        config = uvicorn.Config(
            Application(versions, pictures),
            http=_Connection,
            lifespan="off",
            log_level=logging.ERROR,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        _Server(config, listens, follow).run(sockets=[listening])
