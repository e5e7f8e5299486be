"""Which Beam runner a conversion uses, how its noise is kept out, and how an error comes back out of it.

The default runner is Beam's own FnApiRunner in this process, named here and not left to Beam: ``DirectRunner`` chooses
by itself, and may look for a binary that it would download. More than one worker means as many processes of it.
Everything else comes as ordinary Beam flags: ``--runner=DataflowRunner --project=…``, ``--runner=PortableRunner
--job_endpoint=… --environment_type=LOOPBACK``.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import itertools
import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.runner import create_runner

from podline.errors import PodlineError, SettingsError, from_json
from podline.stages import ConvertSpec

P = ParamSpec("P")
R = TypeVar("R")

_MARK = re.compile(r"podline-error:([A-Za-z0-9_=-]+)")


def open_pipeline(spec: ConvertSpec) -> beam.Pipeline:
    """An empty pipeline on the runner that a conversion asks for.

    Raises:
        SettingsError: no such runner, an option that Beam does not know, or one at odds with ``workers``.
    """
    options = pipeline_options(spec)
    name = options.view_as(StandardOptions).runner
    try:
        with quiet():
            runner = FnApiRunner() if name is None else create_runner(name)
            return beam.Pipeline(runner=runner, options=options)
    except (ValueError, ImportError, AttributeError) as error:
        raise SettingsError(f"Beam refuses its options: {_last_line(str(error))}") from error


def pipeline_options(spec: ConvertSpec) -> PipelineOptions:
    """Beam's options for a conversion.

    Raises:
        SettingsError: an option that Beam does not know, or one at odds with ``workers``.
    """
    flags = list(spec.beam_options)
    for before, flag in itertools.pairwise(["", *flags]):
        if not flag.startswith("--") and ("=" in before or not before.startswith("--")):
            raise SettingsError(f"{flag!r} is no Beam option: one is written --name=value")
    said = io.StringIO()
    try:
        with quiet(), contextlib.redirect_stderr(said):
            options = PipelineOptions(flags)
            given = options.get_all_options(drop_default=True, retain_unknown_options=True)
            unknown = sorted(set(given) - set(options.get_all_options()))
    except SystemExit as error:  # argparse's way to say that a value cannot be
        raise SettingsError(f"Beam refuses its options: {_last_line(said.getvalue())}") from error
    if unknown:
        raise SettingsError(f"unknown Beam option --{unknown[0]}; see Beam's PipelineOptions for those that there are")
    if spec.workers > 1:
        _use_processes(options, spec.workers)
    return options


def _use_processes(options: PipelineOptions, workers: int) -> None:
    runner = options.view_as(StandardOptions).runner
    if runner is not None:
        raise SettingsError(
            f"workers={workers} vs --runner={runner}: workers are the local runner's; give {runner} its own option"
        )
    direct = options.view_as(DirectOptions)
    direct.direct_num_workers = workers
    direct.direct_running_mode = "multi_processing"


def run(pipeline: beam.Pipeline) -> None:
    """Runs a pipeline to its end.

    Raises:
        PodlineError: what a step raised under :func:`crossing_borders`, as the class that it was; a plain one with
            Beam's last line if Beam itself failed.
    """
    try:
        with quiet():
            pipeline.run().wait_until_finish()
    except Exception as error:
        raise error_within(str(error)) from error


def crossing_borders(step: Callable[P, R]) -> Callable[P, R]:
    """Lets a step's :class:`PodlineError` reach :func:`run` through any runner: Beam hands on an error's text alone."""

    @functools.wraps(step)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return step(*args, **kwargs)
        except PodlineError as error:
            text = base64.urlsafe_b64encode(json.dumps(error.to_json()).encode()).decode()
            raise RuntimeError(f"{error} podline-error:{text}") from error

    return wrapped


def error_within(text: str) -> PodlineError:
    """The error that a step raised, out of whatever text Beam made of it."""
    mark = _MARK.search(text)
    if mark:
        return from_json(json.loads(base64.urlsafe_b64decode(mark.group(1))))
    return PodlineError(f"the Beam job failed: {_last_line(text)}")


def _last_line(text: str) -> str:
    """The last line that says something: of a traceback, the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps Beam's log out of ours: what it has to say comes as an error, with all that it said as the cause."""
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
