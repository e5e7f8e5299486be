"""Run a Beam pipeline, and silence Beam's logging."""

from __future__ import annotations

import contextlib
import logging
import queue
import re
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.runners.runner import PipelineResult, PipelineState

from podline.base.cores import memory_kills
from podline.base.errors import ChildKilledError, OutOfMemoryError
from podline.beam_jobs.failures import error_within, holds_error, last_line
from podline.settings.engines import LOCAL

# Name of FnApiRunner's thread that waits for a worker process and raises an error if the process fails.
_WORKER_THREAD = "run_worker"
_TO_WIND_UP = 5.0  # seconds for Beam to end its other workers
_TO_CANCEL = 25.0  # seconds for an engine to accept and cancel a job; a stage has 30 seconds to end
_TO_NOTICE = 1.0  # seconds until all of Beam's threads have noticed a lost connection
_RUNS = re.compile(r"already active job named \S+ with id: (\S+)\. ")


def run(
    pipeline: beam.Pipeline,
    engine: str,
    started: Callable[[PipelineResult], object],
    warn: Callable[[str], object],
) -> None:
    """Run a pipeline until it ends; if interrupted, cancel the engine's job.

    Args:
        pipeline: the pipeline, with the engine's options.
        engine: the name of the engine.
        started: called with the engine's job once the engine has accepted it; in another thread.
        warn: called with a message if the engine did not confirm the cancellation, so that the job may still run.

    Raises:
        ChildKilledError: a worker process of the local engine was killed; OutOfMemoryError if memory ran out.
        PodlineError: the error of a step, with its class; or the error for the engine's failure.
    """
    outcomes: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    lost, taken = threading.Event(), threading.Event()
    jobs: list[PipelineResult] = []
    kills = memory_kills()

    def work() -> None:
        try:
            jobs.append(_submitted(pipeline))
            taken.set()
            started(jobs[0])
            # Dask reports a job as done even if the scheduler was lost; then its futures have an error.
            states = {jobs[0].wait_until_finish()} | {part.status for part in getattr(jobs[0], "futures", ())}
            if not states <= {PipelineState.DONE, "finished"}:
                raise RuntimeError(f"the job ended as {', '.join(map(str, states))}")  # noqa: TRY301 (raised below)
        except BaseException as error:  # raised again by the waiting thread
            taken.set()
            outcomes.put(error)
        else:
            outcomes.put(None)

    def lose(error: BaseException) -> None:
        lost.set()
        outcomes.put(error)

    job = threading.Thread(target=work, name="beam job", daemon=True)
    with _dead_workers(lose):
        try:
            job.start()
            error = outcomes.get()
        except BaseException:
            if engine != LOCAL:  # local workers end with this process
                _cancel(jobs, taken, engine, warn)
            raise
        finally:
            _close(jobs)
        job.join(_TO_WIND_UP)
        if error is None:
            return
        text = _with_causes(error)
        if not holds_error(text) and lost.wait(_TO_NOTICE):
            out = memory_kills() > kills
            raise (OutOfMemoryError if out else ChildKilledError)(
                f"a worker process of the conversion was killed{' because memory ran out' * out}; start the conversion "
                f"again{' with fewer workers' * out}: it resumes where it stopped"
            ) from error
    raise error_within(text, engine) from error


def _submitted(pipeline: beam.Pipeline) -> PipelineResult:
    """Start a pipeline's job, or attach to a running Dataflow job of the same name from an earlier start."""
    try:
        return pipeline.run()
    except Exception as error:
        number = _RUNS.search(str(error))
        if number is None:
            raise
        from apache_beam.runners.dataflow.dataflow_runner import DataflowPipelineResult  # noqa: PLC0415 (as Beam does)

        runner: Any = pipeline.runner
        return DataflowPipelineResult(runner.dataflow_client.get_job(number[1]), runner, pipeline.options)


def _with_causes(error: BaseException) -> str:
    """Return the messages of an error and its causes; the last line is the root cause."""
    lines = traceback.format_exception_only(error)
    return "".join(lines) + (_with_causes(error.__cause__) if error.__cause__ else "")


def _cancel(jobs: Sequence[PipelineResult], taken: threading.Event, engine: str, warn: Callable[[str], object]) -> None:
    """Cancel the engine's job once it is accepted; warn if the cancellation fails or takes too long."""
    problems: queue.SimpleQueue[str] = queue.SimpleQueue()

    def work() -> None:
        taken.wait()
        try:
            for job in jobs:  # empty if the engine refused the job
                job.cancel()
        except Exception as error:
            problems.put(last_line(_with_causes(error)))
        else:
            problems.put("")

    threading.Thread(target=work, name="cancel the beam job", daemon=True).start()
    try:
        problem = problems.get(timeout=_TO_CANCEL)
    except queue.Empty:
        problem = f"it did not {'cancel' if taken.is_set() else 'accept'} the job within {_TO_CANCEL:g} s"
    if problem:
        warn(f"engine {engine}: the job may still run: {problem}; cancel it in the engine")


def _close(jobs: Sequence[Any]) -> None:
    """Close the Dask client of each job; jobs of other engines have no client."""
    for job in jobs:
        with contextlib.suppress(Exception), quiet():
            job.client.close()


@contextlib.contextmanager
def _dead_workers(tell: Callable[[BaseException], None]) -> Iterator[None]:
    """Call ``tell`` if a worker process ends too early; Beam waits forever for a worker that ends during its start."""
    before = threading.excepthook

    def hook(raised: threading.ExceptHookArgs) -> None:
        if raised.thread is not None and raised.thread.name == _WORKER_THREAD and raised.exc_value is not None:
            tell(raised.exc_value)
        elif not isinstance(raised.exc_value, grpc.RpcError):  # Beam reports a lost connection itself
            before(raised)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the logs of Beam and Dask in the body; their problems are reported as errors with causes."""
    libraries, root = [logging.getLogger(name) for name in ("apache_beam", "distributed")], logging.getLogger()
    levels, handler = [library.level for library in libraries], logging.NullHandler()
    for library in libraries:
        library.setLevel(logging.CRITICAL)
    # Beam's portable runner logs to the root logger, which adds its own handler if there is none.
    root.addHandler(handler)
    root.addFilter(_not_from_beam)
    try:
        yield
    finally:
        for library, level in zip(libraries, levels, strict=True):
            library.setLevel(level)
        root.removeHandler(handler)
        root.removeFilter(_not_from_beam)


def _not_from_beam(record: logging.LogRecord) -> bool:
    return "apache_beam" not in record.pathname
