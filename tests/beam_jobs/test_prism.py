"""Conversions on Prism, Beam's own portable runner, with workers in this process and with workers that see nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from coco_files import CocoFiles
from dask_cluster import can_unshare
from gcs_emulator import upload
from raw_cifar import convert_spec, write_raw_cifar
from worker_pool import worker_pool

from podline.beam_jobs.conversion import convert
from podline.cli import cli
from podline.errors import EngineLostError
from podline.progress import silent
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("prism") is None, reason="no prism in PATH; docs/engines.md says how it is built"),
]
needs_namespaces = pytest.mark.skipif(not can_unshare(), reason="needs `unshare -m`")


def contents(spec: ConvertSpec) -> dict[str, bytes]:
    store = open_store(spec.root)
    return {name: store.read_bytes(name) for name in store.list("datasets") if "/stages/" not in name}


def people(folder: Path) -> ConvertSpec:
    CocoFiles("val", 4, 101).write(folder / "coco", zipped=True)
    source = CocoFiles("train", 10).write(folder / "coco", zipped=True)
    given = {"dataset": "coco", "side": 64, "max_people": 3, "shard_bytes": 60_000}
    return ConvertSpec.model_validate({**given, "root": str(folder / "people"), "source": str(source)})


def test_workers_in_this_process_write_the_same_bytes(tmp_path: Path) -> None:
    here = convert_spec(tmp_path / "here", write_raw_cifar(tmp_path / "raw", train=1000))
    there = here.model_copy(update={"root": str(tmp_path / "there"), "engine": "prism"})
    convert(here, silent())
    assert convert(there, silent()).shards_written == 51
    assert contents(there) == contents(here)


@needs_namespaces
def test_workers_that_see_nothing_but_the_bucket_write_the_same_bytes(tmp_path: Path, gcs: str, gcs_root: str) -> None:
    hidden = tmp_path / "driver"
    hidden.mkdir()
    with worker_pool(tmp_path / "pool", hidden, {"STORAGE_EMULATOR_HOST": gcs}) as pool:
        elsewhere = {
            "engine": "prism",
            "beam_options": ("--environment_type=EXTERNAL", f"--environment_config={pool}"),
        }
        cifar = convert_spec(hidden / "here", write_raw_cifar(hidden / "raw", train=1000))
        convert(cifar, silent())
        there = cifar.model_copy(update={"root": f"{gcs_root}cifar", **elsewhere})
        convert(there, silent())
        assert contents(there) == contents(cifar)

        coco = people(hidden)
        convert(coco, silent())
        source = upload(hidden / "coco", f"{gcs_root}coco")
        there = coco.model_copy(update={"root": f"{gcs_root}people", "source": source, **elsewhere})
        convert(there, silent())
        assert contents(there) == contents(coco)


def test_prism_that_is_killed_is_an_error_of_one_line_and_the_next_run_goes_on(tmp_path: Path) -> None:
    raw = write_raw_cifar(tmp_path / "raw", train=3000)
    spec = convert_spec(tmp_path / "root", raw, engine="prism")

    def kill() -> None:
        while sum("/shards/" in name for name in open_store(spec.root).list("datasets")) < 3:
            time.sleep(0.02)
        found = subprocess.run(
            ["pgrep", "-P", str(os.getpid()), "prism"], capture_output=True, check=True, text=True
        ).stdout.split()
        os.kill(int(found[0]), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(EngineLostError, match=r"^engine prism: ") as error:
        convert(spec, silent())
    assert "\n" not in str(error.value)
    assert convert(spec, silent()).shards_reused >= 3


@needs_namespaces
def test_a_pool_whose_python_has_no_beam_is_found_by_the_check(tmp_path: Path, gcs: str, gcs_root: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "python").chmod(0o755)
    (tmp_path / "hidden").mkdir()
    more = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "STORAGE_EMULATOR_HOST": gcs}
    with worker_pool(tmp_path / "pool", tmp_path / "hidden", more) as pool:
        options = ["--beam-option=--environment_type=EXTERNAL", f"--beam-option=--environment_config={pool}"]
        command = ["engine", "check", "prism", "--seconds", "15", "--root", gcs_root, *options]
        answer = CliRunner().invoke(cli, command)
    assert "no worker gave a sign of life for 15 s" in str(answer.exception)
    assert open_store(gcs_root).list() == []
