"""A root of a group, of another user, and on a read-only disk: what may be done is done, all else is one line."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from ledger_entries import night
from small_dataset import publish_dataset
from small_runs import publish_run

from podline.base.errors import PodlineError
from podline.cli import cli
from podline.ledger import ledger
from podline.store.folder import FolderStore
from podline.store.opening import open_store

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
ALICE, BOB, CAROL, LAB, OTHERS = 4001, 4002, 4003, 4242, 4243
RUN = "sample-0123456789ab"
READERS = ("runs list", "data list", "store list", "store verify", "models list")
WRITERS = ("runs nights", "validate sample", "store prune", "store mark", f"runs delete {RUN} --yes")


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


def command(words: str, root: Path) -> Callable[[], object]:
    def run() -> None:
        answer = CliRunner().invoke(cli, [*words.split(), "--root", str(root)])
        if answer.exception is not None:
            raise answer.exception

    return run


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


def denied(root: Path) -> str:
    return f"cannot write to the store {root}: permission denied; choose a --root that this user can write"


def test_a_group_shares_a_root_and_others_only_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODLINE_STORE_GROUP", "true")
    assert as_user(ALICE, LAB, publish(root, "alice")) == ""
    assert stat.S_IMODE((root / ".podline").stat().st_mode) == 0o2770
    assert as_user(BOB, LAB, publish(root, "bob")) == ""
    assert as_user(BOB, LAB, lambda: read(root, "alice")) == ""
    assert as_user(BOB, LAB, lambda: delete(root, "alice")) == ""
    for user, group in ((ALICE, LAB), (CAROL, OTHERS)):
        assert as_user(user, group, lambda: read(root, "bob")) == ""
    for work in (publish(root, "carol"), lambda: delete(root, "bob")):
        assert as_user(CAROL, OTHERS, work) == denied(root)
    assert open_store(root).list("runs") == ["runs/bob/spec.json"]


def test_a_second_user_without_the_setting_only_reads_even_where_the_group_may_write(root: Path) -> None:
    assert as_user(ALICE, LAB, publish(root, "alice")) == ""
    assert stat.S_IMODE((root / ".podline").stat().st_mode) & 0o777 == 0o700
    assert as_user(BOB, LAB, lambda: read(root, "alice")) == ""
    for work in (publish(root, "bob"), lambda: delete(root, "alice")):
        assert as_user(BOB, LAB, work) == denied(root)
    assert as_user(ALICE, LAB, lambda: delete(root, "alice")) == ""


@pytest.fixture
def filled(root: Path) -> Path:
    """A store of Alice's with a data set, a run, a night, and scratch folders."""
    store = FolderStore(root)
    publish_dataset(store.uri)
    publish_run(store, RUN)
    ledger.publish(store, night())
    for scratch in ("unfinished", "sources/archive", "tmp/left~1", "uses"):
        store.own_folder(*scratch.split("/"))
    FolderStore(store.root / "sources" / "sample").own_folder("tmp")
    for path in (root, *root.rglob("*")):
        os.chown(path, ALICE, LAB)
    return root


@pytest.fixture
def far(filled: Path) -> Iterator[Path]:
    """The same store on a read-only disk."""
    far = filled.parent / "far"
    far.mkdir()
    if subprocess.run(["mount", "--bind", str(filled), str(far)], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    subprocess.run(["mount", "-o", "remount,ro,bind", str(far)], check=True)
    yield far
    subprocess.run(["umount", str(far)], check=True)


def test_commands_list_a_store_that_they_may_only_read_and_refuse_the_rest_in_one_line(filled: Path, far: Path) -> None:
    before = open_store(filled).list()
    # The disk first, as root: Carol may not even read the modules that this imports.
    for words in READERS:
        command(words, far)()
        assert as_user(CAROL, OTHERS, command(words, filled)) == "", words
    for words in WRITERS:
        with pytest.raises(PodlineError) as refused:
            command(words, far)()
        assert str(refused.value) == denied(far), words
        told = as_user(CAROL, OTHERS, command(words, filled)).replace(" (Permission denied)", "")
        assert told == denied(filled), words
    assert open_store(filled).list() == before
    filled.chmod(0o700)
    for words in READERS[:3]:
        told = as_user(CAROL, OTHERS, command(words, filled))
        assert told.endswith("permission denied (Permission denied); give this user access to it"), words
