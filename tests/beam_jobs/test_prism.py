"""Conversions on Prism, Beam's own portable runner, with workers in this process and with workers that see nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from dask_cluster import can_unshare
from engine_sources import KINDS, specs
from raw_cifar import contents, convert_spec, write_raw_cifar
from worker_pool import can_have_network, worker_pool

from podline.beam_jobs import decoding
from podline.beam_jobs.conversion import convert
from podline.beam_jobs.engines import prism
from podline.cli import cli
from podline.errors import EngineLostError
from podline.progress import silent
from podline.store.opening import open_store

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("prism") is None, reason="no prism in PATH; see docs/how-to/engines.md"),
]
needs_namespaces = pytest.mark.skipif(
    not (can_unshare() and can_have_network()), reason="needs `unshare -m` and `ip netns`"
)


def test_workers_in_this_process_write_the_same_bytes(tmp_path: Path) -> None:
    here = convert_spec(tmp_path / "here", write_raw_cifar(tmp_path / "raw", train=1000))
    there = here.model_copy(update={"root": str(tmp_path / "there"), "engine": "prism"})
    convert(here, silent())
    assert convert(there, silent()).shards_written == 51
    assert contents(there) == contents(here)


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What this machine has and workers do not see."""
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory, hidden: Path, gcs: str) -> Iterator[dict[str, Any]]:
    """Prism, and workers with mounts and a network of their own, from which they reach Prism and the bucket alone."""
    more, folder = {"STORAGE_EMULATOR_HOST": gcs}, tmp_path_factory.mktemp("pool") / "pool"
    with prism() as server:
        ports = [int(address.rpartition(":")[2]) for address in (server, gcs)]
        with worker_pool(folder, hidden, more, ports) as pool:
            options = ("--environment_type=EXTERNAL", f"--environment_config={pool}")
            yield {"engine": f"job-server:{server}", "beam_options": options}


@needs_namespaces
@pytest.mark.parametrize("kind", KINDS)
def test_workers_that_reach_nothing_but_the_bucket_write_the_same_bytes(
    hidden: Path, gcs_root: str, elsewhere: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_BATCH_IMAGES", 25)
    here = specs(hidden, kind)
    convert(here, silent())
    there = here.model_copy(update={"root": f"{gcs_root}{kind}", **elsewhere})
    convert(there, silent())
    assert contents(there) == contents(here)
    assert open_store(there.root).list("jobs") == []


def test_prism_that_is_killed_is_an_error_of_one_line_and_the_next_run_goes_on(tmp_path: Path) -> None:
    raw = write_raw_cifar(tmp_path / "raw", train=3000)
    spec = convert_spec(tmp_path / "root", raw, engine="prism")

    def kill() -> None:
        while sum("/shards/" in name for name in open_store(spec.root).list("datasets")) < 3:
            time.sleep(0.02)
        os.kill(newest_prism(), signal.SIGKILL)

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
    assert "no worker reported within 15 s" in str(answer.exception)
    assert open_store(gcs_root).list() == []


def newest_prism() -> int:
    command = ["pgrep", "-n", "-P", str(os.getpid()), "prism"]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()[0])
