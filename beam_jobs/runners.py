"""Chooses the Beam runner, keeps its logging quiet, and turns its errors into Podline's.

The default runner is Beam's own FnApiRunner in this process, named here and not left to Beam: ``DirectRunner`` chooses
by itself, and may look for a binary that it would download. More than one worker means as many processes of it.
Another runner comes by ordinary Beam flags, as ``--runner=PortableRunner --job_endpoint=…
--environment_type=LOOPBACK``; its workers need the store, the raw files and the installed code.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import itertools
import json
import logging
import queue
import re
import shlex
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.runner import create_runner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from podline.errors import ChildKilledError, PodlineError, SettingsError, from_json
from podline.stages.specs import ConvertSpec

P = ParamSpec("P")
R = TypeVar("R")

# FnApiRunner's thread that waits for a worker process; it raises an error if the process fails or is killed.
_WORKER_THREAD = "run_worker"
_TO_WIND_UP = 5.0  # seconds that Beam is given to end its other workers
_TO_NOTICE = 1.0  # seconds from a lost connection until that thread knows of the worker's end
_MARK = re.compile(r"podline-error:([A-Za-z0-9_=-]+)")


def open_pipeline(spec: ConvertSpec) -> beam.Pipeline:
    """Return an empty pipeline on the runner that a conversion asks for.

    Raises:
        SettingsError: no such runner, an option that Beam does not know, or one at odds with ``workers``.
    """
    options = pipeline_options(spec)
    name = options.view_as(StandardOptions).runner
    try:
        with quiet():
            runner = _local_runner(options, spec.workers) if name is None else create_runner(name)
            return beam.Pipeline(runner=runner, options=options)
    except (ValueError, ImportError, AttributeError) as error:
        raise SettingsError(f"Beam refuses its options: {_last_line(str(error))}") from error


def _local_runner(options: PipelineOptions, workers: int) -> FnApiRunner:
    """Beam's runner in this process; with more than one worker, each is a process of its own."""
    if workers == 1:
        return FnApiRunner()
    options.view_as(DirectOptions).direct_num_workers = workers
    # What direct_running_mode=multi_processing would start; but a worker prints the traceback of every error that it
    # sends us as well, so its standard error is closed, and with exec no shell stands between it and the end.
    command = f"exec {shlex.quote(sys.executable)} -m apache_beam.runners.worker.sdk_worker_main 2>/dev/null"
    environment = SubprocessSDKEnvironment.from_command_string(command)  # pyright: ignore[reportFunctionMemberAccess]
    return FnApiRunner(default_environment=environment)


def pipeline_options(spec: ConvertSpec) -> PipelineOptions:
    """Return Beam's options for a conversion.

    Raises:
        SettingsError: no such runner, an option that Beam does not know, or one at odds with ``workers``.
    """
    flags = list(spec.beam_options)
    for before, flag in itertools.pairwise(["", *flags]):
        if not flag.startswith("--") and ("=" in before or not before.startswith("--")):
            raise SettingsError(f"{flag!r} is no Beam option: one is written --name=value")
    said = io.StringIO()
    try:
        with quiet(), contextlib.redirect_stderr(said):
            options = PipelineOptions(flags)
            runner = options.view_as(StandardOptions).runner
            if runner is not None:
                create_runner(runner)  # imports its module, which declares its options
            given = options.get_all_options(drop_default=True, retain_unknown_options=True)
            unknown = sorted(set(given) - set(options.get_all_options()))
    except SystemExit as error:  # argparse's way to say that a value cannot be
        raise SettingsError(f"Beam refuses its options: {_last_line(said.getvalue())}") from error
    except (ValueError, ImportError, AttributeError) as error:
        raise SettingsError(f"Beam refuses its options: {_last_line(str(error))}") from error
    if unknown:
        raise SettingsError(f"unknown Beam option --{unknown[0]}; see Beam's PipelineOptions for those that there are")
    if spec.workers > 1 and runner is not None:
        raise SettingsError(
            f"workers={spec.workers} vs --runner={runner}: workers are the local runner's; give {runner} its own option"
        )
    return options


def run(pipeline: beam.Pipeline) -> None:
    """Run a pipeline to its end.

    Raises:
        ChildKilledError: a worker process of the local runner was killed.
        PodlineError: what a step raised under :func:`crossing_borders`, as the class that it was; a plain one with
            Beam's last line if Beam itself failed.
    """
    outcomes: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    lost = threading.Event()

    def work() -> None:
        try:
            pipeline.run().wait_until_finish()
        except BaseException as error:  # it is raised where it is waited for
            outcomes.put(error)
        else:
            outcomes.put(None)

    def lose(error: BaseException) -> None:
        lost.set()
        outcomes.put(error)

    job = threading.Thread(target=work, name="beam job", daemon=True)
    with _dead_workers(lose):
        job.start()
        error = outcomes.get()
        job.join(_TO_WIND_UP)
        if error is None:
            return
        text = "".join(traceback.format_exception_only(error))
        if not _MARK.search(text) and lost.wait(_TO_NOTICE):
            raise ChildKilledError(
                "a worker process of the conversion was killed, maybe for want of memory; start it again, and it goes "
                "on where it was"
            ) from error
    raise error_within(text) from error


@contextlib.contextmanager
def _dead_workers(tell: Callable[[BaseException], None]) -> Iterator[None]:
    """Hears of worker processes that end too early: Beam itself waits for ever for one that ends while it starts."""
    before = threading.excepthook

    def hook(raised: threading.ExceptHookArgs) -> None:
        if raised.thread is not None and raised.thread.name == _WORKER_THREAD and raised.exc_value is not None:
            tell(raised.exc_value)
        elif not isinstance(raised.exc_value, grpc.RpcError):  # a lost connection, of which Beam tells by itself
            before(raised)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


def crossing_borders(step: Callable[P, R]) -> Callable[P, R]:
    """Let a step's :class:`PodlineError` reach :func:`run` through any runner: Beam hands on an error's text alone."""

    @functools.wraps(step)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return step(*args, **kwargs)
        except PodlineError as error:
            text = base64.urlsafe_b64encode(json.dumps(error.to_json()).encode()).decode()
            raise RuntimeError(f"{error} podline-error:{text}") from error

    return wrapped


def error_within(text: str) -> PodlineError:
    """Return the error that a step raised, out of whatever text Beam made of it."""
    mark = _MARK.search(text)
    if mark:
        return from_json(json.loads(base64.urlsafe_b64decode(mark.group(1))))
    return PodlineError(f"the Beam job failed: {_last_line(text)}")


def _last_line(text: str) -> str:
    """Return the last line that is not blank: of a traceback, the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep Beam's log out of ours: what it has to say comes as an error, with all that it said as the cause."""
    beams, root = logging.getLogger("apache_beam"), logging.getLogger()
    level, handler = beams.level, logging.NullHandler()
    beams.setLevel(logging.CRITICAL)
    # Beam's portable runner logs straight to the root logger, which sets up a handler of its own if there is none.
    root.addHandler(handler)
    root.addFilter(_not_from_beam)
    try:
        yield
    finally:
        beams.setLevel(level)
        root.removeHandler(handler)
        root.removeFilter(_not_from_beam)


def _not_from_beam(record: logging.LogRecord) -> bool:
    return "apache_beam" not in record.pathname
