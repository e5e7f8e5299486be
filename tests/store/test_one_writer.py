"""One process at a time writes a folder: a stale one, whatever it is about to do, changes nothing."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fault_proxy
import pytest
from small_dataset import FINGERPRINT, publish_dataset, small_recipe
from two_machines import SmallTrainSpec, played, real_recipe, schedule

from podline.base.errors import OtherWriterError, SettingsError, TakenError
from podline.ledger import ledger
from podline.stages.specs import TrainSpec
from podline.store import fences, one_writer
from podline.store.contract import Store
from podline.store.one_writer import LEASE, Writer, help_writer, writer_of, writing
from podline.store.opening import open_store

RUN, SECONDS = "runs/r", 0.6
RECORD = f"{RUN}/stages/train.json"


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("PODLINE_STORE_LEASE", str(SECONDS))
    if request.param == "folder":
        return open_store(tmp_path / "root")
    # The stand-in itself deletes any generation.
    request.getfixturevalue("proxy")
    return open_store(request.getfixturevalue("gcs_root"))


class World:
    """Writers of one folder, each like a process on a machine of its own."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self._folder, self._count = store, folder, 0

    def taken(self) -> Writer:
        """A new writer with the lease."""
        self._count += 1
        mark = self._folder / f"{self._count}.owner"
        writer = Writer(self.store, RUN, f"writer {self._count}")
        writer.take(mark, lambda holder: None)
        return writer

    def publish(self, writer: Writer, name: str, text: str) -> None:
        source = self._folder / uuid.uuid4().hex
        source.write_text(text)
        writer.publish(source, name, replace=True, flush=True)

    def texts(self) -> dict[str, str]:
        names = [name for name in self.store.list(RUN) if not name.endswith(LEASE)]
        return {name: self.store.read_bytes(name).decode() for name in names}


@pytest.fixture
def world(store: Store, tmp_path: Path) -> World:
    return World(store, tmp_path)


def suspended_once(writer: Writer, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """Lets something happen after a writer has looked at its lease, and before it writes."""
    require = writer.require

    def look() -> None:
        require()
        monkeypatch.setattr(writer, "require", require)
        meanwhile()

    monkeypatch.setattr(writer, "require", look)


def test_a_silent_writer_loses_the_folder_after_the_stated_time_and_not_before(world: World) -> None:
    first = world.taken()
    world.publish(first, f"{RUN}/a", "first")
    began = time.monotonic()
    next_one = world.taken()
    assert time.monotonic() - began >= SECONDS
    world.publish(next_one, f"{RUN}/a", "next")
    for act in (lambda: world.publish(first, f"{RUN}/a", "first again"), lambda: first.delete(f"{RUN}/a", "")):
        with pytest.raises(OtherWriterError, match="has another writer, because this process was suspended"):
            act()
    first.give_back()
    assert world.texts() == {f"{RUN}/a": "next"}
    next_one.give_back()
    assert not world.store.exists(f"{RUN}/{LEASE}")


def test_a_writer_that_lives_keeps_the_folder_whatever_the_clocks_say(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, waiting, done = time.time, list[str](), threading.Event()
    with writing(store, RUN, "the first", lambda *_: None):
        monkeypatch.setattr(time, "time", lambda: real() + 86_400)
        second = Writer(store, RUN, "the second")
        thread = threading.Thread(
            target=lambda: (second.take(world._folder / "other.owner", waiting.append), done.set())
        )
        thread.start()
        time.sleep(3 * SECONDS)
        assert not done.is_set()
        assert set(waiting) == {"the first"}
    thread.join(60)
    assert done.is_set()


@pytest.mark.parametrize("act", ["replace", "delete", "add"])
def test_a_writer_suspended_between_look_and_write_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    first = world.taken()
    world.publish(first, f"{RUN}/a", "first")

    # Also a file that stays as it was belongs to the next writer once it has published it.
    suspended_once(first, monkeypatch, lambda: world.publish(world.taken(), f"{RUN}/a", "first"))
    if act == "delete":
        first.delete(f"{RUN}/a", "")
    else:
        with contextlib.suppress(OtherWriterError):
            world.publish(first, f"{RUN}/{'a' if act == 'replace' else 'b'}", "too late")
    with pytest.raises(OtherWriterError):
        first.require()
    assert world.texts() == {f"{RUN}/a": "first"}


def test_a_former_writer_fails_for_the_next_one_and_not_for_what_it_finds_of_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODLINE_STORE_LEASE", "60")

    def fail(*, taken: bool) -> None:
        with writing(store, RUN, "the first", lambda *_: None):
            lease = store.find(f"{RUN}/{LEASE}")
            assert lease is not None
            if taken:
                store.swap(None, lease.name, lease.version)
            raise SettingsError("the run was promoted, and is never written again")

    with pytest.raises(OtherWriterError):
        fail(taken=True)
    with pytest.raises(SettingsError):
        fail(taken=False)


def test_a_completion_record_counts_from_the_lease_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, swap = world.taken(), world.store.swap

    def swap_or_die(source: Path | None, name: str, version: str, *, flush: bool = True) -> str:
        if name == RECORD:
            raise KeyboardInterrupt
        return swap(source, name, version, flush=flush)

    monkeypatch.setattr(world.store, "swap", swap_or_die)
    with pytest.raises(KeyboardInterrupt):
        world.publish(first, RECORD, "done by the first")
    monkeypatch.setattr(world.store, "swap", swap)
    assert not world.store.exists(RECORD)
    second = world.taken()
    assert world.texts() == {RECORD: "done by the first"}
    # And one that comes too late does not.
    world.publish(second, f"{RUN}/a", "second")
    third = world.taken()
    with pytest.raises(OtherWriterError):
        world.publish(second, RECORD, "done by the second")
    assert third.waited
    assert world.texts()[RECORD] == "done by the first"


def test_on_one_machine_a_dead_writer_is_known_at_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODLINE_STORE_LEASE", "600")
    mark = tmp_path / "r.owner"
    Writer(store, RUN, "dead").take(mark, lambda holder: None)
    Writer(store, RUN, "the next").take(mark, lambda holder: pytest.fail(f"waits for {holder}"))
    # The same folder on a machine that has another one's mark.
    monkeypatch.setattr(one_writer, "_machine", lambda: "another machine")
    with pytest.raises(pytest.fail.Exception, match="waits for the next"):
        Writer(store, RUN, "there").take(mark, lambda holder: pytest.fail(f"waits for {holder}"))


def test_a_helper_writes_while_its_owner_has_the_lease_and_no_longer(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fences, "_fences", {})
    owner = world.taken()
    help_writer(store, RUN, owner.owner)
    store.publish_bytes(f"{RUN}/shard", b"one")
    helper, lost = writer_of(store, RUN), list[Writer]()
    assert helper is not None
    suspended_once(helper, monkeypatch, lambda: lost.append(world.taken()))
    with pytest.raises(OtherWriterError):
        store.publish_bytes(f"{RUN}/late", b"late")
    with pytest.raises(OtherWriterError):
        store.publish_bytes(f"{RUN}/shard", b"two", replace=True)
    # The next holder may have found the shard that was written before the loss.
    assert world.texts() == {f"{RUN}/shard": "one"}
    help_writer(store, RUN, lost[0].owner)
    world.publish(lost[0], f"{RUN}/shard", "the owner's")
    store.publish_bytes(f"{RUN}/shard", b"two", replace=True)
    assert world.texts() == {f"{RUN}/shard": "two"}
    world.publish(lost[0], f"{RUN}/shard", "the owner's again")
    assert world.texts() == {f"{RUN}/shard": "the owner's again"}


def test_of_two_that_replace_one_version_one_succeeds(store: Store, tmp_path: Path) -> None:
    def swapped(text: str, version: str) -> str:
        source = tmp_path / text
        source.write_text(text)
        return store.swap(source, "a/b", version)

    first = swapped("one", "")
    start = threading.Barrier(8)

    def swap(number: int) -> str:
        start.wait()
        try:
            return swapped(f"n{number}", first)
        except TakenError:
            return ""

    with ThreadPoolExecutor(8) as pool:
        [won] = filter(None, pool.map(swap, range(8)))
    found = store.find("a/b")
    assert found is not None
    assert found.version == won != first
    store.swap(None, "a/b", first)
    assert store.exists("a/b")
    store.swap(None, "a/b", won)
    assert not store.exists("a/b")
    with pytest.raises(TakenError):
        swapped("late", won)
    assert not store.exists("a/b")


def test_a_lost_answer_to_a_renewal_is_no_loss(
    tmp_path: Path, proxy: fault_proxy.FaultProxy, gcs_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODLINE_STORE_LEASE", "600")
    monkeypatch.setattr(one_writer, "_LEAST_SECONDS", 0.0)
    world = World(open_store(gcs_root), tmp_path)
    writer = world.taken()
    proxy.faults, proxy.share = (fault_proxy.LOST, "503"), 0.3
    for number in range(8):
        world.publish(writer, f"{RUN}/a", str(number))
    proxy.share = 0.0
    assert proxy.happened[fault_proxy.LOST] > 2
    assert world.texts() == {f"{RUN}/a": "7"}


@pytest.mark.slow
@pytest.mark.usefixtures("in_children")
def test_a_suspended_machine_leaves_the_result_of_the_other_and_both_are_told(
    tmp_path: Path, gcs: str, gcs_root: str
) -> None:
    store = open_store(gcs_root)
    spec = SmallTrainSpec(root=store.uri, recipe=small_recipe(), fingerprint=FINGERPRINT)
    # Suspended in the middle of the training, until the other one has ended.
    acts = [(0.2, 1, "start"), (1.0, 0, "suspend"), (1.1, 0, "wait"), (1.2, 0, "resume")]
    found = played(tmp_path, gcs, store, spec, acts)
    assert found.problems == []
    assert found.codes == ([75, 0], [0])
    states = [(named.state, ledger.read(store, named.name).error) for named in ledger.names(store)]
    assert sorted(states) == [("failed", "OtherWriterError"), ("finished", ""), ("finished", "")]


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("in_children")
def test_fifty_drawn_schedules_of_two_machines(tmp_path: Path, gcs: str, gcs_root: str) -> None:
    problems, codes = dict[int, list[str]](), list[int]()
    for seed in range(50):
        store = open_store(f"{gcs_root}{seed}")
        publish_dataset(store.uri)
        spec = TrainSpec(root=store.uri, recipe=real_recipe(), fingerprint=FINGERPRINT, preflight=False)
        found = played(tmp_path / str(seed), gcs, store, spec, schedule(seed, 8.0))
        codes += found.codes[0] + found.codes[1]
        if found.problems:
            problems[seed] = found.problems
    assert problems == {}
    assert codes.count(75) >= 10, "machines were overtaken"
