"""Conversions on Dataflow, as far as a stand-in goes that runs the staged pipeline on Prism."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dask_cluster import can_unshare
from dataflow_standin import Dataflow, dataflow
from engine_sources import KINDS, specs
from killed_conversions import convert_elsewhere, start
from raw_cifar import contents
from worker_pool import worker_pool

from podline.beam_jobs import decoding
from podline.beam_jobs.conversion import convert
from podline.beam_jobs.engines import prism
from podline.beam_jobs.steps import Home
from podline.errors import EngineError, PreemptedError, QuotaError
from podline.progress import Event, Reporter, silent
from podline.settings import Settings
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store
from podline.supervision.supervisor import Ending, run_stage

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("prism") is None, reason="no prism in PATH; see docs/how-to/engines.md"),
    pytest.mark.skipif(not can_unshare(), reason="needs `unshare -m`"),
]


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    """What this machine has and workers do not see."""
    (tmp_path / "driver").mkdir()
    return tmp_path / "driver"


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
    return specs(hidden, "cifar", **there)


def test_jobs_write_the_same_bytes(
    hidden: Path, there: dict[str, Any], service: tuple[str, Dataflow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_BATCH_IMAGES", 25)
    for kind in KINDS:
        here, events = specs(hidden, kind), list[Event]()
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


def test_a_job_that_is_refused_says_why(spec: ConvertSpec, service: tuple[str, Dataflow]) -> None:
    service[1].refusal = (403, "Required dataflow.jobs.create permission")
    with pytest.raises(EngineError, match=r"refuses this account.*dataflow\.jobs\.create"):
        convert(spec, silent())
    service[1].refusal = (429, "Quota exceeded for Dataflow jobs")
    with pytest.raises(QuotaError, match=r"raise it, .*Quota exceeded"):
        convert(spec, silent())


def test_an_error_of_a_worker_keeps_its_class(spec: ConvertSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podline.beam_jobs.conversion.Home", partial(Home, release="0.1.0"))
    with pytest.raises(EngineError, match=r"but 0\.1\.0 where the job was started; install the same$"):
        convert(spec, silent())


def test_a_driver_that_is_killed_goes_on_with_the_job_that_runs(
    hidden: Path, gcs: str, spec: ConvertSpec, service: tuple[str, Dataflow]
) -> None:
    jobs, service[1].late = service[1].jobs, True
    driver = start(convert_elsewhere, gcs, hidden / "cache", spec)
    wait_for(lambda: jobs)
    os.kill(driver.pid or 0, signal.SIGKILL)
    driver.join(60)
    assert convert(spec, silent()).shards_reused == 0
    assert [job["currentState"] for job in jobs.values()] == ["JOB_STATE_DONE"]
    assert open_store(spec.root).list("jobs") == []


def test_a_conversion_that_is_asked_to_end_cancels_the_job(spec: ConvertSpec, service: tuple[str, Dataflow]) -> None:
    jobs, service[1].late, ending = service[1].jobs, True, Ending()

    def ask() -> None:
        wait_for(lambda: jobs)
        ending.ask(PreemptedError("asked to end"), at_once=False)

    threading.Thread(target=ask, daemon=True).start()
    with pytest.raises(PreemptedError):
        run_stage(spec, lambda _event: None, Settings(silence=60), ending)
    assert [job["currentState"] for job in jobs.values()] == ["JOB_STATE_CANCELLED"]


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
