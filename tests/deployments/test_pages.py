"""Pages of stores over real HTTP: what is served to whom, what is not, and what a browser is told of it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prefect_servers import wait_until
from standing_prefect import free_port

from podline.deployments.pages import Pages
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.opening import open_store
from podline.store.page_links import PageLinks, key_of, page_path

SECRET = "night:shift-7421"  # noqa: S105 (of this test's own server)
REPORT = "runs/sample-0123456789ab/report.html"
PAGE = b"<!doctype html><title>R</title><p>fine</p>"


@contextlib.contextmanager
def started(folder: Path, **variables: str) -> Iterator[str]:
    """The pages' program, as the service file starts it; its address."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT", "PODLINE"))}
    command = [sys.executable, "-m", "podline.deployments.pages", "--port", str(port)]
    with (folder / "pages.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment | variables, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: process.poll() is not None or _answers(url))
        assert process.poll() is None, (folder / "pages.log").read_text()
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _answers(url: str) -> bool:
    try:
        return bool(httpx.get(url))
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def bucket(gcs: str) -> str:
    return f"gs://podline-test/{uuid.uuid4().hex}/a store ü"


@pytest.fixture(scope="module")
def variables(folder: Path, gcs: str, bucket: str) -> dict[str, str]:
    """The environment of the pages' program, and of runs whose links lead there."""
    stores = (bucket, "gs://no-such-bucket/nights", str(folder / "away"), str(folder / "plain"))
    return {
        "PODLINE_ROOT": str(folder / "nights"),
        "PODLINE_PAGES_STORES": ",".join(stores),
        "PODLINE_STORE_CACHE": str(folder / "cache"),
        "PREFECT_SERVER_API_AUTH_STRING": SECRET,
        "STORAGE_EMULATOR_HOST": gcs,
    }


@pytest.fixture(scope="module")
def server(folder: Path, variables: dict[str, str]) -> Iterator[str]:
    with started(folder, **variables) as url:
        yield url


@pytest.fixture
def asked(server: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is that of a run whose links lead there."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PODLINE_PAGES_URL", f"{server}/")


@pytest.fixture(scope="module")
def store(folder: Path) -> Store:
    """The store that is served, with a page."""
    made = open_store(folder / "nights")
    made.publish_bytes(REPORT, PAGE)
    return made


def get(server: str, path: str, **more: str) -> httpx.Response:
    return httpx.get(f"{server}{path}", auth=tuple(SECRET.split(":")), headers=more, timeout=60)  # type: ignore[arg-type]


def test_a_page_is_there_for_whoever_has_the_secret(server: str, store: Store) -> None:
    path = page_path(store.uri, REPORT)
    for without in (httpx.get(f"{server}{path}"), httpx.get(f"{server}{path}", auth=("night", "wrong"))):
        assert without.status_code == 401
        assert without.headers["WWW-Authenticate"].startswith("Basic realm=")
        assert PAGE not in without.content
    found = get(server, path)
    assert (found.status_code, found.content) == (200, PAGE)
    assert found.headers["Content-Type"] == "text/html; charset=utf-8"
    assert found.headers["X-Content-Type-Options"] == "nosniff"
    assert found.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    policy = found.headers["Content-Security-Policy"].split("; ")
    assert "default-src 'none'" in policy
    assert not [each for each in policy if "script" in each or "allow-same-origin" in each]
    assert "sandbox allow-popups allow-popups-to-escape-sandbox allow-downloads" in policy
    assert "access-control-allow-origin" not in found.headers
    head = httpx.head(f"{server}{path}", auth=("night", "shift-7421"))
    assert (head.status_code, head.content, head.headers["Content-Length"]) == (200, b"", str(len(PAGE)))


def test_the_secret_of_pages_opens_nothing_to_pages_of_others(server: str, store: Store) -> None:
    """A browser that was told the secret brings it with every request, whichever page asks."""
    for origin in ("https://evil.example", "http://127.0.0.1:8888", "null"):
        answer = get(server, page_path(store.uri, REPORT), Origin=origin)
        assert answer.status_code == 403
        assert b"fine" not in answer.content
    moved = get(server, page_path(store.uri, REPORT), Host="evil.example")
    assert moved.status_code == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_is_written(server: str, store: Store, method: str) -> None:
    answer = httpx.request(method, f"{server}{page_path(store.uri, REPORT)}", auth=("night", "shift-7421"))
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")
    assert store.read_bytes(REPORT) == PAGE


def raw(server: str, path: str) -> tuple[int, bytes]:
    """The answer to exactly this path, which other clients put in order first."""
    connection = http.client.HTTPConnection(server.removeprefix("http://"), timeout=60)
    connection.putrequest("GET", path, skip_accept_encoding=True)
    encoded = "bmlnaHQ6c2hpZnQtNzQyMQ=="
    connection.putheader("Authorization", f"Basic {encoded}")
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


@pytest.mark.parametrize(
    "name",
    [
        "../outside.html",
        "runs/../../outside.html",
        "%2e%2e/outside.html",
        "runs/%2e%2e/%2E%2E/outside.html",
        "..%2foutside.html",
        "%252e%252e/outside.html",
        "..\\outside.html",
        "//outside.html",
        "runs//sample-0123456789ab/report.html",
        "./index.html",
        ".podline/server/secret",
        ".podline/server/notes.json",
        "runs/.hidden.json",
        "%2epodline/standing/notes.json",
        "linked.html",
        "linked-secret.html",
        "linked/outside.html",
        "runs",
        "runs/",
        "weights.npz",
        "datasets/sample/sample-train.tfrecord-00000-of-00001",
        "report",
        "report.html%00.json",
        "folder.html",
    ],
)
def test_what_is_no_page_of_the_store_is_not_served(server: str, store: Store, name: str) -> None:
    assert isinstance(store, FolderStore)
    outside = store.root.parent / "outside.html"
    outside.write_text("a secret thing")
    for hidden in (".podline/server/secret", ".podline/server/notes.json", "runs/.hidden.json", "weights.npz"):
        store.root.joinpath(hidden).parent.mkdir(parents=True, exist_ok=True)
        store.root.joinpath(hidden).write_text("a secret thing")
    if not (store.root / "folder.html").exists():
        (store.root / "linked.html").symlink_to(outside)
        (store.root / "linked-secret.html").symlink_to(store.root / ".podline/server/secret")
        (store.root / "linked").symlink_to(store.root.parent)
        (store.root / "folder.html").mkdir()
    assert raw(server, page_path(store.uri, REPORT)) == (200, PAGE)
    status, body = raw(server, f"/stores/{key_of(store.uri)}/{name}")
    assert status == 404
    assert b"a secret thing" not in body
    assert body.endswith(b"\n")
    assert body.count(b"\n") == 1


def test_a_link_within_the_store_is_followed(server: str, store: Store) -> None:
    assert isinstance(store, FolderStore)
    (store.root / "latest.html").symlink_to(store.root / REPORT)
    assert raw(server, page_path(store.uri, "latest.html")) == (200, PAGE)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.md", "text/markdown; charset=utf-8"),
        ("a.json", "application/json"),
        ("a.jsonl", "application/jsonl"),
        ("a.csv", "text/csv; charset=utf-8"),
        ("a.png", "image/png"),
        ("a.webp", "image/webp"),
        ("a.svg", "image/svg+xml"),
    ],
)
def test_types(server: str, store: Store, name: str, kind: str) -> None:
    store.publish_bytes(f"comparisons/ab/{name}", b"{}")
    found = get(server, page_path(store.uri, f"comparisons/ab/{name}"))
    assert (found.status_code, found.headers["Content-Type"]) == (200, kind)
    assert "sandbox" in found.headers["Content-Security-Policy"]


def test_a_page_that_is_large_arrives_whole(server: str, store: Store) -> None:
    page = os.urandom(3_000_000)
    store.publish_bytes("large.html", page)
    assert get(server, page_path(store.uri, "large.html")).content == page


def test_what_is_not_here_is_said_in_a_line(server: str, store: Store, folder: Path) -> None:
    def line(path: str) -> str:
        answer = get(server, path)
        assert answer.status_code == 404
        return answer.text

    gone = page_path(store.uri, "runs/gone/report.html")
    assert line(gone) == f"{store.uri}/runs/gone/report.html is not there\n"
    assert "is written at the end of a run" in line(page_path(store.uri, "index.html"))
    away = folder / "away"
    assert line(page_path(str(away), REPORT)).startswith(f"{away} is not a store on this machine")
    # A folder that is no store is none, though the settings name it.
    (folder / "plain").mkdir()
    (folder / "plain" / "a.json").write_text("{}")
    assert "is not a store on this machine" in line(page_path(str(folder / "plain"), "a.json"))
    # Nor is a store served that no setting names.
    other = open_store(folder / "other")
    other.publish_bytes(REPORT, PAGE)
    assert "is not served; the settings root and pages.stores" in line(page_path(other.uri, REPORT))
    assert line("/podline/") == line("/api/flows") == "no page has this address\n"


def test_the_way_to_the_index(server: str, store: Store) -> None:
    store.publish_bytes("index.html", PAGE)
    found = httpx.get(f"{server}{page_path(store.uri, '')}", auth=("night", "shift-7421"), follow_redirects=True)
    assert (found.status_code, found.content) == (200, PAGE)
    assert str(found.url) == f"{server}{page_path(store.uri, 'index.html')}"
    # Of several stores there is a list.
    assert f'<a href="stores/{key_of(store.uri)}/index.html">{store.uri}</a>' in get(server, "/").text


@pytest.mark.usefixtures("asked")
def test_links_are_made_to_stores_that_are_served(
    server: str, store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PageLinks(store).to(REPORT) == f"[{store.where(REPORT)}]({server}{page_path(store.uri, REPORT)})"
    other = open_store(folder / "other")
    assert PageLinks(other).to(REPORT) == f"`{other.where(REPORT)}`"
    monkeypatch.delenv("PODLINE_PAGES_URL")
    assert PageLinks(store).to(REPORT) == f"`{store.where(REPORT)}`"


@pytest.mark.usefixtures("asked")
def test_pages_in_a_bucket(server: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(bucket)
    store.publish_bytes(REPORT, PAGE)
    assert PageLinks(store).to(REPORT) == f"[{store.where(REPORT)}]({server}{page_path(store.uri, REPORT)})"
    found = get(server, page_path(store.uri, REPORT))
    assert (found.status_code, found.content) == (200, PAGE)
    gone = get(server, page_path(store.uri, "runs/gone/report.html"))
    assert (gone.status_code, gone.text) == (404, f"{store.uri}/runs/gone/report.html is not there\n")
    # A bucket that cannot be read is an error of one line.
    lost = open_store("gs://no-such-bucket/nights")
    answer = get(server, page_path(lost.uri, REPORT))
    assert answer.status_code == 502
    assert "no-such-bucket" in answer.text
    assert answer.text.count("\n") == 1
    # Where no pages are served, the link is Google's.
    monkeypatch.delenv("PODLINE_PAGES_URL")
    link = "https://storage.cloud.google.com/no-such-bucket/nights/runs/sample-0123456789ab/report.html"
    assert PageLinks(lost).to(REPORT) == f"[{lost.where(REPORT)}]({link})"


def test_without_a_secret_none_is_asked_for_and_one_store_has_no_list(tmp_path: Path) -> None:
    store = open_store(tmp_path / "nights")
    store.publish_bytes("index.html", PAGE)

    async def get() -> bytes:
        transport = httpx.ASGITransport(Pages({key_of(store.uri): store}, ""))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.get("/", follow_redirects=True)).content

    assert asyncio.run(get()) == PAGE


def test_pages_for_other_machines_want_a_secret(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "podline.deployments.pages", "--host", "0.0.0.0"]  # noqa: S104 (to be refused)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT")}
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert refused.returncode == 2
    assert "PREFECT_SERVER_API_AUTH_STRING" in refused.stderr
