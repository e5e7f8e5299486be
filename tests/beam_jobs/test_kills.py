"""A conversion that is killed, or is not alone, ends with the same bytes once it is run again."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from killed_conversions import assert_one_death_costs_nothing, convert_silently, start
from raw_cifar import contents, convert_spec, write_raw_cifar

from podline.beam_jobs.conversion import convert
from podline.errors import ChildKilledError
from podline.progress import silent
from podline.stages.specs import ConvertSpec
from podline.stages.table import CONVERT
from podline.supervision.processes import parent

T = TypeVar("T")


def children(process: int) -> list[int]:
    """The processes that a process started and that live."""
    return [
        child for child in (int(folder.name) for folder in Path("/proc").glob("[0-9]*")) if parent(child) == process
    ]


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_raw_cifar(tmp_path_factory.mktemp("kills") / "raw")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, raw: Path) -> dict[str, bytes]:
    spec = convert_spec(tmp_path_factory.mktemp("undisturbed") / "root", raw)
    convert(spec, silent())
    return contents(spec)


@pytest.mark.parametrize(
    ("function", "call", "shards_left"),
    [
        ("podline.data.shards:pixel_sums", 1, {0}),  # in the middle of the first shard
        ("podline.data.shards:pixel_sums", 4, {3}),  # in the fourth
        ("podline.store.contract:Store.publish_json", 1, {0}),  # a shard is published, what is known of it is not
        ("podline.store.contract:Store.publish_json", 2, {1}),
        ("podline.beam_jobs.conversion:_publish", 1, {6}),  # all shards, nothing beside them
        (
            "podline.store.contract:Store.publish_bytes",
            8,
            {6},
        ),  # features.json, no manifest; each shard's word was one of them
        ("podline.beam_jobs.conversion:complete", 1, {6}),  # all but the completion record
    ],
)
def test_killed_at_a_bad_moment(
    tmp_path: Path, raw: Path, undisturbed: dict[str, bytes], function: str, call: int, shards_left: set[int]
) -> None:
    spec = convert_spec(tmp_path / "root", raw)
    assert_one_death_costs_nothing(spec, undisturbed, function, call, shards_left)


def test_two_at_once_both_end_well(tmp_path: Path, raw: Path, undisturbed: dict[str, bytes]) -> None:
    spec = convert_spec(tmp_path / "root", raw)
    processes = [start(convert_silently, spec) for _ in range(3)]
    for process in processes:
        process.join(240)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert contents(spec) == undisturbed
    assert CONVERT.find(spec, silent()) is not None


def convert_until_killed(spec: ConvertSpec) -> None:
    """A conversion with worker processes; exit code 9 says that it knew of its worker's death."""
    try:
        convert(spec, silent())
    except ChildKilledError:
        sys.exit(9)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["starting", "working"])
def test_a_killed_worker_process_is_worth_another_try(
    tmp_path: Path, raw: Path, undisturbed: dict[str, bytes], moment: str
) -> None:
    spec = convert_spec(tmp_path / "root", raw, workers=2)
    process = start(convert_until_killed, spec)
    workers = wait_for(lambda: children(process.pid or 0))
    if moment == "working":
        wait_for(lambda: list(Path(spec.root).glob("datasets/*/*/*.tfrecord-*")))
    os.kill(workers[0], signal.SIGKILL)
    process.join(240)
    assert process.exitcode == 9
    if moment == "working":  # a worker that has never spoken to us looks for us for a minute more
        wait_for(lambda: not any((Path("/proc") / str(worker)).exists() for worker in workers))
    convert(convert_spec(tmp_path / "root", raw), silent())
    assert contents(spec) == undisturbed


def wait_for(condition: Callable[[], T], seconds: float = 240) -> T:
    """What a condition gives as soon as it gives something."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found
