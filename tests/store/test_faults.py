"""Disks and mounted folders that fail: every call of a store may get an error, and nothing published is lost."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from podline.base.errors import ArtifactError, PodlineError, StoreError, StoreUnavailableError
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.one_writer import writing
from podline.store.opening import open_store

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
        with pytest.raises(ArtifactError, match="already there with other content"):
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
