"""A process that was suspended while it wrote a data set, and lost the lease, writes nothing after its return."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

import pytest
from converted_images import images_spec
from drawn_images import as_folders, drawn, encoded, images
from killed_conversions import signalled_at, start

from podline.base.errors import PodlineError
from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.data.versions.compaction import compact
from podline.documents.manifest import read_manifest
from podline.documents.versions import versions
from podline.ledger.inventory.verification import verify
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


STEPS = [
    (convert_on, "podline.beam_jobs.workers:write_shard", 2),
    (convert_on, "podline.beam_jobs.conversion:publish_growth", 1),
    (compact_on, "podline.data.versions.compaction:publish_version", 1),
    *(
        pytest.param(work, function, 1, marks=pytest.mark.slow)
        for work, function in (
            (convert_on, "podline.beam_jobs.conversion:publish_dataset"),
            (convert_on, "podline.data.versions.publishing:publish_manifest"),
            (convert_on, "podline.beam_jobs.conversion:complete_conversion"),
            (convert_on, "podline.beam_jobs.conversion:delete_orphans"),
            (compact_on, "podline.data.versions.compaction:write_shard"),
            (compact_on, "podline.data.versions.compaction:publish_last"),
        )
    ),
]


@pytest.mark.parametrize(("work", "function", "call"), STEPS)
def test_a_former_writer_of_a_data_set_changes_nothing(
    machines: list[Machine],
    tmp_path: Path,
    suspended: list[BaseProcess],
    work: Callable[[Machine, Path], None],
    function: str,
    call: int,
) -> None:
    (one, other), source = machines, as_folders(tmp_path / "raw", images())
    if work is compact_on:
        finish(other, convert_on, other, source)
        as_folders(source, {"cat": {"added.png": encoded(drawn(9_000))}})
        finish(other, convert_on, other, source)
    process = start(on, one, dict(os.environ), signalled_at, signal.SIGSTOP, function, call, work, one, source)
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
