"""Locks end with their process and say who has them; the cache holds its limit, whoever uses it."""

from __future__ import annotations

import concurrent.futures
import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from podline.base.errors import StoreError
from podline.base.progress import Event, Reporter
from podline.store import locks, uses
from podline.store.cache import Cache
from podline.store.folder import FolderStore

_HOLD = """
import os, pathlib, sys
from podline.store import locks
os.setuid(int(sys.argv[2]))
with locks.turn(pathlib.Path(sys.argv[1]), "train of runs/first", lambda *_: None):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_waiting_is_news_at_first_and_then_ever_more_seldom_and_a_sign_of_life_every_ten_seconds() -> None:
    events = list[Event]()
    waits = locks.Waiting(Reporter("train", events.append))
    times: dict[str, list[int]] = {"log": [], "waiting": []}
    for seconds in range(200):
        waits("the holder", seconds)
        for event in events:
            times[event["event"]].append(seconds)
        events.clear()
    assert times == {"log": [0, 30, 60, 120], "waiting": [*range(0, 200, 10)]}


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder like /tmp, where all users may make files."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


@pytest.mark.parametrize("user", [os.geteuid(), *([65534] if os.geteuid() == 0 else [])])
def test_a_lock_is_one_process_s_until_that_is_killed(shared: Path, user: int) -> None:
    path, told = shared / "lock", list[str]()
    command = [sys.executable, "-c", _HOLD, str(path), str(user)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, umask=0o077) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o666, "other users of the machine take turns by it"
        with locks.locked(path, wait=False) as mine:
            assert mine is None

        def waits(holder: str, seconds: float) -> None:
            assert 0 <= seconds < 60
            told.append(holder)
            process.kill()

        with locks.turn(path, "train of runs/second", waits) as waited:
            assert waited
            assert path.read_text().startswith(f"train of runs/second (process {os.getpid()} on ")
    assert told[0].startswith(f"train of runs/first (process {process.pid} on ")
    with locks.turn(path, "train", waits) as waited:  # the file that was left is no lock
        assert not waited


def test_a_link_is_no_lock(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("content")
    (tmp_path / "link").symlink_to(precious)
    (tmp_path / "second name").hardlink_to(precious)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "second name", "pipe"):
        with pytest.raises(OSError, match=name), locks.locked(tmp_path / name):
            pass
    assert precious.read_text() == "content"


def test_a_lock_whose_file_was_deleted_meanwhile_is_taken_on_the_new_file(tmp_path: Path) -> None:
    path, entered = tmp_path / "lock", threading.Event()

    def wait() -> None:
        with locks.locked(path) as file:
            assert file is not None
            assert os.path.samestat(os.fstat(file.fileno()), path.stat())
            entered.set()

    with locks.locked(path):
        waiting = threading.Thread(target=wait)
        waiting.start()
        path.unlink()
        with locks.locked(path):
            pass
    waiting.join(60)
    assert entered.is_set()


def test_sweeping_removes_temporary_folders_without_a_lock_and_nothing_else(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    left = store.own_folder("tmp", "left", "inside").parent
    left.with_name("left.lock").touch()
    store.own_folder("tmp", "older")
    with store.workspace("mine") as mine:
        store.sweep()
        assert sorted(left.parent.iterdir()) == [mine, mine.with_name(f"{mine.name}.lock")]
    assert list(left.parent.iterdir()) == []


SIZE = 1_000


def fetched(cache: Cache, key: str) -> Path:
    def fetch(copy: Path) -> None:
        with copy.open("r+b") as stream:  # it keeps its size all the time: others count it
            stream.write(key.encode().ljust(SIZE))

    return cache.get(key, SIZE, lambda _: True, fetch)


def test_caches_of_two_processes_share_the_limit(tmp_path: Path):
    limit = 20 * SIZE
    most = []
    for start in range(0, 200, 10):
        ours, theirs = Cache(tmp_path, limit), Cache(tmp_path, limit)
        keys = [f"object {number}" for number in range(start, start + 10)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            copies = list(pool.map(fetched, [ours, theirs] * 5, keys))
        assert [copy.read_bytes().strip().decode() for copy in copies] == keys
        most.append(sum(copy.stat().st_size for copy in (tmp_path / "objects").iterdir()))
        ours.release()
        theirs.release()
    assert max(most) == limit


_MANY = """
import resource, sys
from pathlib import Path
from podline.store import uses
from podline.store.cache import Cache
from podline.store.folder import FolderStore
resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
store, cache = FolderStore(Path(sys.argv[1])), Cache(Path(sys.argv[1]) / "cache", 10**6)
with store.using(f"datasets/d/{number}" for number in range(3_000)):
    for number in range(300):
        uses.hold(store.own_folder("held") / str(number))
        copy = cache.get(f"object {number}", 1, lambda _: True, lambda copy: None)
    print(copy, flush=True)
    sys.stdin.read()
"""


def test_a_process_uses_any_number_of_things_with_few_descriptors_until_it_ends(tmp_path: Path) -> None:
    store, cache = FolderStore(tmp_path), Cache(tmp_path / "cache", 301)
    used, names = ["datasets/d/0", "datasets/d/2999"], ["datasets/d/0", "datasets/d/2999", "datasets/d/3000"]
    command = [sys.executable, "-c", _MANY, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        copy = Path(process.stdout.readline().strip())
        with store.alone(*names) as free:
            assert free == {*names} - {*used}
        with uses.Lease(store.own_folder("held")) as lease:
            assert lease.take(["299", "300"]).names == {"300"}
        with pytest.raises(StoreError, match="needs 302 bytes at once, but its limit is 301"):
            cache.get("another", 2, lambda _: True, lambda copy: None)
        assert copy.exists()
        process.kill()
    with store.alone(*names) as free, uses.Lease(store.own_folder("held")) as lease:
        assert (free, lease.take(["299"]).names) == ({*names}, {"299"})
    cache.get("another", 2, lambda _: True, lambda copy: None)


def test_who_would_use_what_is_being_deleted_waits_and_others_do_not(tmp_path: Path) -> None:
    store, begun = FolderStore(tmp_path), threading.Event()

    def use() -> None:
        with store.using(["runs/a", "runs/b"]):
            begun.set()

    with store.alone("runs/a"):
        user = threading.Thread(target=use)
        user.start()
        with store.using(["runs/b"]), store.alone("runs/a", "runs/c") as free:
            assert free == {"runs/c"}
        assert not begun.wait(0.5)
    user.join(60)
    assert begun.is_set()
