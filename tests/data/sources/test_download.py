from __future__ import annotations

import hashlib
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from podline.data.official import RemoteFile, published
from podline.data.sources import download as downloading
from podline.data.sources.download import download, fetch_all
from podline.data.sources.opening import open_source
from podline.errors import SettingsError, SourceError, SourceUnavailableError, StoreError, TransientError
from podline.progress import Reporter, silent
from podline.recipes import datasets

pytestmark = pytest.mark.usefixtures("parsed_here")

CONTENT = bytes(range(256)) * 4000
REMOTE = RemoteFile("a.tar.gz", len(CONTENT), hashlib.md5(CONTENT).hexdigest())  # noqa: S324 (as published)


@dataclass
class Mirror:
    """A server whose answers a test can spoil."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)  # of each answer in turn: bytes after which the connection breaks
    statuses: list[int] = field(default_factory=list)  # of each answer in turn, in place of the file
    knows_ranges: bool = True
    says_length: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    state = Mirror(files={"a.tar.gz": CONTENT})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.asked.append((self.path, wanted))
            content = state.files.get(self.path.rpartition("/")[2])
            if state.statuses:
                self.send_error(state.statuses.pop(0))
                return
            if content is None:
                self.send_error(404)
                return
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted or "bytes=0-")[1]) if state.knows_ranges else 0  # type: ignore[index]
            if start and start >= len(content):
                self.send_error(416)
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
        self.reporter = Reporter("download", self.events.append)

    def fetch(self, mirror: Mirror, folder: Path, *files: RemoteFile) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(downloading, "RETRY_DELAYS", (1, 2, 3))
            patch.setattr(downloading.time, "sleep", self.waits.append)
            return fetch_all(files or (REMOTE,), mirror.url, folder, self.reporter)

    def warnings(self) -> list[str]:
        return [event["message"] for event in self.events if event.get("level") == "warning"]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_fetched_and_named_when_it_is_whole(mirror: Mirror, tmp_path: Path) -> None:
    listener = Listener()
    assert listener.fetch(mirror, tmp_path / "new" / "folder") == tmp_path / "new" / "folder"
    assert names_in(tmp_path / "new" / "folder") == ["a.tar.gz"]
    assert (tmp_path / "new" / "folder" / "a.tar.gz").read_bytes() == CONTENT
    assert mirror.asked == [("/data/a.tar.gz", "bytes=0-")]
    progress = [event for event in listener.events if event["event"] == "progress"]
    assert (progress[-1]["done"], progress[-1]["total"], progress[-1]["unit"]) == (len(CONTENT), len(CONTENT), "bytes")
    assert listener.waits == []


def test_a_file_that_is_there_is_left_alone(mirror: Mirror, tmp_path: Path) -> None:
    Listener().fetch(mirror, tmp_path)
    mirror.asked.clear()
    Listener().fetch(mirror, tmp_path)
    assert mirror.asked == []


def test_another_file_of_that_name_is_not_overwritten(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"mine")
    with pytest.raises(SourceError, match=rf"with md5 {hashlib.md5(b'mine').hexdigest()} vs {REMOTE.md5} published"):  # noqa: S324
        Listener().fetch(mirror, tmp_path)
    assert (tmp_path / "a.tar.gz").read_bytes() == b"mine"


def test_broken_connections_are_resumed(mirror: Mirror, tmp_path: Path) -> None:
    mirror.cuts = [300_000, 0, 100_000, 0, 0]
    listener = Listener()
    listener.fetch(mirror, tmp_path)
    assert (tmp_path / "a.tar.gz").read_bytes() == CONTENT
    starts = [wanted for _path, wanted in mirror.asked]
    assert starts == [f"bytes={n}-" for n in (0, 300_000, 300_000, 400_000, 400_000, 400_000)]
    assert listener.waits == [1, 2, 1, 2, 3], "what brings something forward starts the delays anew"
    assert "broke off" in listener.warnings()[0]
    assert "trying again in 1 s, from byte 300,000" in listener.warnings()[0]


def test_a_later_call_goes_on_where_an_earlier_one_ended(mirror: Mirror, tmp_path: Path) -> None:
    mirror.cuts = [500_000, 0, 0, 0, 0]
    with pytest.raises(SourceUnavailableError, match="broke off after 500,000 of 1,024,000 bytes") as caught:
        Listener().fetch(mirror, tmp_path)
    assert isinstance(caught.value, TransientError)
    assert names_in(tmp_path) == ["a.tar.gz.part"]
    mirror.cuts, mirror.asked = [], []
    Listener().fetch(mirror, tmp_path)
    assert mirror.asked == [("/data/a.tar.gz", "bytes=500000-")]
    assert (tmp_path / "a.tar.gz").read_bytes() == CONTENT


def test_a_whole_part_needs_no_server(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz.part").write_bytes(CONTENT)
    Listener().fetch(mirror, tmp_path)
    assert (mirror.asked, names_in(tmp_path)) == ([], ["a.tar.gz"])


@pytest.mark.parametrize("says_length", [True, False])
def test_a_server_without_ranges(mirror: Mirror, tmp_path: Path, says_length: bool) -> None:
    mirror.knows_ranges, mirror.says_length, mirror.cuts = False, says_length, [700_000]
    Listener().fetch(mirror, tmp_path)
    assert (tmp_path / "a.tar.gz").read_bytes() == CONTENT


def test_a_server_without_ranges_that_always_breaks_off_ends(mirror: Mirror, tmp_path: Path) -> None:
    mirror.knows_ranges, mirror.cuts = False, [700_000] * 20
    with pytest.raises(SourceUnavailableError, match="broke off after 700,000"):
        Listener().fetch(mirror, tmp_path)
    assert len(mirror.asked) == 4


def test_a_busy_server_is_asked_again(mirror: Mirror, tmp_path: Path) -> None:
    mirror.statuses = [503, 429]
    listener = Listener()
    listener.fetch(mirror, tmp_path)
    assert listener.waits == [1, 2]
    assert (tmp_path / "a.tar.gz").read_bytes() == CONTENT
    mirror.statuses = [500] * 9
    with pytest.raises(SourceUnavailableError, match="the server answers 500"):
        Listener().fetch(mirror, tmp_path / "again")


def test_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloading, "RETRY_DELAYS", ())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(SourceUnavailableError, match="did not answer or broke off"):
            fetch_all([REMOTE], url, tmp_path, silent())


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_file_that_is_not_there_is_not_asked_for_again(mirror: Mirror, tmp_path: Path, status: int) -> None:
    mirror.statuses = [status]
    listener = Listener()
    with pytest.raises(SourceError, match=f"the server answers {status} .*check the address") as caught:
        listener.fetch(mirror, tmp_path)
    assert not isinstance(caught.value, TransientError)
    assert (listener.waits, len(mirror.asked)) == ([], 1)


def test_wrong_content_is_deleted(mirror: Mirror, tmp_path: Path) -> None:
    wrong = CONTENT[:-1] + b"x"
    mirror.files["a.tar.gz"] = wrong
    with pytest.raises(SourceError) as caught:
        Listener().fetch(mirror, tmp_path)
    assert hashlib.md5(wrong).hexdigest() in str(caught.value)  # noqa: S324
    assert REMOTE.md5 in str(caught.value)
    assert names_in(tmp_path) == []


def test_a_part_of_another_file_is_found_out(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz.part").write_bytes(b"something else")
    with pytest.raises(SourceError, match="the received bytes were deleted"):
        Listener().fetch(mirror, tmp_path)
    Listener().fetch(mirror, tmp_path)
    assert (tmp_path / "a.tar.gz").read_bytes() == CONTENT


@pytest.mark.parametrize("size", [100, len(CONTENT) + 5])
def test_a_file_of_another_size_is_not_fetched(mirror: Mirror, tmp_path: Path, size: int) -> None:
    mirror.files["a.tar.gz"] = b"z" * size
    with pytest.raises(SourceError, match=f"has {size:,} bytes vs 1,024,000 bytes with md5 {REMOTE.md5} published"):
        Listener().fetch(mirror, tmp_path)
    assert names_in(tmp_path) == []


def test_a_part_longer_than_what_the_server_has(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz.part").write_bytes(CONTENT[:5000])
    mirror.files["a.tar.gz"] = b"z" * 5000
    with pytest.raises(SourceError, match="has no byte 5,000 vs 1,024,000 bytes"):
        Listener().fetch(mirror, tmp_path)
    assert names_in(tmp_path) == []


def test_more_than_was_announced(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["a.tar.gz"] = CONTENT * 3
    mirror.knows_ranges = mirror.says_length = False
    with pytest.raises(SourceError, match="published; the received bytes were deleted"):
        Listener().fetch(mirror, tmp_path)
    assert names_in(tmp_path) == []


def test_one_process_at_a_time(mirror: Mirror, tmp_path: Path) -> None:
    import fcntl  # noqa: PLC0415

    with (tmp_path / "a.tar.gz.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(SourceUnavailableError, match="is being fetched by another process"):
            Listener().fetch(mirror, tmp_path)
    Listener().fetch(mirror, tmp_path)


def test_progress_counts_all_files(mirror: Mirror, tmp_path: Path) -> None:
    small = RemoteFile("b", 3, hashlib.md5(b"abc").hexdigest())  # noqa: S324
    mirror.files["b"] = b"abc"
    listener = Listener()
    listener.fetch(mirror, tmp_path, REMOTE, small)
    done = [event["done"] for event in listener.events if event["event"] == "progress"]
    assert done == sorted(done)
    assert done[-1] == len(CONTENT) + 3
    assert {event["total"] for event in listener.events if event["event"] == "progress"} == {len(CONTENT) + 3}


def test_a_folder_that_cannot_be_made(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError):
        Listener().fetch(mirror, tmp_path / "file")


def test_addresses(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="starts with http:// or https://"):
        download("mnist", tmp_path, base_url="file:///etc")
    with pytest.raises(SettingsError, match=r"sample cannot be downloaded.*podline data draw"):
        download("sample", tmp_path)
    assert {name: official.url for name in datasets.names() if (official := published(name))} == {
        "cifar10": "https://www.cs.toronto.edu/~kriz/",
        "cifar100": "https://www.cs.toronto.edu/~kriz/",
        "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    }


def test_mnist_from_a_mirror(mirror: Mirror, real_data: Path, tmp_path: Path) -> None:
    """The real files have the sizes and md5 sums that are written down."""
    mirror.files = {path.name: path.read_bytes() for path in (real_data / "mnist").iterdir()}
    folder = download("mnist", tmp_path / "mnist", base_url=mirror.url)
    assert names_in(folder) == sorted(mirror.files)
    assert [len(split) for split in open_source("mnist", str(folder), tmp_path / "work").splits] == [60_000, 10_000]
