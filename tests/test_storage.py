"""The store: whole or not there, never overwritten by accident, tidy after a killed process."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from podline import storage
from podline.errors import ArtifactError, SettingsError, StoreError
from podline.storage import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "a store with spaces, ü")


def test_published_bytes_are_read_back_and_listed(store: Store) -> None:
    store.publish_bytes("a/b.bin", b"one")
    store.publish_json("a/c.json", {"x": 1})
    assert store.read_bytes("a/b.bin") == b"one"
    assert store.read_json("a/c.json") == {"x": 1}
    assert store.list() == store.list("a") == ["a/b.bin", "a/c.json"]
    assert store.exists("a/b.bin")
    assert not store.exists("a")


def test_the_same_content_may_be_published_twice_but_other_content_may_not(store: Store) -> None:
    store.publish_bytes("name", b"one")
    store.publish_bytes("name", b"one")
    with pytest.raises(ArtifactError, match=r"name is already there with other content; delete it"):
        store.publish_bytes("name", b"two")
    assert store.read_bytes("name") == b"one"
    store.publish_bytes("name", b"two", replace=True)
    assert store.read_bytes("name") == b"two"


def test_nothing_temporary_stays(store: Store) -> None:
    store.publish_bytes("name", b"one")
    assert list((store.root / ".podline" / "tmp").iterdir()) == []


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


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "no space left"), (errno.EACCES, "permission denied"), (errno.EIO, "Input/output error")],
)
def test_system_errors_name_the_path_and_the_remedy(number: int, words: str) -> None:
    with pytest.raises(StoreError, match=rf"cannot write /data/x.*{words}"), storage.explained("write", "/data/x"):
        raise OSError(number, os.strerror(number))


def test_a_full_disk_leaves_no_half_written_name(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as stream:
            stream.write(data[:1])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StoreError, match="no space left"):
        store.publish_bytes("name", b"one")
    assert store.list() == []


def test_what_is_not_there_or_not_json_is_said_by_path(store: Store) -> None:
    with pytest.raises(StoreError, match=r"cannot read .*missing\.json"):
        store.read_json("missing.json")
    store.publish_bytes("broken.json", b"{")
    with pytest.raises(ArtifactError, match=r"broken\.json is not valid JSON"):
        store.read_json("broken.json")


def test_sweep_removes_what_a_killed_process_left_and_nothing_else(store: Store) -> None:
    script = (
        "import sys, time; from podline.storage import open_store\n"
        "with open_store(sys.argv[1]).workspace('shards') as folder:\n"
        "    (folder / 'half').write_bytes(b'x'); print('ready', flush=True); time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(store.root)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == b"ready\n"
        assert store.sweep() == 0
        child.send_signal(signal.SIGKILL)
        child.wait()
    with store.workspace("mine") as mine:
        assert store.sweep() == 1
        assert list((store.root / ".podline" / "tmp").iterdir()) == [mine]


def test_a_place_that_is_no_folder_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="ftp://host/x"):
        open_store("ftp://host/x")
