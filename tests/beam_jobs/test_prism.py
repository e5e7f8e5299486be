"""Conversions on Prism, Beam's portable runner, and on Dataflow, as far as a stand-in goes that runs jobs on Prism."""

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
from dask_cluster import can_unshare, worker_pool
from dataflow_standin import Dataflow, dataflow
from engine_sources import KINDS, specs
from killed_conversions import convert_elsewhere, start
from raw_cifar import contents, convert_spec, write_raw_cifar
from waiting import wait_until

from podline.base.errors import EngineLostError
from podline.base.progress import Event, Reporter, silent
from podline.beam_jobs import decoding
from podline.beam_jobs.conversion import convert
from podline.beam_jobs.engines import prism
from podline.cli import cli
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("prism") is None, reason="no prism in PATH; see docs/how-to/engines.md"),
]
needs_namespaces = pytest.mark.skipif(not can_unshare(), reason="needs `unshare -m`")


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What this machine has and workers do not see."""
    return tmp_path_factory.mktemp("driver")


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
    here = convert_spec(tmp_path / "here", raw)
    convert(here, silent())
    assert contents(spec) == contents(here)


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


@pytest.fixture
def service(tmp_path: Path, hidden: Path, gcs: str, gcs_root: str) -> Iterator[tuple[str, Dataflow]]:
    more = {"STORAGE_EMULATOR_HOST": gcs}
    with prism() as server, worker_pool(tmp_path / "pool", hidden, more) as pool, dataflow(server, pool) as standing:
        yield standing


@pytest.fixture
def there(gcs_root: str, service: tuple[str, Dataflow]) -> dict[str, Any]:
    """A conversion on the service, into the bucket."""
    options = (
        f"--dataflow_endpoint={service[0]}",
        "--no_auth",
        "--project=project",
        "--region=region",
        "--temp_location=gs://podline-test/temp",
        "--staging_location=gs://podline-test/staging",
        "--sdk_container_image=registry/podline/beam",
    )
    return {"root": f"{gcs_root}there", "engine": "dataflow", "beam_options": options}


@pytest.fixture
def spec(hidden: Path, there: dict[str, Any]) -> ConvertSpec:
    return specs(hidden / "dataflow", "cifar", **there)


@needs_namespaces
def test_workers_that_share_nothing_but_the_bucket_write_the_same_bytes(
    hidden: Path, there: dict[str, Any], service: tuple[str, Dataflow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_BATCH_IMAGES", 25)
    for kind in KINDS:
        here, events = specs(hidden / "dataflow", kind), list[Event]()
        convert(here, silent())
        spec = here.model_copy(update=there | {"root": f"{there['root']}/{kind}"})
        convert(spec, Reporter("convert", events.append))
        assert contents(spec) == contents(here)
        last = [*service[1].jobs.values()][-1]
        page = f"https://console.cloud.google.com/dataflow/jobs/region/{last['id']}?project=project"
        assert f"the engine dataflow accepted the job; {page}" in [event.get("message") for event in events]
        assert events[-1]["note"] == f"dataflow DONE {page}"
    assert {job["currentState"] for job in service[1].jobs.values()} == {"JOB_STATE_DONE"}
    assert len(service[1].jobs) == 8  # raw pixels need one; COCO's two splits are decoded apart


@needs_namespaces
def test_a_driver_that_is_killed_goes_on_with_the_job_that_runs(
    hidden: Path, gcs: str, spec: ConvertSpec, service: tuple[str, Dataflow]
) -> None:
    jobs, service[1].late = service[1].jobs, True
    driver = start(convert_elsewhere, gcs, hidden / "cache", spec)
    wait_until(lambda: jobs)
    os.kill(driver.pid or 0, signal.SIGKILL)
    driver.join(60)
    assert convert(spec, silent()).shards_reused == 0
    assert [job["currentState"] for job in jobs.values()] == ["JOB_STATE_DONE"]
    assert open_store(spec.root).list("jobs") == []
