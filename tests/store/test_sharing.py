"""A root of a group, of another user, and on a read-only disk."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger_entries import night
from small_dataset import publish_dataset
from small_runs import publish_run

from podline.base.errors import PodlineError
from podline.ledger import ledger
from podline.store.marker import MARKER
from podline.store.opening import open_store

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
ALICE, BOB, CAROL, LAB, OTHERS = 4001, 4002, 4003, 4242, 4243
RUN = "sample-0123456789ab"


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that all users see, with a cache folder for all beside it."""
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        top.chmod(0o755)
        for name, mode in (("root", 0o2775), ("cache", 0o777)):
            (top / name).mkdir()
            os.chown(top / name, ALICE, LAB)
            (top / name).chmod(mode)
        monkeypatch.setenv("PODLINE_STORE_CACHE", str(top / "cache"))
        yield top / "root"


def as_user(user: int, group: int, work: Callable[[], object]) -> str:
    """Does something as another user, with the usual umask; returns the error's text."""
    reader, writer = os.pipe()
    if child := os.fork():
        os.close(writer)
        with os.fdopen(reader) as answer:
            text = answer.read()
        os.waitpid(child, 0)
        return text
    problem = ""
    try:
        os.setgroups([])
        os.setegid(group)
        os.seteuid(user)
        os.umask(0o022)
        work()
    except PodlineError as error:
        problem = str(error)
    except BaseException as error:
        problem = f"a bug: {error!r}"
    os.write(writer, problem.encode())
    os._exit(0)


def publish(root: Path, name: str) -> Callable[[], object]:
    return lambda: open_store(root).publish_json(f"runs/{name}/spec.json", {"of": name})


def read(root: Path, name: str) -> None:
    store = open_store(root)
    with store.using([f"runs/{name}"]), store.workspace("work") as folder:
        (folder / "x").write_bytes(store.read_bytes(f"runs/{name}/spec.json"))
    assert f"runs/{name}/spec.json" in store.list("runs")


def delete(root: Path, name: str) -> None:
    store = open_store(root)
    with store.alone(f"runs/{name}") as free:
        assert free
        store.delete(f"runs/{name}/spec.json")


def test_a_group_shares_a_root_and_others_only_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODLINE_STORE_GROUP", "true")
    assert as_user(ALICE, LAB, publish(root, "alice")) == ""
    assert stat.S_IMODE((root / ".podline").stat().st_mode) == 0o2770
    assert as_user(BOB, LAB, publish(root, "bob")) == ""
    assert as_user(BOB, LAB, lambda: read(root, "alice")) == ""
    assert as_user(BOB, LAB, lambda: delete(root, "alice")) == ""
    assert as_user(ALICE, LAB, lambda: read(root, "bob")) == ""
    assert as_user(CAROL, OTHERS, lambda: read(root, "bob")) == ""
    for work in (publish(root, "carol"), lambda: delete(root, "bob")):
        denied = f"cannot write to the store {root}: permission denied; choose a --root that this user can write"
        assert as_user(CAROL, OTHERS, work) == denied
    assert open_store(root).list("runs") == ["runs/bob/spec.json"]


def test_without_the_setting_a_second_user_only_reads_even_where_the_group_may_write(root: Path) -> None:
    assert as_user(ALICE, LAB, publish(root, "alice")) == ""
    assert stat.S_IMODE((root / ".podline").stat().st_mode) & 0o777 == 0o700
    assert as_user(BOB, LAB, lambda: read(root, "alice")) == ""
    for work in (publish(root, "bob"), lambda: delete(root, "alice")):
        assert as_user(BOB, LAB, work).startswith(f"cannot write to the store {root}: permission denied; ")
    assert as_user(ALICE, LAB, lambda: delete(root, "alice")) == ""


def test_a_read_only_disk_is_listed_and_nothing_is_done_for_what_it_cannot_take(
    root: Path, podline: Callable[..., Any]
) -> None:
    store, far = open_store(root), root.parent / "far"
    publish_dataset(store.uri)
    publish_run(store, RUN)
    ledger.publish(store, night())
    far.mkdir()
    before = store.list()
    if subprocess.run(["mount", "--bind", str(root), str(far)], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(far)], check=True)
        for words in ("store list", "store verify", "runs list", "data list", "models list"):
            assert podline(*words.split(), "--root", far).code == 0, words
        for words in ("store prune", "store mark", f"runs delete {RUN} --yes", "runs nights", "validate sample"):
            answer = podline(*words.split(), "--root", far)
            assert answer.code == 5, words
            assert f"cannot write to the store {far}: permission denied; " in answer.err.splitlines()[-1], words
    finally:
        subprocess.run(["umount", str(far)], check=True)
    assert store.list() == before
    assert store.exists(MARKER)
