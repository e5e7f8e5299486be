"""Machines with one store neither delete nor join each other's work; a former writer of a data set writes nothing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from converted_images import converted, images_spec
from drawn_images import as_folders, drawn, encoded, images
from killed_conversions import signalled_at, start

from podline.base.errors import ChildKilledError, PodlineError, StoreUnavailableError
from podline.base.progress import silent
from podline.beam_jobs import jobs
from podline.beam_jobs.conversion import convert
from podline.beam_jobs.jobs import job_folder
from podline.data import shards
from podline.data.versions.compaction import compact
from podline.documents.manifest import read_manifest
from podline.documents.versions import versions
from podline.ledger.inventory.inventory import pruned
from podline.ledger.inventory.verification import verify
from podline.store.buckets import forget_clients
from podline.store.contract import Store
from podline.store.opening import open_store

pytestmark = pytest.mark.usefixtures("parsed_here")


class Machine(NamedTuple):
    """A machine: where it finds the store, and its cache; locks of one are unknown to the other."""

    root: str
    cache: Path


@pytest.fixture(params=["folder", "bucket"])
def machines(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Machine]:
    """Two machines with one store; a folder is mounted by both, without each other's locks."""
    monkeypatch.setenv("PODLINE_STORE_LEASE", "1.2")
    if request.param == "bucket":
        root = request.getfixturevalue("gcs_root")
        return [Machine(root, tmp_path / name) for name in ("first", "second")]
    open_store(tmp_path / "first").mark()
    (tmp_path / "second").mkdir()
    for name in ("datasets", "versions", "conversions", "jobs", "podline-store.json"):
        if "." not in name:
            (tmp_path / "first" / name).mkdir()
        (tmp_path / "second" / name).symlink_to(tmp_path / "first" / name)
    return [Machine(str(tmp_path / name), tmp_path / name) for name in ("first", "second")]


def convert_on(machine: Machine, source: Path) -> None:
    convert(images_spec(machine.root, source, workers=1), silent())


def compact_on(machine: Machine, source: Path) -> None:
    del source
    store = open_store(machine.root)
    newest = versions(store, "images")[-1]
    compact(store, read_manifest(store, f"datasets/images/{newest.fingerprint}"), 0, silent())


def on(machine: Machine, environment: dict[str, str], work: Callable[..., object], *args: object) -> None:
    """Work on a machine; the exit code is that of its error."""
    os.environ |= environment | {"PODLINE_STORE_CACHE": str(machine.cache)}
    try:
        work(*args)
    except PodlineError as error:
        print(error)  # noqa: T201 (pytest shows it)
        sys.exit(error.exit_code)


@pytest.fixture
def suspended() -> Iterator[list[BaseProcess]]:
    processes: list[BaseProcess] = []
    yield processes
    for process in processes:
        process.kill()
        process.join(60)


def finish(machine: Machine, work: Callable[..., object], *args: object) -> None:
    process = start(on, machine, dict(os.environ), work, *args)
    process.join(120)
    assert process.exitcode == 0


def slow(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("work", "function"),
    [
        (convert_on, "podline.beam_jobs.workers:publish_shard"),
        (convert_on, "podline.beam_jobs.conversion:publish_growth"),
        (compact_on, "podline.data.versions.compaction:publish_version"),
        slow(convert_on, "podline.data.versions.publishing:publish_manifest"),
        slow(convert_on, "podline.beam_jobs.conversion:complete_conversion"),
        slow(convert_on, "podline.beam_jobs.conversion:delete_orphans"),
        slow(compact_on, "podline.data.versions.compaction:publish_shard"),
        slow(compact_on, "podline.data.versions.compaction:publish_last"),
    ],
)
def test_a_former_writer_of_a_data_set_changes_nothing(
    machines: list[Machine], tmp_path: Path, suspended: list[BaseProcess], work: Callable[..., None], function: str
) -> None:
    (one, other), source = machines, as_folders(tmp_path / "raw", images())
    if work is compact_on:
        finish(other, convert_on, other, source)
        as_folders(source, {"cat": {"added.png": encoded(drawn(9_000))}})
        finish(other, convert_on, other, source)
    process = start(on, one, dict(os.environ), signalled_at, signal.SIGSTOP, function, 1, work, one, source)
    suspended.append(process)
    while "T (stopped)" not in Path(f"/proc/{process.pid}/status").read_text():
        assert process.is_alive()
        time.sleep(0.05)
    finish(other, work, other, source)
    as_folders(source, {"cat": {"later.png": encoded(drawn(9_001))}})
    finish(other, convert_on, other, source)
    store = open_store(other.root)
    before = [*store.listing("datasets"), *store.listing("versions")]
    os.kill(process.pid or 0, signal.SIGCONT)
    process.join(120)
    # Orphans are deleted when the result is published.
    assert process.exitcode == (0 if function.endswith(":delete_orphans") else 75)
    assert [*store.listing("datasets"), *store.listing("versions")] == before
    assert verify(store, silent()).problems == []


def on_machine(name: str, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store as a machine sees it: by a cache of its own, whose locks no other machine sees."""
    monkeypatch.setenv("PODLINE_STORE_CACHE", str(tmp_path / name))
    forget_clients()
    return open_store(root)


def test_an_interrupted_job_is_continued_by_its_machine_alone(
    gcs_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, stores = images_spec(gcs_root, tmp_path), {}
    for name in ("ours", "theirs"):
        stores[name] = on_machine(name, gcs_root, tmp_path, monkeypatch)
    with contextlib.suppress(ChildKilledError), job_folder(stores["ours"], spec) as first:
        stores["ours"].publish_bytes(f"{first}/batch", b"x")
        with job_folder(stores["theirs"], spec) as other:
            stores["theirs"].publish_bytes(f"{other}/batch", b"y")
        assert stores["ours"].list("jobs") == [f"{first}/batch"]
        raise ChildKilledError
    with job_folder(stores["theirs"], spec) as other:
        assert other != first
    with job_folder(stores["ours"], spec) as again:
        assert again == first
    assert stores["ours"].list("jobs") == []
    with job_folder(stores["ours"], spec) as later:
        assert later != first


def test_a_job_that_begins_while_the_same_job_ends_keeps_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second conversion reads the note just before the first deletes it; here both are in one process."""
    store = open_store(tmp_path / "root")
    spec, flock = images_spec(str(tmp_path / "root"), tmp_path), fcntl.flock
    with contextlib.ExitStack() as first:
        name = first.enter_context(job_folder(store, spec))
        store.publish_bytes(f"{name}/batch", b"x")

        def ended_first(file: int, how: int) -> None:
            flock(file, how)
            first.close()

        monkeypatch.setattr(jobs, "fcntl", SimpleNamespace(flock=ended_first, LOCK_EX=fcntl.LOCK_EX))
        with job_folder(store, spec) as again:
            assert (again, store.list("jobs")) == (name, [f"{name}/batch"])
    assert store.list("jobs") == []


@pytest.mark.parametrize("deleted", [False, True])
def test_a_version_that_another_machine_extends_is_not_pruned_and_never_missed_in_silence(
    gcs_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    folder = as_folders(tmp_path / "raw", images(30))
    base = converted(gcs_root, folder)
    converted(gcs_root, folder, side=24)  # so that the base is not the newest version, which is never needless
    as_folders(folder, {"cat": {"new.png": encoded(drawn(9_000))}})

    def prune(*args: Any, **kwargs: Any) -> Any:
        with monkeypatch.context() as patch:
            theirs = on_machine("theirs", gcs_root, tmp_path, patch)
            gone = [holding.name for holding in pruned(theirs, time.time() + 1e6, delete=True)[0]]
            assert base.folder not in gone
            if deleted:  # by an older release of Podline
                theirs.delete(f"{base.folder}/manifest.json")
        forget_clients()
        return shards.publish_shard(*args, **kwargs)

    monkeypatch.setattr("podline.beam_jobs.workers.publish_shard", prune)
    if deleted:
        with pytest.raises(StoreUnavailableError, match=f"version {base.fingerprint} .* was deleted meanwhile"):
            converted(gcs_root, folder)
        monkeypatch.setattr("podline.beam_jobs.workers.publish_shard", shards.publish_shard)
    grown = converted(gcs_root, folder)
    assert grown.base == ("" if deleted else base.fingerprint)
    problems = verify(open_store(gcs_root), silent()).problems
    assert not [line for line in problems if grown.folder in line and "is an orphan" not in line]


def test_shards_that_a_conversion_of_another_machine_left_go_with_the_next_one(gcs_root: str, tmp_path: Path) -> None:
    store, folder = open_store(gcs_root), as_folders(tmp_path / "raw", images(30))
    manifest = converted(gcs_root, folder)
    left = f"{manifest.folder}/images.{'0' * 16}-train.tfrecord-00000-of-00001"
    store.publish_bytes(left, b"x", replace=True)
    converted(gcs_root, folder)
    assert not store.exists(left)
