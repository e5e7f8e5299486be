"""A proxy before the stand-in for Google Cloud Storage that does to requests what a bad network does."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import random
import socket
import struct
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

RESET, LOST, DELAY, CUT, DAMAGE = "reset", "lost answer", "delay", "cut short", "damage"
STATUSES = ("429", "500", "503")
ALL = (RESET, LOST, DELAY, CUT, *STATUSES)


class FaultProxy(ThreadingHTTPServer):
    """Passes requests on, some of them with a fault.

    Attributes:
        share: of the requests that get a fault, 0…1.
        faults: what may happen: before the request is passed on (reset, a status), after (lost answer), or to the
            answer (cut short; damage: a bit of a download is another one).
        left: how many may still happen.
        happened: how often each did.
        downloaded: how many bytes of each object went out, by its name in the bucket.
        queries: the query of every request.
        token: what a service account is given that asks at ``/token``.
        authorized: requests that came with it.
        reachable: unset, requests wait, and nothing that was asked before is answered: the network is cut.
    """

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.share, self.faults, self.left = 0.0, ALL, math.inf
        self.happened: Counter[str] = Counter()
        self.downloaded: Counter[str] = Counter()
        self.queries: list[dict[str, list[str]]] = []
        self.token, self.authorized = "", 0
        self.reachable = threading.Event()
        self.reachable.set()
        self._random, self._lock = random.Random(0), threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def draw(self) -> str:
        with self._lock:
            return self._random.choice(self.faults) if self.left > 0 and self._random.random() < self.share else ""

    def note(self, fault: str) -> None:
        with self._lock:
            self.happened[fault] += 1
            self.left -= 1

    def damaged(self, answer: bytes) -> bytes:
        with self._lock:
            place, bit = self._random.randrange(len(answer)), self._random.randrange(8)
        return answer[:place] + bytes([answer[place] ^ 1 << bit]) + answer[place + 1 :]

    def hear(self, query: dict[str, list[str]], authorization: str) -> None:
        with self._lock:
            self.queries.append(query)
            self.authorized += bool(self.token) and authorization == f"Bearer {self.token}"

    def count(self, name: str, sent: int) -> None:
        with self._lock:
            self.downloaded[name] += sent

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultProxy

    def handle_method(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        address = urllib.parse.urlsplit(self.path)
        if address.path == "/token":
            granted = {"access_token": self.server.token, "expires_in": 3600, "token_type": "Bearer"}
            self._answer(200, {"Content-Type": "application/json"}, json.dumps(granted).encode())
            return
        if not self._still_reachable():
            return
        self.server.hear(urllib.parse.parse_qs(address.query), self.headers.get("Authorization", ""))
        fault = self.server.draw()
        if fault == RESET:
            self._reset(fault)
            return
        if fault.isdigit():
            self.server.note(fault)
            self._answer(int(fault), {"Content-Type": "text/plain"}, b"try again")
            return
        if fault == DELAY:
            self.server.note(fault)
            time.sleep(0.2)
        status, headers, answer = self._pass_on(body)
        if not self._still_reachable():
            return
        if "alt=media" in self.path:
            self.server.count(urllib.parse.unquote(address.path.partition("/o/")[2]), len(answer))
        if fault == LOST:
            self._reset(fault)
            return
        if fault == DAMAGE and "alt=media" in self.path and answer:
            self.server.note(fault)
            answer = self.server.damaged(answer)
        if fault == CUT and len(answer) > 1:
            self.server.note(fault)
            self._answer(status, headers, answer, sent=len(answer) // 2)
            self._close()
            return
        self._answer(status, headers, answer)

    def _still_reachable(self) -> bool:
        """Waits while the network is cut, and drops the request then."""
        if self.server.reachable.is_set():
            return True
        self.server.reachable.wait()
        self._close()
        return False

    def _pass_on(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        # The stand-in deletes whatever the generation is.
        address = urllib.parse.urlsplit(self.path)
        wanted = urllib.parse.parse_qs(address.query).get("ifGenerationMatch")
        if self.command == "DELETE" and wanted:
            with _deleting:
                status, headers, answer = self._sent("GET", address.path, b"")
                if status != 200:
                    return status, headers, answer
                if json.loads(answer)["generation"] not in wanted:
                    return 412, {"Content-Type": "text/plain"}, b"another generation"
                return self._sent("DELETE", address.path, body)
        return self._sent(self.command, self.path, body)

    def _sent(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.server.target.removeprefix("http://"), timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in _OF_A_CONNECTION}
        # What leads around the proxy leads through it.
        if "json" in headers.get("Content-Type", "") and "alt=media" not in self.path:
            content = content.replace(self.server.target.encode(), self.server.url.encode())
        headers = {name: value.replace(self.server.target, self.server.url) for name, value in headers.items()}
        return answer.status, headers, content

    def _answer(self, status: int, headers: dict[str, str], content: bytes, sent: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[:sent])
        self.wfile.flush()

    def _reset(self, fault: str) -> None:
        self.server.note(fault)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._close()

    def _close(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def log_message(self, *_words: Any) -> None:
        """Says nothing."""


for _method in ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"):
    setattr(_Handler, f"do_{_method}", _Handler.handle_method)

_deleting = threading.Lock()
_OF_A_CONNECTION = frozenset({"content-length", "transfer-encoding", "connection", "date"})


@contextlib.contextmanager
def fault_proxy(target: str) -> Iterator[FaultProxy]:
    """A proxy before a server; it is gone when the body ends."""
    with FaultProxy(target) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
