"""An HTTP server on this machine that answers as a test says."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def place(self) -> str:
        return self.path.partition("?")[0]


@contextlib.contextmanager
def answering(answer: Callable[[Request], tuple[int, bytes]], **headers: str) -> Iterator[str]:
    """Serve the (status, body) that ``answer`` returns, with headers (``_`` for ``-``); yield the address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body = answer(Request(self.command, self.path, self.headers, asked))  # type: ignore[arg-type]
            self.send_response(status)
            for name, value in {**headers, "Content_Length": str(len(body))}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_GET  # noqa: N815 (the base class's names)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
