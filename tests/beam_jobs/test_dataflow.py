"""Conversions on Dataflow, as far as a stand-in goes that runs the staged pipeline on Prism."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from dask_cluster import can_unshare
from dataflow_standin import Dataflow, dataflow
from raw_cifar import convert_spec, write_raw_cifar
from worker_pool import worker_pool

from podline.beam_jobs.conversion import convert
from podline.beam_jobs.engines import prism
from podline.errors import EngineError, QuotaError
from podline.progress import Event, Reporter, silent
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("prism") is None, reason="no prism in PATH; docs/engines.md says how it is built"),
    pytest.mark.skipif(not can_unshare(), reason="needs `unshare -m`"),
]


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    """What this machine has and workers do not see."""
    (tmp_path / "driver").mkdir()
    return tmp_path / "driver"


@pytest.fixture
def service(tmp_path: Path, hidden: Path, gcs: str, gcs_root: str) -> Iterator[tuple[str, Dataflow]]:
    pool = worker_pool(tmp_path / "pool", hidden, {"STORAGE_EMULATOR_HOST": gcs})
    with prism() as server, pool as workers, dataflow(server, workers) as standing:
        yield standing


@pytest.fixture
def spec(hidden: Path, gcs_root: str, service: tuple[str, Dataflow]) -> ConvertSpec:
    options = (
        f"--dataflow_endpoint={service[0]}",
        "--no_auth",
        "--project=project",
        "--region=region",
        "--temp_location=gs://podline-test/temp",
        "--staging_location=gs://podline-test/staging",
        "--sdk_container_image=registry/podline/beam",
    )
    raw = write_raw_cifar(hidden / "raw", train=400)
    return convert_spec(Path(), raw, root=f"{gcs_root}there", engine="dataflow", beam_options=options)


def contents(spec: ConvertSpec) -> dict[str, bytes]:
    store = open_store(spec.root)
    return {name: store.read_bytes(name) for name in store.list("datasets") if "/stages/" not in name}


def test_a_job_writes_the_same_bytes(hidden: Path, spec: ConvertSpec, service: tuple[str, Dataflow]) -> None:
    here = spec.model_copy(update={"root": str(hidden / "here"), "engine": "local", "beam_options": ()})
    convert(here, silent())
    events: list[Event] = []
    convert(spec, Reporter("convert", events.append))
    assert contents(spec) == contents(here)
    (job,) = service[1].jobs.values()
    assert job["currentState"] == "JOB_STATE_DONE"
    assert f"the engine dataflow has the job; job {job['id']}" in [event.get("message") for event in events]


def test_a_job_that_is_refused_says_why(spec: ConvertSpec, service: tuple[str, Dataflow]) -> None:
    service[1].refusal = (403, "Required dataflow.jobs.create permission")
    with pytest.raises(EngineError, match=r"refuses this account.*dataflow\.jobs\.create"):
        convert(spec, silent())
    service[1].refusal = (429, "Quota exceeded for Dataflow jobs")
    with pytest.raises(QuotaError, match=r"raise it, .*Quota exceeded"):
        convert(spec, silent())


def test_an_error_of_a_worker_keeps_its_class(spec: ConvertSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    from podline.beam_jobs import conversion  # noqa: PLC0415
    from podline.beam_jobs.steps import Job  # noqa: PLC0415

    monkeypatch.setattr(conversion, "Job", lambda *given: Job(*given, release="0.1.0"))
    with pytest.raises(EngineError, match=r"vs 0\.1\.0 where the job was started; install the same$"):
        convert(spec, silent())
