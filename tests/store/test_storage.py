"""The store in a folder and in a bucket: whole or not there, never overwritten by accident, also when a disk fails."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import stat
import subprocess
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from podline.base.errors import ArtifactError, PodlineError, SettingsError, StoreError, StoreUnavailableError
from podline.base.progress import Event, Reporter, reported_by
from podline.store import digests
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.one_writer import writing
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
    with pytest.raises(ArtifactError, match=r"name already exists with other content; delete it"):
        store.publish_bytes("name", b"two")
    assert store.read_bytes("name") == store.local("name").read_bytes() == b"one"
    store.publish_bytes("name", b"two", replace=True)
    assert store.read_bytes("name") == store.local("name").read_bytes() == b"two"
    store.publish_bytes("other", b"three")
    assert [path.read_bytes() for path in store.locals(["other", "name"])] == [b"three", b"two"]


def test_a_deletion_of_a_version_has_no_new_version_and_spares_any_other_one(store: Store) -> None:
    store.publish_bytes("name", b"one")
    version = getattr(store.find("name"), "version", "")
    assert store.swap(None, "name", "") == ""
    assert store.exists("name")
    assert store.swap(None, "name", version) == ""
    assert not store.exists("name")


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


NAMES = {"runs/a/one", "runs/b/two", "runs/a/writer.lease"}
# Of these, a server may have done the work before its answer is lost.
DONE_AT_ONCE = ("replace", "link", "unlink", "mkdir", "rmdir")
CALLS = ("stat", *DONE_AT_ONCE, "scandir", "open", "fsync")


class FaultySystem:
    """Counts the system's calls on a folder; some of them fail, before or after they did their work."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.count, self.names = str(folder), 0, list[str]()
        self.fails: Callable[[int], bool] = lambda _number: False
        self.error, self.after = errno.ESTALE, False
        for module, name in (*((os, name) for name in CALLS), (io, "open")):
            patch.setattr(module, name, self._faulty(name, getattr(module, name)))

    def _faulty(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*args: Any, **kwargs: Any) -> Any:
            if name != "fsync" and not (isinstance(args[0], str | Path) and str(args[0]).startswith(self.folder)):
                return call(*args, **kwargs)
            self.count += 1
            self.names.append(name)
            if not self.fails(self.count):
                return None if name == "fsync" else call(*args, **kwargs)
            if self.after and name in DONE_AT_ONCE:
                call(*args, **kwargs)
            raise OSError(self.error, os.strerror(self.error), str(args[0]))

        return faulty


def work(store: Store) -> None:
    """Publishes, replaces, reads, lists and deletes."""
    store.publish_bytes("runs/a/one", b"1")
    store.publish_bytes("runs/a/one", b"2" * 9, replace=True)
    store.publish_bytes("runs/b/two", b"x", flush=False)
    assert store.read_bytes("runs/a/one") == b"2" * 9
    found = store.find("runs/a/one")
    assert found is not None
    assert b"".join(store.read_pieces("runs/a/one", 4, found.version)) == b"2" * 9
    assert store.list() == ["runs/a/one", "runs/b/two"]
    assert store.folders("runs") == ["runs/a", "runs/b"]
    assert store.now() > 0
    store.delete("runs/b/two", store.listing("runs/b").__next__().version)
    assert store.list() == ["runs/a/one"]


def take_turns(store: Store) -> None:
    """Holds names and the lease of a folder, and writes there."""
    with store.using(["runs/a"]), store.alone("runs/a", "runs/b") as free:
        assert free == {"runs/b"}
    with writing(store, "runs/a", "train", lambda *_: None):
        store.publish_bytes("runs/a/one", b"1")
        store.publish_bytes("runs/a/one", b"2", replace=True)
        store.delete("runs/a/one")
    assert store.list() == []


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FaultySystem:
    monkeypatch.setattr("podline.store.retries._PAUSES", (0.0, 0.0))
    return FaultySystem(tmp_path / "root", monkeypatch)


def calls_of(work: Callable[[Store], None], root: Path, system: FaultySystem) -> Iterator[int]:
    """Yields the number of each call of some work that can fail so; the work finds no store."""
    work(open_store(root))
    for number, name in enumerate([*system.names], 1):
        if name in DONE_AT_ONCE or not system.after:
            shutil.rmtree(root)
            system.count = 0
            yield number
            system.fails = lambda _number: False


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("act", [work, take_turns])
def test_an_error_that_passes_is_not_noticed(
    tmp_path: Path, system: FaultySystem, act: Callable[[Store], None], after: bool
) -> None:
    system.after = after
    for number in calls_of(act, tmp_path / "root", system):
        system.fails = number.__eq__
        act(open_store(tmp_path / "root"))


@pytest.mark.parametrize("act", [work, take_turns])
@pytest.mark.parametrize(("error", "kind"), [(errno.EIO, StoreUnavailableError), (errno.ENOSPC, StoreError)])
def test_errors_that_stay_are_one_line_and_lose_nothing(
    tmp_path: Path, system: FaultySystem, act: Callable[[Store], None], error: int, kind: type[PodlineError]
) -> None:
    system.error = error
    for number in calls_of(act, tmp_path / "root", system):
        first = system.names[number - 1]
        system.fails = lambda call, number=number: call >= number
        with pytest.raises(kind) as caught:
            act(open_store(tmp_path / "root"))
        system.fails = lambda _number: False
        assert str(caught.value).startswith("cannot "), (first, caught.value)
        assert "\n" not in str(caught.value)
        left = open_store(tmp_path / "root")
        assert set(left.list()) <= NAMES
        assert not left.exists("runs/a/one") or left.read_bytes("runs/a/one") in (b"1", b"2", b"2" * 9)
        for name in NAMES:
            left.delete(name)
        work(left)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Another file system of 64 KB."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_runs_on_another_disk_are_durable_and_a_full_one_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, synced = FolderStore(tmp_path / "root"), list[str]()
    store.root.mkdir()
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda file: (synced.append(str(Path(f"/proc/self/fd/{file}").readlink())), fsync(file))
    )
    monkeypatch.setattr(os, "replace", lambda *names: (replace(*names), synced.append("renamed")))
    with small_disk(tmp_path / "far") as far:
        (store.root / "runs").symlink_to(far)
        store.publish_bytes("runs/a/one", b"1")
        assert far / "a" == Path(synced[-1])
        copy = Path(synced[-2])
        assert (copy.parent, copy.name[:5]) == (far / "a", ".one.")
        synced.clear()
        store.publish_bytes("runs/a/one", b"2", replace=True)
        assert [Path(each).parent for each in synced[-3:-2]] == [far / "a"]
        assert synced[-2:] == ["renamed", str(far / "a")]
        with pytest.raises(ArtifactError, match="already exists with other content"):
            store.publish_bytes("runs/a/one", b"3")
        for name in ("one", "large"):
            with pytest.raises(StoreError, match="no space left on the device; free some"):
                store.publish_bytes(f"runs/a/{name}", bytes(1_000_000), replace=True)
        assert store.list() == ["runs/a/one"]
        assert store.read_bytes("runs/a/one") == b"2"
        assert [*far.rglob("*")] == [far / "a", far / "a" / "one"]


def test_without_hard_links_the_first_writer_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: Path, _target: Path) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), str(source))

    monkeypatch.setattr(os, "link", no_links)

    def publish(name: str) -> str:
        content = uuid.uuid4().hex
        try:
            FolderStore(tmp_path / "root").publish_bytes(name, content.encode(), flush=False)
        except ArtifactError:
            return ""
        return content

    with ThreadPoolExecutor(8) as pool:
        for round_ in range(40):
            name = f"runs/{round_}"
            [winner] = filter(None, pool.map(publish, [name] * 8))
            assert FolderStore(tmp_path / "root").read_bytes(name).decode() == winner
