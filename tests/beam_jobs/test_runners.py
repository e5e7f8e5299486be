"""Runners, Beam's options, and errors that cross Beam."""

from __future__ import annotations

import base64
import logging
import threading
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.portability.portable_runner import PortableRunner
from raw_cifar import convert_spec

from podline.beam_jobs.runners import crossing_borders, error_within, open_pipeline, pipeline_options, quiet, run
from podline.errors import ChildKilledError, PodlineError, SettingsError, SourceError, StoreUnavailableError
from podline.stages.specs import ConvertSpec


def spec(*flags: str, workers: int = 1) -> ConvertSpec:
    return convert_spec(Path("root"), Path("raw"), beam_options=flags, workers=workers)


def test_the_local_runner_is_named_not_chosen_by_beam() -> None:
    assert type(open_pipeline(spec()).runner) is FnApiRunner


def test_workers_are_processes() -> None:
    pipeline = open_pipeline(spec(workers=3))
    assert type(pipeline.runner) is FnApiRunner
    assert pipeline._options.view_as(DirectOptions).direct_num_workers == 3
    command = pipeline.runner._default_environment.command_string
    assert "sdk_worker_main" in command


def test_beam_s_flags_pass_through() -> None:
    pipeline = open_pipeline(
        spec("--runner=PortableRunner", "--job_endpoint", "localhost:1", "--environment_type=LOOPBACK")
    )
    assert type(pipeline.runner) is PortableRunner
    options = pipeline._options.get_all_options(drop_default=True)
    assert (options["job_endpoint"], options["environment_type"]) == ("localhost:1", "LOOPBACK")


@pytest.mark.parametrize(
    ("flags", "workers", "message"),
    [
        (("--runner=Foo",), 1, "Unexpected pipeline runner: Foo"),
        (("--enviroment_type=LOOPBACK",), 1, "unknown Beam option --enviroment_type"),
        (("--direct_num_workers=two",), 1, "argument --direct_num_workers: invalid int value: 'two'"),
        (("--runner=DataflowRunner",), 1, "Missing required option"),
        (("runner=FnApiRunner",), 1, "'runner=FnApiRunner' is no Beam option: one is written --name=value"),
        (("--runner", "FnApiRunner", "oops"), 1, "'oops' is no Beam option"),
        (("--runner=FnApiRunner", "oops"), 1, "'oops' is no Beam option"),
        (("--runner=FnApiRunner",), 2, "workers=2 vs --runner=FnApiRunner"),
    ],
)
def test_options_that_cannot_be(
    flags: tuple[str, ...], workers: int, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SettingsError) as error:
        open_pipeline(spec(*flags, workers=workers))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("error", [SourceError("a 'quoted' line\nand a second"), StoreUnavailableError("später")])
def test_an_error_survives_as_text(error: PodlineError) -> None:
    @crossing_borders
    def step() -> None:
        raise error

    with pytest.raises(RuntimeError) as raised:
        step()
    text = f"Traceback …\n  File …\nRuntimeError: {raised.value} [while running 'Write or find']\nand more"
    for seen in (text, repr(text)):
        found = error_within(seen)
        assert type(found) is type(error)
        assert str(found) == str(error)


def test_a_step_s_other_errors_are_left_alone() -> None:
    @crossing_borders
    def step() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        step()


def test_a_dead_worker_is_known_by_its_thread_not_by_beam_s_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def die() -> None:
        raise RuntimeError("other words")

    def lose(_pipeline: object) -> None:
        threading.Thread(name="run_worker", target=die).start()
        raise RuntimeError("the connection is lost, in other words")

    pipeline = open_pipeline(spec())
    monkeypatch.setattr(type(pipeline), "run", lose)
    with pytest.raises(ChildKilledError, match="worker process"):
        run(pipeline)


def test_a_runner_s_own_options_are_known() -> None:
    flags = spec("--runner=own_runner.OwnRunner", "--own_address=localhost:1")
    assert pipeline_options(flags).get_all_options(drop_default=True)["own_address"] == "localhost:1"


def test_text_without_an_error_of_ours() -> None:
    found = error_within("Traceback …\n\nValueError: no luck\n\n")
    assert (type(found), str(found)) == (PodlineError, "the Beam job failed: ValueError: no luck")


def test_quiet_ends(caplog: pytest.LogCaptureFixture) -> None:
    root, beams = logging.getLogger(), logging.getLogger("apache_beam.some.module")
    handlers, filters = list(root.handlers), list(root.filters)
    with caplog.at_level(logging.INFO):
        with quiet():
            beams.error("unheard")
            logging.getLogger("podline").info("heard")
        beams.error("heard again")
    assert [record.message for record in caplog.records] == ["heard", "heard again"]
    assert (root.handlers, root.filters) == (handlers, filters)


def test_the_mark_is_url_safe_base64() -> None:
    # Whatever quotes, escapes or wraps a message on its way leaves these characters alone.
    text = base64.urlsafe_b64encode(b'{"type": "SourceError", "message": "m"}').decode()
    assert str(error_within(f"x podline-error:{text}\\n'")) == "m"
