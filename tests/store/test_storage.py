"""The store: whole or not there, never overwritten by accident, tidy after a kill; in a folder and in a bucket."""

from __future__ import annotations

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from podline.base.errors import ArtifactError, SettingsError, StoreError
from podline.base.progress import Event, Reporter, reported_by
from podline.store import digests
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.opening import open_store


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return open_store(tmp_path / "a store with spaces, ü")
    return open_store(request.getfixturevalue("gcs_root"))


@pytest.fixture
def folder(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "a folder")


def test_a_listing_does_not_mind_folders_that_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, scandir = FolderStore(tmp_path), os.scandir
    for name in ("runs/a/x", "runs/b/x", ".podline/tmp/x"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()

    def gone(path: str) -> Any:
        if Path(path).name in ("a", ".podline"):
            raise FileNotFoundError(errno.ENOENT, "gone", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", gone)
    assert store.list() == ["runs/b/x"]


def test_long_work_on_many_or_large_files_gives_signs_of_life(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podline.base.progress._REPORT_SECONDS", 0.0)
    source, events = tmp_path / "large", list[Event]()
    content = os.urandom(20_000_001)
    source.write_bytes(content)
    works = {
        "publishes": lambda: store.publish_file(source, "large", flush=False),
        "lists": lambda: [*store.listing()],
        "flushes or fetches": lambda: (store.flush(["large"]), store.local("large")),
        "fetches many": lambda: store.locals(["large", "large"]),
        "hashes": lambda: digests.of_file(store.local("large")),
    }
    with reported_by(Reporter("convert", events.append)):
        for name, work in works.items():
            events.clear()
            work()
            if isinstance(store, FolderStore) and name in ("publishes", "fetches many"):
                continue  # a rename, nothing
            assert events == [{"event": "alive", "stage": "convert"}] * len(events) != [], name
    assert digests.of_file(store.local("large")) == store.sha256("large") == digests.of_bytes(content)


def test_published_content_is_read_found_and_listed(store: Store) -> None:
    store.publish_bytes("a/b.bin", b"one")
    store.publish_json("a/c.json", {"x": 1})
    assert (store.read_bytes("a/b.bin"), store.read_json("a/c.json")) == (b"one", {"x": 1})
    assert store.list() == store.list("a") == ["a/b.bin", "a/c.json"]
    assert (store.exists("a/b.bin"), store.exists("a"), store.find("nothing")) == (True, False, None)
    found = store.find("a/b.bin")
    assert found is not None
    assert (found.bytes, found.published > 1_600_000_000) == (3, True)
    assert next(store.listing()) == found
    assert store.sha256("a/b.bin") == digests.of_bytes(b"one")
    for ask in (store.sha256, store.read_bytes, store.read_json):
        with pytest.raises(StoreError, match=r"cannot read .*nothing"):
            ask("nothing")
    store.publish_bytes("broken.json", b"{")
    with pytest.raises(ArtifactError, match=r"broken\.json is not valid JSON"):
        store.read_json("broken.json")


def test_the_same_content_may_be_published_twice_but_other_content_may_not(store: Store) -> None:
    store.publish_bytes("name", b"one")
    store.publish_bytes("name", b"one")
    with pytest.raises(ArtifactError, match=r"name is already there with other content; delete it"):
        store.publish_bytes("name", b"two")
    assert store.read_bytes("name") == store.local("name").read_bytes() == b"one"
    store.publish_bytes("name", b"two", replace=True)
    assert store.read_bytes("name") == store.local("name").read_bytes() == b"two"
    store.publish_bytes("other", b"three")
    assert [path.read_bytes() for path in store.locals(["other", "name"])] == [b"three", b"two"]


@pytest.mark.parametrize("name", ["a/b c.bin", "ü/ß#1?.bin", "100%/x%20y.bin", "a+b&c=d;e.bin", "日本/語.bin"])
def test_a_name_may_hold_any_letter(store: Store, name: str) -> None:
    store.publish_bytes(name, b"content")
    assert store.list() == [name]
    assert store.list(name.split("/", maxsplit=1)[0]) == ([name] if "/" in name else [])
    assert (store.read_bytes(name), store.local(name).read_bytes()) == (b"content", b"content")
    assert store.where(name) == f"{store.uri}/{name}"
    store.delete(name)
    store.delete(name)
    assert not store.exists(name)


def test_a_listing_is_in_the_order_of_names(store: Store) -> None:
    names = ["a-b/x", "a.x", "a/b/x", "a/b0", "a0"]
    for name in reversed(names):
        store.publish_bytes(name, b"")
    assert store.list() == names == sorted(names)
    assert (store.list("a"), store.list("nothing")) == (names[2:4], [])
    assert (store.folders("a"), store.folders("nothing")) == (["a/b"], [])


def test_ranges_are_read_and_another_version_is_refused(store: Store) -> None:
    store.publish_bytes("name", bytes(range(100)))
    found = store.find("name")
    assert found is not None
    assert store.read_range("name", 10, 5, found.version) == bytes(range(10, 15))
    assert store.read_range("name", 95, 10) == bytes(range(95, 100))
    assert store.read_range("name", 100, 10) == store.read_range("name", 3, 0) == b""
    store.publish_bytes("name", bytes(100), replace=True)
    with pytest.raises(ArtifactError, match=r"name"):
        store.read_range("name", 10, 5, found.version)


def test_folders_go_with_their_last_file_while_others_write_there(folder: FolderStore) -> None:
    def work(worker: int) -> None:
        for number in range(200):
            name = f"jobs/one/{worker}-{number}"
            folder.publish_bytes(name, b"content", flush=bool(number % 2))
            folder.delete(name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert not (folder.root / "jobs").exists()
    assert folder.root.is_dir()


def test_a_name_cannot_leave_the_store(store: Store) -> None:
    for name in ("../x", "a/../../x", "/etc/passwd"):
        with pytest.raises(ArtifactError, match="leads out of the store"):
            store.local(name)


def test_a_root_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(StoreError, match=r"cannot write to the store .*file/root") as caught:
        open_store(blocked / "root").publish_bytes("name", b"x")
    assert "\n" not in str(caught.value)
    (tmp_path / "root" / "name").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"cannot write .*name: Is a directory"):
        open_store(tmp_path / "root").publish_bytes("name", b"x", replace=True)


@pytest.mark.parametrize(
    "root", ["ftp://host/x", "gs:/bucket/x", "gs://", "gs:///x", "gs://b/a//b", "gs://b/../x", "gs://Bad_Name!/x"]
)
def test_a_root_that_can_be_no_store_is_refused_by_name(root: str) -> None:
    with pytest.raises(SettingsError, match=root):
        open_store(root)


def test_nobody_else_can_enter_the_scratch_folder(tmp_path: Path) -> None:
    """Not of a new store, not of an older one whose folder was open, not of one inside another's."""
    for root in ("new", "older"):
        store = FolderStore(tmp_path / root)
        if root == "older":
            (store.scratch / "logs").mkdir(parents=True)
            store.scratch.chmod(0o755)
        store.publish_bytes("runs/it/spec.json", b"{}")
        assert stat.S_IMODE(store.scratch.stat().st_mode) == 0o700
        # What is published stays as readable as it was.
        assert stat.S_IMODE((tmp_path / root / "runs").stat().st_mode) & 0o055
    inner = FolderStore(tmp_path / "outer" / ".podline" / "sources")
    with inner.workspace("unpack"):
        assert stat.S_IMODE((tmp_path / "outer" / ".podline").stat().st_mode) == 0o700
