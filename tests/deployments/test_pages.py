"""Pages of stores are served to whoever has their secret, nothing else is, and a browser lets them do nothing."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from podline.deployments.pages import Pages
from podline.store.folder import FolderStore
from podline.store.opening import open_store
from podline.store.page_links import PageLinks, key_of, page_path, served

SECRET = "night:shift-7421"  # noqa: S105 (of this test's own server)
REPORT = "runs/sample-0123456789ab/report.html"
PAGE = b"<!doctype html><title>R</title><p>fine</p>"
URL = "http://127.0.0.1:4201"

Ask = Callable[..., httpx.Response]


def asking(app: Any) -> Ask:
    """Return what sends requests to an application with exactly the given path, which clients put in order first."""

    def ask(path: str, method: str = "GET", secret: str = SECRET, host: str = URL[7:], **more: str) -> httpx.Response:
        given = {"Host": host, "Authorization": f"Basic {base64.b64encode(secret.encode()).decode()}", **more}
        headers = [(name.lower().encode(), value.encode()) for name, value in given.items()]
        scope = {"type": "http", "method": method, "path": unquote(path), "raw_path": path.encode(), "headers": headers}
        sent: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> None:
            await asyncio.Event().wait()

        asyncio.run(app({**scope, "query_string": b""}, receive, send))
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return httpx.Response(sent[0]["status"], headers=sent[0]["headers"], content=body)

    return ask


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    made = open_store(tmp_path / "nights")
    assert isinstance(made, FolderStore)
    made.publish_bytes(REPORT, PAGE)
    return made


@pytest.fixture
def bucket(gcs_root: str) -> str:
    return f"gs://podline-test/{uuid.uuid4().hex}/a store ü"


@pytest.fixture
def ask(store: FolderStore, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Send requests to the pages of a folder, a bucket, a bucket and a folder that are away, and of no store."""
    stores = (bucket, "gs://no-such-bucket/nights", str(tmp_path / "away"), str(tmp_path / "plain"))
    monkeypatch.setenv("PODLINE_ROOT", store.uri)
    monkeypatch.setenv("PODLINE_PAGES_STORES", ",".join(stores))
    monkeypatch.setenv("PODLINE_PAGES_URL", f"{URL}/")
    return asking(Pages(served(), SECRET))


def test_a_page_is_there_for_whoever_has_the_secret(ask: Ask, store: FolderStore) -> None:
    path = page_path(store.uri, REPORT)
    for without in (
        ask(path, secret=SECRET[:-1]),
        *(ask(path, Authorization=f"Basic {text}") for text in ("?", "é", "")),
    ):
        assert without.status_code == 401
        assert without.headers["WWW-Authenticate"].startswith("Basic realm=")
        assert PAGE not in without.content
    found = ask(path)
    assert (found.status_code, found.content) == (200, PAGE)
    assert found.headers["Content-Type"] == "text/html; charset=utf-8"
    assert found.headers["X-Content-Type-Options"] == "nosniff"
    assert found.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    policy = found.headers["Content-Security-Policy"].split("; ")
    assert "default-src 'none'" in policy
    assert not [each for each in policy if "script" in each or "allow-same-origin" in each]
    assert "sandbox allow-popups allow-popups-to-escape-sandbox allow-downloads" in policy
    assert "access-control-allow-origin" not in found.headers
    head = ask(path, "HEAD")
    assert (head.status_code, head.content, head.headers["Content-Length"]) == (200, b"", str(len(PAGE)))
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        answer = ask(path, method)
        assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")


# Outside of the store, hidden in it, reached by a link, or no page.
NO_PAGES = ["../outside.html", "%2e%2e/outside.html", "..%2foutside.html", "%252e%252e/outside.html"]
NO_PAGES += ["..\\outside.html", "//outside.html", "runs//sample-0123456789ab/report.html", "./index.html"]
NO_PAGES += [".podline/server/notes.json", "runs/.hidden.json"]
NO_PAGES += ["linked.html", "linked-secret.html", "linked/outside.html"]
NO_PAGES += ["runs/", "weights.npz", "report", "report.html%00.json", "folder.html"]


@pytest.mark.parametrize("name", NO_PAGES)
def test_what_is_no_page_of_the_store_is_not_served(ask: Ask, store: FolderStore, name: str) -> None:
    outside = store.root.parent / "outside.html"
    outside.write_text("a secret thing")
    for hidden in (".podline/server/notes.json", "runs/.hidden.json", "weights.npz"):
        store.root.joinpath(hidden).parent.mkdir(parents=True, exist_ok=True)
        store.root.joinpath(hidden).write_text("a secret thing")
    (store.root / "linked.html").symlink_to(outside)
    (store.root / "linked-secret.html").symlink_to(store.root / ".podline/server/notes.json")
    (store.root / "linked").symlink_to(store.root.parent)
    (store.root / "latest.html").symlink_to(store.root / REPORT)
    (store.root / "folder.html").mkdir()
    assert ask(page_path(store.uri, "latest.html")).content == PAGE, "a link within the store is followed"
    answer = ask(f"/stores/{key_of(store.uri)}/{name}")
    assert answer.status_code == 404
    assert "a secret thing" not in answer.text
    assert answer.text.count("\n") == 1


def test_runs_on_another_disk_are_served(ask: Ask, store: FolderStore) -> None:
    (store.root / "runs").rename(store.root.parent / "far")
    (store.root / "runs").symlink_to(store.root.parent / "far")
    assert ask(page_path(store.uri, REPORT)).content == PAGE
    (store.root.parent / "outside.html").write_text("a secret thing")
    (store.root / "runs" / "up.html").symlink_to(store.root.parent / "outside.html")
    assert ask(page_path(store.uri, "runs/up.html")).status_code == 404


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.md", "text/markdown; charset=utf-8"), ("a.json", "application/json"), ("a.svg", "image/svg+xml")],
)
def test_each_kind_of_file_has_its_type(ask: Ask, store: FolderStore, name: str, kind: str) -> None:
    content = os.urandom(600_000)
    store.publish_bytes(name, content)
    found = ask(page_path(store.uri, name))
    assert (found.status_code, found.content, found.headers["Content-Type"]) == (200, content, kind)


def test_what_is_not_here_is_said_in_a_line(ask: Ask, store: FolderStore, tmp_path: Path) -> None:
    def line(path: str) -> str:
        answer = ask(path)
        assert answer.status_code == 404
        return answer.text

    gone = page_path(store.uri, "runs/gone/report.html")
    assert line(gone) == f"{store.uri}/runs/gone/report.html is not there\n"
    assert "is written at the end of a run" in line(page_path(store.uri, "index.html"))
    # A folder that is no store is none, though the settings name it.
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.json").write_text("{}")
    for folder in (tmp_path / "away", tmp_path / "plain"):
        assert line(page_path(str(folder), "a.json")).startswith(f"{folder} is not a store on this machine")
    other = open_store(tmp_path / "other")
    other.publish_bytes(REPORT, PAGE)
    assert "is not served; the settings root and pages.stores" in line(page_path(other.uri, REPORT))
    assert PageLinks(other).to(REPORT) == f"`{other.where(REPORT)}`"
    assert line("/podline/") == line("/api/flows") == "no page has this address\n"


def test_the_way_to_the_index(ask: Ask, store: FolderStore) -> None:
    assert ask(page_path(store.uri, "")).headers["Location"] == "index.html"
    key = key_of(store.uri)
    assert ask(f"/stores/{key}").headers["Location"] == f"{key}/index.html"
    # Of several stores there is a list.
    assert f'<a href="stores/{key}/index.html">{store.uri}</a>' in ask("/").text
    one = asking(Pages({key: store}, SECRET))
    assert one("/").headers["Location"] == page_path(store.uri, "index.html")[1:]


def test_pages_of_a_folder_and_a_bucket_and_links_to_them(
    ask: Ask, store: FolderStore, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_bucket = open_store(bucket)
    in_bucket.publish_bytes(REPORT, PAGE)
    for each in (store, in_bucket):
        assert PageLinks(each).to(REPORT) == f"[{each.where(REPORT)}]({URL}{page_path(each.uri, REPORT)})"
    found = ask(page_path(in_bucket.uri, REPORT))
    assert (found.status_code, found.content) == (200, PAGE)
    assert ask(page_path(in_bucket.uri, "runs/gone/report.html")).status_code == 404
    lost = open_store("gs://no-such-bucket/nights")
    answer = ask(page_path(lost.uri, REPORT))
    assert (answer.status_code, "no-such-bucket" in answer.text, answer.text.count("\n")) == (502, True, 1)
    # Where no pages are served, the link is Google's.
    monkeypatch.delenv("PODLINE_PAGES_URL")
    link = f"https://storage.cloud.google.com/no-such-bucket/nights/{REPORT}"
    assert PageLinks(lost).to(REPORT) == f"[{lost.where(REPORT)}]({link})"
    assert PageLinks(store).to(REPORT) == f"`{store.where(REPORT)}`"


def test_a_root_that_cannot_be_opened_ends_in_a_line(tmp_path: Path) -> None:
    """As a bucket whose copies would lie on a disk that is read only."""
    (tmp_path / "file").write_text("")
    environment = {
        "PODLINE_PAGES_SECRET": SECRET,
        "PODLINE_ROOT": "gs://podline-test/nights",
        "PODLINE_STORE_CACHE": str(tmp_path / "file" / "cache"),
        "STORAGE_EMULATOR_HOST": "http://127.0.0.1:9",
    }
    command = [sys.executable, "-m", "podline.deployments.pages"]
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert refused.returncode == 2
    assert re.fullmatch(r"\S.* error: cannot write to the cache .*\n", refused.stderr)
