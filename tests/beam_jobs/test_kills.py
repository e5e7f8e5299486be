"""A conversion that is killed, or is not alone, ends with the same bytes once it is run again."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from coco_files import CocoFiles
from engine_sources import specs
from killed_conversions import convert_silently, require_death, start
from raw_cifar import contents

from podline.base.errors import ChildKilledError
from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.stages.specs import ConvertSpec
from podline.stages.supervision.processes import parent
from podline.stages.table import CONVERT

T = TypeVar("T")


def children(process: int) -> list[int]:
    """The processes that a process started and that live."""
    return [
        child for child in (int(folder.name) for folder in Path("/proc").glob("[0-9]*")) if parent(child) == process
    ]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ConvertSpec]:
    """A conversion of each kind that nobody disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    found = {kind: specs(folder, kind) for kind in ("cifar", "coco")}
    for spec in found.values():
        convert(spec, silent())
    return found


@pytest.mark.parametrize(
    ("kind", "function", "call", "shards_left"),
    [
        ("cifar", "podline.data.shards:pixel_sums", 4, 3),  # in the middle of the fourth shard
        ("cifar", "podline.store.contract:Store.publish_json", 1, 0),  # a shard is published, what is known of it not
        ("cifar", "podline.data.versions.publishing:publish_manifest", 1, None),  # all shards
        ("cifar", "podline.data.versions.publishing:complete", 1, None),  # all but the completion record
        ("coco", "podline.data.images.decoded:write_columns", 1, 0),  # all images are decoded, none is published
        ("coco", "podline.data.people.records:annotations_of", 4, 3),
    ],
)
def test_killed_at_a_bad_moment(
    tmp_path: Path, given: dict[str, ConvertSpec], kind: str, function: str, call: int, shards_left: int | None
) -> None:
    """A death costs what was in the making; ``shards_left`` is None where all of them are there."""
    spec, undisturbed = given[kind].model_copy(update={"root": str(tmp_path / "root")}), contents(given[kind])
    require_death(function, call, convert_silently, spec)
    assert CONVERT.find(spec, silent()) is None
    for name, content in contents(spec).items():
        assert content == undisturbed[name]  # whatever has a name is whole
    result = convert(spec, silent())
    assert result.shards_written == 0 if shards_left is None else result.shards_reused == shards_left
    assert contents(spec) == undisturbed
    assert not list(Path(spec.root, ".podline", "tmp").iterdir())
    assert CONVERT.find(spec, silent()) is not None


def test_several_at_once_all_end_well(tmp_path: Path, given: dict[str, ConvertSpec]) -> None:
    spec = given["cifar"].model_copy(update={"root": str(tmp_path / "root")})
    processes = [start(convert_silently, spec) for _ in range(3)]
    for process in processes:
        process.join(240)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert contents(spec) == contents(given["cifar"])
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
    tmp_path: Path, given: dict[str, ConvertSpec], moment: str
) -> None:
    spec = given["cifar"].model_copy(update={"root": str(tmp_path / "root")})
    process = start(convert_until_killed, spec.model_copy(update={"workers": 2}))
    workers = wait_for(lambda: children(process.pid or 0))
    if moment == "working":
        wait_for(lambda: list(Path(spec.root).glob("datasets/*/*/*.tfrecord-*")))
    os.kill(workers[0], signal.SIGKILL)
    process.join(240)
    assert process.exitcode == 9
    if moment == "working":  # a worker that has never spoken to us looks for us for a minute more
        wait_for(lambda: not any((Path("/proc") / str(worker)).exists() for worker in workers))
    convert(spec, silent())
    assert contents(spec) == contents(given["cifar"])


def convert_and_tell_its_memory(spec: ConvertSpec, note: Path) -> None:
    convert(spec, silent())
    unit = 1 if sys.platform == "darwin" else 1024
    note.write_text(str(unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))


@pytest.mark.slow
def test_ten_times_the_images_need_the_same_memory(tmp_path: Path) -> None:
    peaks, written = [], []
    for images in (200, 2_000):
        note, source = tmp_path / f"note{images}", CocoFiles("train", images).write(tmp_path / f"raw{images}")
        spec = specs(tmp_path / f"{images}", "coco", source=str(source), side=128, shard_bytes=2_000_000)
        process = start(convert_and_tell_its_memory, spec, note)
        process.join(240)
        peaks.append(int(note.read_text()))
        written.append(sum(len(content) for name, content in contents(spec).items() if ".tfrecord-" in name))
    assert written[1] - written[0] > 90_000_000
    # The annotations and the plan, about 4 kB for each of these images; a hundredth of them would be in COCO's folders.
    assert peaks[1] - peaks[0] < 15_000_000, peaks


def wait_for(condition: Callable[[], T], seconds: float = 240) -> T:
    """What a condition gives as soon as it gives something."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found
