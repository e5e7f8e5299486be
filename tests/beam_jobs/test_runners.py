"""Runners, Beam's options, errors that cross Beam, and images that an engine's workers decode."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from drawn_images import drawn, encoded
from raw_cifar import convert_spec

from podline.base.errors import (
    ChildKilledError,
    EngineError,
    EngineLostError,
    PodlineError,
    QuotaError,
    SettingsError,
    SourceError,
    StoreUnavailableError,
)
from podline.beam_jobs import decoding, failures, runners
from podline.beam_jobs.conversion import add_steps
from podline.beam_jobs.decoding import EngineDecoding
from podline.beam_jobs.engines import open_engine
from podline.beam_jobs.failures import error_within
from podline.beam_jobs.jobs import JobContext
from podline.beam_jobs.runners import run
from podline.data.decoded_rows import DecodedRows, joined
from podline.data.places import Place
from podline.data.sources.decoding import Decoder, DecodeRequest, FittedPictures, Look
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store


def spec(*flags: str, engine: str = "local", workers: int = 1) -> ConvertSpec:
    return convert_spec(Path("root"), Path("raw"), beam_options=flags, workers=workers, engine=engine)


@pytest.mark.parametrize(
    ("engine", "flags", "message"),
    [
        ("local", ("--runner=Foo",), "--runner=Foo: select the engine with --engine instead"),
        ("local", ("--enviroment_type=LOOPBACK",), "unknown Beam option --enviroment_type"),
        ("local", ("--direct_num_workers=two",), "argument --direct_num_workers: invalid int value: 'two'"),
        ("dataflow", (), "Missing required option"),
        ("local", ("project=x",), "'project=x' is not a Beam option; write it as --name=value"),
        ("local", ("--project=x", "oops"), "'oops' is not a Beam option"),
        (
            "job-server:localhost:1",
            (),
            "needs the environment of its workers: --beam-option=--environment_type=",
        ),
    ],
)
def test_options_that_cannot_be(
    engine: str, flags: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SettingsError) as error, open_engine(spec(*flags, engine=engine)):
        pass
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_prism_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EngineError, match=r"the program `prism` is not in PATH; build it with `go install .*@v2\."):
        open_engine(spec(engine="prism")).__enter__()


@pytest.mark.parametrize("error", [SourceError("a 'quoted' line\nand a second"), StoreUnavailableError("später")])
def test_an_error_survives_as_text(error: PodlineError) -> None:
    text = f"Traceback …\n  File …\nRuntimeError: {failures.encoded(error)} [while running 'Write or find']\nand more"
    for seen in (text, repr(text)):
        found = error_within(seen, "dask:h:1")
        assert type(found) is type(error)
        assert str(found) == str(error)


def test_a_dead_worker_is_known_by_its_thread_not_by_beam_s_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def die() -> None:
        raise RuntimeError("other words")

    def lose(_pipeline: object) -> None:
        threading.Thread(name="run_worker", target=die).start()
        raise RuntimeError("the connection is lost, in other words")

    with open_engine(spec()) as engine:
        pipeline = engine("podline")
        monkeypatch.setattr(type(pipeline), "run", lose)
        with pytest.raises(ChildKilledError, match="worker process"):
            run(pipeline, "local", print, print)


class Interrupted:
    """A pipeline whose start is interrupted, and its job."""

    def __init__(self, takes: float, failure: Exception | None = None) -> None:
        self.takes, self.failure, self.cancelled, self.ended = takes, failure, 0, threading.Event()

    def run(self) -> Interrupted:
        os.kill(os.getpid(), signal.SIGINT)
        self.ended.wait(self.takes)
        return self

    def wait_until_finish(self) -> str:
        self.ended.wait(30)
        return "DONE"

    def cancel(self) -> None:
        if self.failure:
            raise self.failure
        self.cancelled += 1


@pytest.mark.parametrize(
    ("engine", "pipeline", "cancelled", "warning"),
    [
        ("dataflow", Interrupted(0.2), 1, ""),
        ("dataflow", Interrupted(0.0, OSError("HttpError 503")), 0, "the job may still run: OSError: HttpError 503"),
        ("dataflow", Interrupted(30.0), 0, "the job may still run: it did not accept the job within 1 s"),
        ("local", Interrupted(30.0), 0, ""),
    ],
    ids=["taken late", "not cancelled", "never taken", "local"],
)
def test_an_interrupted_job_is_cancelled_or_the_user_is_warned(
    engine: str, pipeline: Any, cancelled: int, warning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "_TO_CANCEL", 1.0)
    heard = list[str]()
    with pytest.raises(KeyboardInterrupt):
        run(pipeline, engine, print, heard.append)
    pipeline.ended.set()
    assert pipeline.cancelled == cancelled
    assert heard == ([f"engine dataflow: {warning}; cancel it in the engine"] if warning else [])


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("ModuleNotFoundError: No module named 'podline'", EngineError, "a worker of the engine has no Podline"),
        ("HttpError 429: Quota exceeded for CPUS", QuotaError, "raise it"),
        ("HttpError 403: Forbidden: no dataflow.jobs.create", EngineError, "refuses this account"),
        ("distributed.scheduler.KilledWorker: attempted to run task x", EngineLostError, "memory ran out"),
        ("OSError: Timed out trying to connect to tcp://h:1 after 30 s", EngineLostError, "does not answer"),
        ("FutureCancelledError: x cancelled for reason: scheduler-connection-lost", EngineLostError, "was lost"),
        ("ValueError: shard 403 of 504 in /quota/connections", PodlineError, "the Beam job failed"),
    ],
)
def test_what_an_engine_says_is_permanent_or_transient(text: str, error: type[PodlineError], words: str) -> None:
    found = error_within(f"Traceback …\n{text}", "dask:h:1")
    assert type(found) is error
    assert words in str(found)
    assert str(found).endswith(text)


BECOMING = FittedPictures((16, 16, 3), "squeeze")


class InThisProcess:
    """Runs steps as an engine would; keeps them, to run them again."""

    def __init__(self) -> None:
        self.count, self.step = 0, beam.DoFn()

    def __call__(self, _folder: str, count: int, step: beam.DoFn) -> None:
        self.count, self.step = count, step
        self.again()

    def again(self) -> None:
        pipeline = beam.Pipeline()
        add_steps(pipeline, self.count, self.step)
        run(pipeline, "local", print, print)


def pixels(rows: DecodedRows, looks: list[Look]) -> np.ndarray:
    whole = np.array([row for row, look in enumerate(looks) if not look.reason])
    return rows.read(whole, 16 * 16 * 3)


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Images in batches of three, of which the first is not there and another is none."""
    monkeypatch.setattr(decoding, "_BATCH_IMAGES", 3)
    paths = [tmp_path / f"{number}.png" for number in range(8)]
    for number, path in enumerate(paths[1:]):
        path.write_bytes(b"no image" if number == 4 else encoded(drawn(number)))
    return paths


def decoded(
    tmp_path: Path, paths: list[Path], engine: InThisProcess
) -> tuple[list[Look], DecodedRows, list[DecodeRequest]]:
    requests = [DecodeRequest(Place(str(path))) for path in paths]
    on_engine = EngineDecoding(JobContext(str(tmp_path / "root"), "jobs/x"), engine)
    looks, rows = on_engine.decode(BECOMING, requests, "name")
    return list(looks), rows, requests


def test_batches_are_decoded_as_here_once_and_again_where_a_worker_was_lost(tmp_path: Path, paths: list[Path]) -> None:
    here, engine = tmp_path / "pixels", InThisProcess()
    looks, rows, requests = decoded(tmp_path, paths, engine)
    here.touch()
    with Decoder(BECOMING) as processes:
        assert looks == list(processes.looks(((str(here), row, each) for row, each in enumerate(requests)), 1.0))
    assert [look.reason[:7] for look in looks if look.reason] == ["there i", "is not "]
    wanted = pixels(joined([here], BECOMING.shape), looks)
    np.testing.assert_array_equal(pixels(rows, looks), wanted)

    store = open_store(tmp_path / "root")
    before = {found.name: found.version for found in store.listing("jobs")}
    lost = f"{rows.paths[0]}/0000001"
    store.delete(f"{lost}.looks")  # its worker was lost after it had published pixels
    store.publish_bytes(f"{lost}.pixels", b"a part", replace=True)
    engine.again()
    after = {found.name: found.version for found in store.listing("jobs")}
    assert {name.rpartition("/")[2] for name in after if after[name] != before[name]} == {
        f"0000001.{kind}" for kind in ("looks", "pixels")
    }
    np.testing.assert_array_equal(pixels(rows, looks), wanted)

    content = bytearray(store.read_bytes(f"{lost}.pixels"))
    content[5] ^= 1
    store.publish_bytes(f"{lost}.pixels", bytes(content), replace=True)
    with pytest.raises(SourceError, match=f"^{store.where(rows.paths[0])}: decoded images are damaged"):
        pixels(rows, looks)


def test_a_driver_that_starts_again_reads_and_decodes_only_what_is_missing(tmp_path: Path, paths: list[Path]) -> None:
    looks = decoded(tmp_path, paths, InThisProcess())[0]
    store, batches = open_store(tmp_path / "root"), "jobs/x/name"
    for lost in ("0000001.looks", "0000002.looks", "0000002.requests"):  # killed before the last was published
        store.delete(f"{batches}/{lost}")
    before = {found.name: found.version for found in store.listing(batches)}
    for path in paths[1:6]:
        path.unlink()
    again, rows, _ = decoded(tmp_path, paths, InThisProcess())
    assert again == looks
    assert store.find(f"{batches}/0000000.pixels").version == before[f"{batches}/0000000.pixels"]
    assert pixels(rows, looks).any()
