"""The same job over Beam's portable job service, with workers that it calls back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_beam.runners.portability.local_job_service import LocalJobServicer
from raw_cifar import contents, convert_spec, write_raw_cifar

from podline.beam_jobs.conversion import convert
from podline.errors import StoreError
from podline.progress import Event, Reporter, silent


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[dict[str, object]]:
    (tmp_path / "staging").mkdir()
    service = LocalJobServicer(staging_dir=str(tmp_path / "staging"))
    port = service.start_grpc_server()
    yield {"engine": f"job-server:localhost:{port}", "beam_options": ("--environment_type=LOOPBACK",)}
    service.stop()


def test_loopback_workers_write_the_same_bytes(tmp_path: Path, elsewhere: dict[str, object]) -> None:
    raw = write_raw_cifar(tmp_path / "raw")
    here = convert_spec(tmp_path / "here", raw)
    there = convert_spec(tmp_path / "there", raw, **elsewhere)
    convert(here, silent())
    events: list[Event] = []
    result = convert(there, Reporter("convert", events.append))
    assert result.shards_written == 6
    assert contents(there) == contents(here)
    assert events[-1]["done"] == 6


def test_an_error_keeps_its_class_and_its_line(tmp_path: Path, elsewhere: dict[str, object]) -> None:
    raw = write_raw_cifar(tmp_path / "raw")
    folder = convert(convert_spec(tmp_path / "here", raw), silent()).folder
    spec = convert_spec(tmp_path / "there", raw, **elsewhere)
    taken = Path(spec.root) / folder / "cifar10-test.tfrecord-00000-of-00001"
    taken.mkdir(parents=True)
    with pytest.raises(StoreError, match=rf"^cannot write {taken}: Is a directory$"):
        convert(spec, silent())
