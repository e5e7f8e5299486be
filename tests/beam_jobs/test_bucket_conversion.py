"""A conversion from a bucket into a bucket: the bytes of a folder, whatever the network does and whoever is killed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import fault_proxy
import pytest
from coco_files import CocoFiles
from gcs_emulator import upload
from killed_conversions import convert_silently, start
from raw_cifar import contents, convert_spec, write_raw_cifar

from podline.beam_jobs.conversion import convert
from podline.inventory.verification import verify
from podline.progress import Reporter, silent
from podline.stages.specs import ConvertSpec
from podline.stages.table import CONVERT
from podline.store.opening import open_store


def cifar(folder: Path) -> Path:
    return write_raw_cifar(folder)


def coco(folder: Path) -> Path:
    CocoFiles("val", 4, 101).write(folder, zipped=True)
    return CocoFiles("train", 10).write(folder, zipped=True)


def spec_of(write: Callable[[Path], Path], root: Path | str, source: Path | str) -> ConvertSpec:
    if write is cifar:
        return convert_spec(Path(), Path(), root=str(root), source=str(source))
    given = {"root": str(root), "dataset": "coco", "source": str(source), "side": 64, "max_people": 3}
    return ConvertSpec.model_validate({**given, "shard_bytes": 60_000})


def problems(root: str) -> list[str]:
    return verify(open_store(root), Reporter("store", lambda _event: None))[1]


@pytest.mark.parametrize("write", [cifar, coco])
def test_a_bucket_gives_what_a_folder_gives_through_a_bad_network(
    tmp_path: Path, gcs_root: str, proxy: fault_proxy.FaultProxy, write: Callable[[Path], Path]
) -> None:
    here = spec_of(write, tmp_path / "root", write(tmp_path / "raw"))
    expected = convert(here, silent())
    there = spec_of(write, f"{gcs_root}root", upload(tmp_path / "raw", f"{gcs_root}raw"))
    proxy.share, proxy.faults = 0.2, (*fault_proxy.ALL, fault_proxy.DAMAGE)
    found = convert(there, silent())
    assert proxy.happened.total() > 5
    proxy.share = 0.0
    assert contents(there) == contents(here)
    assert found.model_copy(update={"seconds": 0}) == expected.model_copy(update={"seconds": 0})
    assert CONVERT.find(there, silent()) is not None
    assert problems(there.root) == []
    assert not any((tmp_path / "cache" / "objects").glob("*.half"))


def on_a_machine(cache: Path, spec: ConvertSpec) -> None:
    """A conversion in a process of its own, on a machine of its own."""
    os.environ["PODLINE_STORE_CACHE"] = str(cache)
    convert_silently(spec)


def with_the_server(url: str, cache: Path, spec: ConvertSpec) -> None:
    os.environ["STORAGE_EMULATOR_HOST"] = url
    on_a_machine(cache, spec)


def test_two_at_once_both_end_well(tmp_path: Path, gcs: str, gcs_root: str) -> None:
    here = spec_of(cifar, tmp_path / "root", cifar(tmp_path / "raw"))
    convert(here, silent())
    there = spec_of(cifar, f"{gcs_root}root", tmp_path / "raw")
    processes = [start(with_the_server, gcs, tmp_path / f"machine{number}", there) for number in range(2)]
    for process in processes:
        process.join(240)
    assert [process.exitcode for process in processes] == [0, 0]
    assert contents(there) == contents(here)
    assert problems(there.root) == []


def stage(url: str, cache: Path, root: str) -> None:
    os.environ |= {"STORAGE_EMULATOR_HOST": url, "PODLINE_STORE_CACHE": str(cache)}
    store = open_store(root)
    store.locals(store.list())


@pytest.mark.slow
def test_staging_that_is_killed_goes_on_and_leaves_nothing(tmp_path: Path, gcs: str, gcs_root: str) -> None:
    store = open_store(gcs_root)
    expected = {f"object {number}": random.randbytes(2_000_000) for number in range(12)}
    for name, content in expected.items():
        store.publish_bytes(name, content)
    killed, cache = 0, tmp_path / "cache" / "objects"
    for _ in range(4):
        before = set(cache.glob("*"))
        process = start(stage, gcs, tmp_path / "cache", store.uri)
        while set(cache.glob("*")) <= before and process.is_alive():  # until something has begun to come
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.05))
        process.kill()
        process.join(240)
        killed += process.exitcode == -signal.SIGKILL
    assert killed
    paths = dict(zip(expected, store.locals(expected), strict=True))
    assert {name: path.read_bytes() for name, path in paths.items()} == expected
    assert sorted((tmp_path / "cache" / "objects").iterdir()) == sorted(paths.values())
