"""Published files are fetched whole, resumed where a connection broke, and checked."""

from __future__ import annotations

import fcntl
import hashlib
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from podline.base.errors import SettingsError, SourceError, SourceUnavailableError, StoreError, TransientError
from podline.base.progress import Reporter
from podline.data.sources import download as downloading
from podline.data.sources.download import download, fetch_all
from podline.recipes.official import RemoteFile

pytestmark = pytest.mark.usefixtures("parsed_here")

CONTENT = bytes(range(256)) * 4000


def remote(name: str, content: bytes) -> RemoteFile:
    return RemoteFile(name, len(content), hashlib.md5(content).hexdigest())  # noqa: S324 (as published)


REMOTE = remote("a.tar.gz", CONTENT)


@dataclass
class Mirror:
    """A server whose answers a test can spoil."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=lambda: {"a.tar.gz": CONTENT})
    cuts: list[int] = field(default_factory=list)  # of each answer in turn: bytes after which the connection breaks
    statuses: list[int] = field(default_factory=list)  # of each answer in turn, in place of the file
    knows_ranges: bool = True
    says_length: bool = True
    asked: list[str | None] = field(default_factory=list)  # ranges


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    state = Mirror()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.asked.append(wanted)
            content = state.files.get(self.path.rpartition("/")[2], b"")
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted or "bytes=0-")[1]) if state.knows_ranges else 0  # type: ignore[index]
            if state.statuses or (start and start >= len(content)):
                self.send_error(state.statuses.pop(0) if state.statuses else 416)
                return
            self.send_response(206 if state.knows_ranges else 200)
            if state.knows_ranges:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            if state.says_length:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            cut = state.cuts.pop(0) if state.cuts else len(content)
            with suppress(ConnectionError):  # who has seen enough hangs up
                self.wfile.write(content[start : start + cut])
            if cut < len(content) - start:
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name of the base class)
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}/data"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


class Listener:
    """Collects what a download tells and the waits that it asks for."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.waits: list[float] = []

    def fetch(self, mirror: Mirror, folder: Path, *files: RemoteFile) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(downloading, "RETRY_DELAYS", (1, 2, 3))
            patch.setattr(downloading.time, "sleep", self.waits.append)
            return fetch_all(files or (REMOTE,), mirror.url, folder, Reporter("download", self.events.append))


def fetch(mirror: Mirror, folder: Path) -> None:
    Listener().fetch(mirror, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"a.tar.gz": CONTENT}


def test_files_are_fetched_and_named_when_they_are_whole_and_then_left_alone(mirror: Mirror, tmp_path: Path) -> None:
    listener, folder = Listener(), tmp_path / "new" / "folder"
    mirror.files["b"] = b"abc"
    files = REMOTE, remote("b", b"abc")
    assert listener.fetch(mirror, folder, *files) == folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == mirror.files
    progress = [event for event in listener.events if event["event"] == "progress"]
    done = [event["done"] for event in progress]
    assert done == sorted(done)
    assert done[-1] == len(CONTENT) + 3
    assert {(event["total"], event["unit"]) for event in progress} == {(len(CONTENT) + 3, "bytes")}
    listener.fetch(mirror, folder, *files)
    assert (mirror.asked, listener.waits) == (["bytes=0-", "bytes=0-"], [])


def test_another_file_of_that_name_is_not_overwritten(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"mine")
    with pytest.raises(SourceError, match=rf"has md5 {remote('', b'mine').md5} vs {REMOTE.md5} published"):
        fetch(mirror, tmp_path)
    assert (tmp_path / "a.tar.gz").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (socket.gaierror(socket.EAI_NONAME, "not known"), r"no such host \(not known\); check the network"),
        (ssl.SSLCertVerificationError(1, "self-signed"), "set SSL_CERT_FILE"),
    ],
)
def test_without_a_network_the_first_try_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: OSError, words: str
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", mock.Mock(side_effect=reason))
    listener = Listener()
    with pytest.raises(SourceError, match=words):
        listener.fetch(Mirror("http://nowhere.invalid"), tmp_path)
    assert listener.waits == []


def test_broken_connections_are_resumed(mirror: Mirror, tmp_path: Path) -> None:
    mirror.cuts = [300_000, 0, 100_000, 0, 0]
    listener = Listener()
    listener.fetch(mirror, tmp_path)
    assert (tmp_path / "a.tar.gz").read_bytes() == CONTENT
    assert mirror.asked == [f"bytes={n}-" for n in (0, 300_000, 300_000, 400_000, 400_000, 400_000)]
    assert listener.waits == [1, 2, 1, 2, 3], "what brings something forward starts the delays anew"
    warning = next(event["message"] for event in listener.events if event.get("level") == "warning")
    assert re.search("connection broke.*trying again in 1 s, from byte 300,000", warning)


def test_a_later_call_goes_on_where_an_earlier_one_ended(mirror: Mirror, tmp_path: Path) -> None:
    mirror.cuts = [500_000, 0, 0, 0, 0]
    with pytest.raises(SourceUnavailableError, match="connection broke after 500,000 of 1,024,000 bytes") as caught:
        fetch(mirror, tmp_path)
    assert isinstance(caught.value, TransientError)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz.part"]
    mirror.cuts, mirror.asked = [], []
    fetch(mirror, tmp_path)
    assert mirror.asked == ["bytes=500000-"]
    (tmp_path / "a.tar.gz").rename(tmp_path / "a.tar.gz.part")
    fetch(mirror, tmp_path)
    assert mirror.asked == ["bytes=500000-"], "a whole part needs no server"


def test_a_server_without_ranges_or_length_sends_the_file_anew(mirror: Mirror, tmp_path: Path) -> None:
    mirror.knows_ranges, mirror.says_length, mirror.cuts = False, False, [700_000]
    fetch(mirror, tmp_path)


def test_a_busy_server_is_asked_again_and_one_without_the_file_is_not(mirror: Mirror, tmp_path: Path) -> None:
    mirror.statuses = [503, 429]
    listener = Listener()
    listener.fetch(mirror, tmp_path)
    assert listener.waits == [1, 2]
    mirror.statuses = [500] * 9
    with pytest.raises(SourceUnavailableError, match="the server answers 500"):
        fetch(mirror, tmp_path / "again")
    for status in (403, 404, 410):
        mirror.statuses, mirror.asked = [status], []
        with pytest.raises(SourceError, match=f"the server answers {status} .*check the address") as caught:
            fetch(mirror, tmp_path / "again")
        assert not isinstance(caught.value, TransientError)
        assert len(mirror.asked) == 1


@pytest.mark.parametrize(
    ("part", "sent", "announced", "told"),
    [
        (b"", CONTENT[:-1] + b"x", True, f"vs .*{REMOTE.md5}"),
        (b"something else", CONTENT, True, "the received bytes were deleted"),
        (b"", CONTENT + b"z", True, "has 1,024,001 bytes vs 1,024,000 bytes"),
        (CONTENT[:5000], b"z" * 5000, True, "has at most 5,000 bytes vs 1,024,000 bytes"),
        (b"", CONTENT * 3, False, "published; the received bytes were deleted"),
    ],
)
def test_another_file_is_refused_and_deleted(
    mirror: Mirror, tmp_path: Path, part: bytes, sent: bytes, announced: bool, told: str
) -> None:
    if part:
        (tmp_path / "a.tar.gz.part").write_bytes(part)
    mirror.files["a.tar.gz"] = sent
    mirror.knows_ranges = mirror.says_length = announced
    with pytest.raises(SourceError, match=told):
        fetch(mirror, tmp_path)
    assert not list(tmp_path.iterdir())


def test_one_process_at_a_time(mirror: Mirror, tmp_path: Path) -> None:
    with (tmp_path / "a.tar.gz.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(SourceUnavailableError, match="is being downloaded by another process"):
            fetch(mirror, tmp_path)
    fetch(mirror, tmp_path)


def test_places_and_addresses(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError):
        fetch(mirror, tmp_path / "file")
    for address in ("file:///etc", "http://", "https:///x", "http://[::1", "http://host:port", "http://host/a b"):
        with pytest.raises(SettingsError, match="starts with http:// or https://"):
            download("mnist", tmp_path, base_url=address)
    with pytest.raises(SettingsError, match=r"sample cannot be downloaded.*podline data draw"):
        download("sample", tmp_path)
    monkeypatch.setattr(downloading, "RETRY_DELAYS", ())
    with pytest.raises(SourceUnavailableError, match="did not answer, or the connection broke"):
        download("mnist", tmp_path, base_url="http://127.0.0.1:1")  # where nobody listens
