"""Pages of stores over a real server's HTTP: what is served to whom, what is not, and what a browser is told of it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, PREFECT_UI_URL, temporary_settings
from prefect_servers import wait_until
from starlette.responses import PlainTextResponse

from podline.deployments import served_stores
from podline.deployments.pages import Pages
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.opening import open_store
from podline.tasks.addresses import Known, key_of, page_path
from podline.tasks.page_links import PageLinks, address, name_store

SECRET = "night:shift-7421"  # noqa: S105 (of this test's own server)
REPORT = "runs/sample-0123456789ab/report.html"
PAGE = b"<!doctype html><title>R</title><p>fine</p>"


@contextlib.contextmanager
def served(folder: Path, **variables: str) -> Iterator[str]:
    """A server with pages, as the service file starts it; its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PREFECT")},
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_ENABLED": "false",
        "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
        **variables,
    }
    command = [sys.executable, "-m", "podline.deployments.server", "--port", str(port)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: process.poll() is not None or _answers(url))
        assert process.poll() is None, (folder / "server.log").read_text()
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/api/health").status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def emulated(gcs: str) -> dict[str, str]:
    """What leads a server to the stand-in for Google's buckets."""
    return {"STORAGE_EMULATOR_HOST": gcs}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, emulated: dict[str, str]) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    cache = {"PODLINE_STORE_CACHE": str(folder / "cache")}
    with served(folder, PREFECT_SERVER_API_AUTH_STRING=SECRET, **emulated, **cache) as url:
        yield url


@pytest.fixture
def asked(server: str) -> Iterator[None]:
    """This process's server is that one, whose UI no other test has given an address."""
    ours = {PREFECT_API_URL: f"{server}/api", PREFECT_API_AUTH_STRING: SECRET}
    with temporary_settings(ours, restore_defaults={PREFECT_UI_URL}):
        yield


@pytest.fixture
def store(tmp_path: Path, asked: None) -> Store:
    """A store with a page, which the server knows."""
    made = open_store(tmp_path / "nights")
    made.publish_bytes(REPORT, PAGE)
    name(made)
    return made


def name(store: Store, deployment: str = "") -> None:
    with get_client(sync_client=True) as client:
        name_store(client, store.uri, deployment)


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
    # What has not changed is not sent again.
    assert get(server, path, **{"If-None-Match": found.headers["ETag"]}).status_code == 304
    head = httpx.head(f"{server}{path}", auth=("night", "shift-7421"))
    assert (head.status_code, head.content, head.headers["Content-Length"]) == (200, b"", str(len(PAGE)))


def test_the_secret_of_pages_opens_nothing_to_pages_of_others(server: str, store: Store) -> None:
    """A browser that was told the secret brings it with every request, whichever page asks."""
    for path, method in (("/api/flows/", "POST"), (page_path(store.uri, REPORT), "GET")):
        for origin in ("https://evil.example", "http://127.0.0.1:8888", "null"):
            answer = httpx.request(
                method,
                f"{server}{path}",
                json={"name": "evil"},
                auth=("night", "shift-7421"),
                headers={"Origin": origin},
            )
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
    (store.root / "linked.html").symlink_to(outside)
    (store.root / "linked-secret.html").symlink_to(store.root / ".podline/server/secret")
    (store.root / "linked").symlink_to(store.root.parent)
    (store.root / "folder.html").mkdir()
    assert raw(server, page_path(store.uri, REPORT)) == (200, PAGE)
    status, body = raw(server, f"/podline/stores/{key_of(store.uri)}/{name}")
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


def test_what_is_not_here_is_said_in_a_line(server: str, store: Store, tmp_path: Path) -> None:
    def line(path: str) -> str:
        answer = get(server, path)
        assert answer.status_code == 404
        return answer.text

    gone = page_path(store.uri, "runs/gone/report.html")
    assert line(gone) == f"{store.uri}/runs/gone/report.html is not there\n"
    assert "is written when a run ends" in line(page_path(store.uri, "index.html"))
    elsewhere = FolderStore(tmp_path / "on another machine")
    assert "no run has named a store" in line(page_path(elsewhere.uri, REPORT))
    name(elsewhere)
    told = f"{elsewhere.uri}/{REPORT} is not on this server's machine; it is on {socket.gethostname()}"
    assert line(page_path(elsewhere.uri, REPORT)).startswith(told)
    # A folder that is no store is none, whoever names it.
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.json").write_text("{}")
    plain = FolderStore(tmp_path / "plain")
    name(plain)
    assert "is not on this server's machine" in line(page_path(plain.uri, "a.json"))


def test_the_way_to_the_index(server: str, store: Store) -> None:
    """From a deployment, whichever store it uses, and from a store's own address."""
    store.publish_bytes("index.html", PAGE)
    key = key_of(store.uri)
    name(store, "CIFAR nightly")
    for path in ("/podline/nights/CIFAR%20nightly", f"/podline/stores/{key}/"):
        found = httpx.get(f"{server}{path}", auth=("night", "shift-7421"), follow_redirects=True)
        assert (found.status_code, found.content) == (200, PAGE)
        assert str(found.url) == f"{server}{page_path(store.uri, 'index.html')}"
    # Of a deployment that has not run yet there are the stores of the others.
    listed = httpx.get(f"{server}/podline/nights/other", auth=("night", "shift-7421"), follow_redirects=True)
    assert listed.status_code == 200
    if "Stores" in listed.text:
        assert f'href="../stores/{key}/index.html">{store.uri}<' in listed.text


def test_links_are_made_where_they_lead_somewhere(store: Store, tmp_path: Path) -> None:
    links = PageLinks(store)
    assert links.to(REPORT) == f"[{store.where(REPORT)}]({page_path(store.uri, REPORT)})"
    assert links.to(REPORT, "the page") == f"[the page]({page_path(store.uri, REPORT)})"
    assert links.to("runs/gone/report.html") == f"`{store.uri}/runs/gone/report.html`"
    assert links.to("index.html", like=REPORT) == f"[{store.uri}/index.html]({page_path(store.uri, 'index.html')})"
    # The folder has the same name on another machine, and another page in it.
    away = FolderStore(tmp_path / "away")
    away.publish_bytes(REPORT, PAGE + b"<p>another</p>")
    away.uri = store.uri
    assert PageLinks(away).to(REPORT) == f"`{away.where(REPORT)}`"


def test_pages_in_a_bucket(server: str, asked: None, gcs_root: str) -> None:
    store = open_store(gcs_root)
    store.publish_bytes(REPORT, PAGE)
    assert PageLinks(store).to(REPORT) == f"[{store.where(REPORT)}]({page_path(store.uri, REPORT)})"
    found = get(server, page_path(store.uri, REPORT))
    assert (found.status_code, found.content) == (200, PAGE)
    gone = get(server, page_path(store.uri, "runs/gone/report.html"))
    assert (gone.status_code, gone.text) == (404, f"{store.uri}/runs/gone/report.html is not there\n")
    # A bucket that cannot be read is told of, and has a link of Google's.
    lost = open_store("gs://no-such-bucket/nights")
    name(lost)
    answer = get(server, page_path(lost.uri, REPORT))
    assert answer.status_code == 502
    assert "no-such-bucket" in answer.text
    assert answer.text.count("\n") == 1
    link = "https://storage.cloud.google.com/no-such-bucket/nights/runs/sample-0123456789ab/report.html"
    assert PageLinks(lost).to(REPORT) == f"[{lost.where(REPORT)}]({link})"


class _OfOthers(http.server.BaseHTTPRequestHandler):
    """Answers every address with the same page, as Prefect's UI does."""

    asked: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("ETag", '"0123"')
        self.end_headers()

    def log_request(self, *_answered: Any) -> None:
        self.asked.append(self.command)


def test_a_server_of_others_gets_no_links_and_no_variables(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.publish_bytes(REPORT, PAGE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _OfOthers) as others:
        threading.Thread(target=others.serve_forever).start()
        with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{others.server_port}/api"}):
            assert PageLinks(store).to(REPORT) == f"`{store.where(REPORT)}`"
        others.shutdown()
    # Asked whether it serves pages; nothing is put there.
    assert _OfOthers.asked == ["HEAD"]
    # Nor is a service asked that has its API elsewhere, or a server that is away.
    for url in (f"http://127.0.0.1:{others.server_port}/api/accounts/1/workspaces/2", "http://127.0.0.1:1/api"):
        with temporary_settings({PREFECT_API_URL: url}):
            assert PageLinks(store).to(REPORT) == f"`{store.where(REPORT)}`"


@pytest.mark.parametrize("base", ["", "/", "/prefect", "/prefect/"])
def test_without_a_secret_nobody_is_asked_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str) -> None:
    store = open_store(tmp_path / "nights")
    store.publish_bytes(REPORT, PAGE)

    async def named(key: str) -> Known | None:
        return Known(uri=store.uri, machine="here") if key == key_of(store.uri) else None

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("Prefect")(scope, receive, send)

    async def get(path: str) -> bytes:
        transport = httpx.ASGITransport(Pages(inner, "", base))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.get(path)).content

    monkeypatch.setattr(served_stores, "named", named)
    page = page_path(store.uri, REPORT)
    for path in {page, f"{base.rstrip('/')}{page}"}:
        assert asyncio.run(get(path)) == PAGE
    for path in ("/api/flows/", "/", "/podlines/stores/", f"/x{page}"):
        assert asyncio.run(get(path)) == b"Prefect"


def test_an_address_of_the_ui_that_is_set_is_that_of_the_links() -> None:
    """Behind a proxy; else the browser knows by which name it reached the server, through a tunnel as well."""
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:4200/api"}, restore_defaults={PREFECT_UI_URL}):
        assert address("/podline/x") == "/podline/x"
    with temporary_settings(
        {PREFECT_API_URL: "http://127.0.0.1:4200/api", PREFECT_UI_URL: "https://nights.example/p/"}
    ):
        assert address("/podline/x") == "https://nights.example/p/podline/x"
