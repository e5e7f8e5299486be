"""Conversions on a real Dask cluster, whose workers share nothing with the machine that starts them but a bucket."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dask_cluster
import pytest
from click.testing import CliRunner
from distributed import Client
from drawn_images import drawn, encoded
from engine_sources import specs
from killed_conversions import in_a_process
from raw_cifar import contents, convert_spec, write_raw_cifar

from podline.base.errors import EngineError, EngineLostError, PreemptedError
from podline.base.progress import Event, Reporter, silent
from podline.beam_jobs.conversion import convert
from podline.beam_jobs.jobs import JobContext
from podline.cli import cli
from podline.documents.manifest import read_manifest
from podline.ledger.inventory.forgetting import forget
from podline.ledger.inventory.traces import search
from podline.ledger.inventory.verification import verify
from podline.settings.machine import Settings
from podline.stages.specs import ConvertResult, ConvertSpec
from podline.stages.supervision.supervisor import Ending, run_stage
from podline.store.opening import open_store


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What this machine has and workers do not see."""
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory, gcs: str, hidden: Path) -> Iterator[dask_cluster.Cluster]:
    folder = tmp_path_factory.mktemp("dask") / "cluster"
    with dask_cluster.cluster(folder, hidden, more={"STORAGE_EMULATOR_HOST": gcs}) as cluster:
        yield cluster


def kill_when_shards_are_there(spec: ConvertSpec, process: int, shards: int) -> threading.Thread:
    def watch() -> None:
        store = open_store(spec.root)
        while sum("/shards/" in name for name in store.list("datasets")) < shards:
            time.sleep(0.02)
        os.kill(process, signal.SIGKILL)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def test_a_worker_is_killed_and_the_bytes_are_those_of_the_local_engine(
    dask: dask_cluster.Cluster, hidden: Path, gcs_root: str
) -> None:
    raw = write_raw_cifar(hidden / "raw", train=1000)
    here = convert_spec(hidden / "here", raw)
    there = here.model_copy(update={"root": f"{gcs_root}there", "engine": dask.engine})
    convert(here, silent())
    events: list[Event] = []
    killing = kill_when_shards_are_there(there, dask.workers[0].pid, 3)
    result = convert(there, Reporter("convert", events.append))
    killing.join(60)
    assert dask.workers[0].wait(60) == -signal.SIGKILL
    assert result.shards_written == 51
    assert contents(there) == contents(here)
    assert open_store(there.root).list("jobs") == []
    assert events[-1]["metrics"]["workers"] >= 1  # that began before the kill
    assert any(event.get("message", "").startswith("the engine dask:") for event in events)


def converted(spec: ConvertSpec) -> ConvertResult:
    return convert(spec, silent())


def test_people_are_those_of_the_local_engine(
    dask: dask_cluster.Cluster, tmp_path: Path, hidden: Path, gcs_root: str
) -> None:
    here = specs(hidden / tmp_path.name, "coco")
    there = here.model_copy(update={"root": f"{gcs_root}people", "engine": dask.engine})
    for spec in (here, there):
        in_a_process(converted, spec)
    assert contents(there) == contents(here)


def test_a_version_goes_on_from_an_older_one_and_an_image_is_forgotten(
    dask: dask_cluster.Cluster, tmp_path: Path, hidden: Path, gcs_root: str
) -> None:
    here = specs(hidden / tmp_path.name, "images")
    there = here.model_copy(update={"root": f"{gcs_root}root", "engine": dask.engine})
    first, _ = (in_a_process(converted, spec) for spec in (here, there))
    mine = Path(here.source) / "cat" / "mine.png"
    mine.write_bytes(encoded(drawn(7_000)))
    results = [in_a_process(converted, spec) for spec in (here, there)]
    assert [result.shards_written for result in results] == [1, 1]
    assert contents(there) == contents(here)
    assert b"nearly repeat a training image" in contents(there)[f"{first.folder}/manifest.json"]
    stores = [open_store(spec.root) for spec in (here, there)]
    assert read_manifest(stores[1], results[1].folder).base == first.fingerprint
    assert search(stores[1], "images", mine, silent()).found
    for store in stores:
        found = forget(store, "images", "cat/mine.png", "asked", silent())
        assert (found.version, found.removed) == (3, (results[0].fingerprint,))
    assert contents(there) == contents(here)
    assert not search(stores[1], "images", mine, silent()).found
    assert not verify(stores[1], silent()).problems
    assert in_a_process(converted, there).shards_written == 0


def test_a_worker_of_another_release_is_refused(
    dask: dask_cluster.Cluster, hidden: Path, gcs_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = write_raw_cifar(hidden / "other")
    spec = convert_spec(Path(), raw, root=f"{gcs_root}root", engine=dask.engine)
    monkeypatch.setattr("podline.beam_jobs.conversion.JobContext", partial(JobContext, release="0.1.0"))
    with pytest.raises(
        EngineError, match=r"^this worker has Podline \S+, but the job was started by 0\.1\.0; install 0\.1\.0 here"
    ):
        convert(spec, silent())


@pytest.mark.slow
def test_a_scheduler_that_is_killed_is_an_error_of_one_line_and_the_next_run_goes_on(
    tmp_path: Path, hidden: Path, gcs: str, gcs_root: str
) -> None:
    raw = write_raw_cifar(hidden / "lost", train=1000)
    spec = convert_spec(Path(), raw, root=f"{gcs_root}root")
    with dask_cluster.cluster(tmp_path / "cluster", hidden, workers=1, more={"STORAGE_EMULATOR_HOST": gcs}) as dask:
        kill_when_shards_are_there(spec, dask.scheduler.pid, 3)
        lost = spec.model_copy(update={"engine": dask.engine})
        with pytest.raises(EngineLostError, match=r"^engine dask:\S+: the engine does not .*: the job ended as \S+"):
            convert(lost, silent())
        with pytest.raises(EngineLostError, match=r"does not answer"):
            convert(lost.model_copy(update={"beam_options": ("--dask_connection_timeout=1",)}), silent())
    assert convert(spec, silent()).shards_reused >= 3


def tasks(dask_scheduler: Any) -> int:
    return len(dask_scheduler.tasks)


@pytest.mark.slow
def test_a_conversion_that_is_asked_to_end_cancels_the_engine_s_job(
    dask: dask_cluster.Cluster, hidden: Path, gcs_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = write_raw_cifar(hidden / "ended", train=1500)
    spec = convert_spec(Path(), raw, root=f"{gcs_root}root", engine=dask.engine, shard_bytes=10_000)
    monkeypatch.setattr(tasks, "__module__", "__main__")  # it travels itself, and not by its name
    ending, ran = Ending(), list[int]()

    def ask(event: Event) -> None:
        if event.get("done") and not ran:
            ran.append(client.run_on_scheduler(tasks))
            ending.ask(PreemptedError("asked to end"), at_once=False)

    with Client(dask.address) as client:
        with pytest.raises(PreemptedError):
            run_stage(spec, ask, Settings(silence=60), ending)
        assert ran[0] > 0
        assert client.run_on_scheduler(tasks) == 0
    assert convert(spec.model_copy(update={"engine": "local"}), silent()).shards_reused >= 1
    assert open_store(spec.root).list("jobs") == []


# What a worker's Python runs first.
_NO_PODLINE = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "podline":
            raise ModuleNotFoundError("No module named 'podline'")
sys.meta_path.insert(0, Nothing())
"""
_FAST_CLOCK = """
import time
right = time.time
time.time = lambda: right() + 3600
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "words"),
    [
        (_NO_PODLINE, "a worker of the engine has no Podline; install the same release there"),
        (_FAST_CLOCK, r"this worker's clock is \+3,\d+ s off the store's clock; set it, or use NTP"),
    ],
)
def test_the_check_says_in_one_line_what_is_wrong_with_workers(
    tmp_path: Path, gcs: str, gcs_root: str, first: str, words: str
) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "sitecustomize.py").write_text(first)
    environment = {"STORAGE_EMULATOR_HOST": gcs, "PYTHONPATH": str(tmp_path / "first")}
    (tmp_path / "hidden").mkdir()
    with dask_cluster.cluster(tmp_path / "cluster", tmp_path / "hidden", workers=1, more=environment) as dask:
        answer = CliRunner().invoke(cli, ["engine", "check", dask.engine, "--root", gcs_root])
    assert re.search(words, str(answer.exception)), answer
    assert "\n" not in str(answer.exception)
    assert open_store(gcs_root).list() == []
