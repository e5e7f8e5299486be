"""Runs a stage in a child process: handles the child's progress, time limits, death and descendants.

The child's standard output and error go to ``.podline/logs/<stage>-<digest>.log`` in the store, so that messages of
libraries never reach a terminal. For a store in a bucket, that file is on this machine. While the child runs, the last
4 MB of the file are published as ``logs/<host>/<stage>-<digest>.log``, so that they survive the machine.

Only events count as signs of life, since a heartbeat might continue in a hung stage. Events are progress, and the
reports of loops over files, bytes and child processes (:func:`podline.base.progress.alive`). The setting ``silence``
limits the time between two events; the start, until the stage's code is imported, has a limit of its own. A stage that
reports its pace, such as training, counts as hung much sooner. A hung child writes the stacks of its threads before it
is ended.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from podline.base.cores import memory_kills, memory_limit
from podline.base.errors import (
    ChildKilledError,
    HangAnewError,
    HangError,
    OutOfMemoryError,
    PodlineError,
    StageTimeoutError,
    TooLittleMemoryError,
    from_json,
    signal_name,
)
from podline.base.figures import size
from podline.base.progress import Event, Listener, Reporter, beside, from_line, report_stage
from podline.settings.machine import Settings, cluster
from podline.settings.tensorflow_noise import NOISE
from podline.stages.base import Result, Spec
from podline.stages.first_cause import tell_cause
from podline.stages.specs import TrainSpec
from podline.stages.supervision import processes
from podline.stages.supervision.child import Order, worker_suffix
from podline.stages.supervision.stacks import STACKS_SIGNAL, where
from podline.stages.supervision.starts import ChildProcess, child_process, start_following
from podline.stages.table import Stage, stage_of
from podline.store import locks
from podline.store.contract import Store, explained
from podline.store.folder import FolderStore
from podline.store.opening import open_store

R = TypeVar("R", bound=Result)

_POLL = 0.2
# Seconds until a child has imported the stage's code, which takes minutes from a slow disk or network.
_START_SECONDS = 1800.0
# Seconds from a child's last event to the end of its process: interpreters with TensorFlow end slowly.
_EXIT_SECONDS = 20.0
# Seconds for a hung child to end after SIGTERM; signal handlers that still work need less.
_HUNG_GRACE = 2.0
_STACKS_SECONDS = 2.0
_TAIL_LINES = 6
# If a stage had more than this share of the memory, ending other programs would not give it enough.
_MOST_MEMORY = 2 / 3
_LOG_SECONDS, _LOG_BYTES = 15.0, 4_000_000  # largest age and size of a log in a bucket


class Ending:
    """A request of another thread to end a running stage; requests after the first are ignored."""

    def __init__(self) -> None:
        self.error: PodlineError | None = None
        self.at_once = False

    def ask(self, error: PodlineError, *, at_once: bool) -> None:
        """Request the end of the stage.

        Args:
            error: the error that :func:`run_stage` raises.
            at_once: whether to use SIGKILL, which gives the stage no time to save its work.
        """
        if self.error is None:
            self.at_once = at_once
            self.error = error


def run_stage(spec: Spec[R], listener: Listener, machine: Settings | None = None, ending: Ending | None = None) -> R:
    """Run a stage in a child process and return its result; reuse an earlier result whose files are unchanged.

    When this function returns or raises, the child and its descendants have ended. If this process is killed, they end
    within seconds.

    Args:
        spec: the stage's spec.
        listener: gets the stage's events, from ``start`` to ``result`` or ``error``.
        machine: settings with the time limits; by default the settings' defaults.
        ending: lets other threads end the stage early.

    Raises:
        PodlineError: an error of the stage, with the same class.
        StageTimeoutError: the stage exceeded the setting ``stage_timeout``.
        HangError: the stage made no progress for too long; the message has the positions of its threads.
        ChildKilledError: a signal ended the child.
        OutOfMemoryError: memory ran out and the kernel killed the child, which used at most two thirds of it.
        TooLittleMemoryError: memory ran out and the kernel killed the child, which used more than two thirds of it.
    """
    machine, ending = machine or Settings(), ending or Ending()
    stage = stage_of(spec)

    def work() -> R:
        open_store(spec.root).sweep()
        found = stage.find(spec, Reporter(stage.name, listener))
        if found is not None:
            return found
        return unless_done(lambda: _in_child(stage, spec, listener, machine, ending), spec, listener, ending)

    try:
        return report_stage(stage.name, listener, work)
    except PodlineError as error:
        if isinstance(spec, TrainSpec) and spec.by_workers:
            tell_cause(open_store(spec.root), spec.folder, cluster(), error)
        raise


def unless_done(work: Callable[[], R], spec: Spec[R], listener: Listener, ending: Ending) -> R:
    """Return a stage's result, also if the stage completed just before ``ending`` ended it.

    For example, a node may become unhealthy after the stage has written its completion record.
    """
    try:
        return work()
    except PodlineError as error:
        stage = stage_of(spec)
        reporter = Reporter(stage.name, listener)
        found = None
        if error is ending.error:
            with contextlib.suppress(PodlineError):  # the error of the end is more informative
                found = stage.find(spec, reporter)
        if found is None:
            raise
        reporter.log(f"completed before it was ended ({error})")
        return found.model_copy(update={"reused": False})


def _in_child(stage: Stage[Any, R], spec: Spec, listener: Listener, machine: Settings, ending: Ending) -> R:
    with _started(stage, spec, listener, machine.grace) as child:
        for event in child.watched(machine, ending):
            if event["event"] == "result":
                return stage.result.model_validate(event["result"])
            if event["event"] == "error":
                raise child.error(event["error"])
            listener(event)
        raise child.unexplained()


def _longest_silence(machine: Settings, pace: float | None, *, begun: bool) -> tuple[float, str]:
    """Return the limit in seconds for the time without events, and the origin of the limit as text.

    Args:
        machine: the settings.
        pace: seconds between two events, if the stage reports them.
        begun: whether the stage's code is imported: the child has reported progress, its pace, or that it works.
    """
    if not begun and machine.silence < _START_SECONDS:
        return _START_SECONDS, "the limit for a start"
    if pace is not None:
        hang = max(machine.hang_floor, machine.hang_factor * pace)
        if hang < machine.silence:
            which = "hang_floor" if hang == machine.hang_floor else "hang_factor"
            return hang, f"progress was due after {pace:.2g} s; the limit is the setting {which}"
    return machine.silence, "the limit is the setting silence"


class _Child:
    """A running child, with the pipe for its events and the log of its output."""

    def __init__(self, stage: Stage[Any, Any], process: ChildProcess, log: Path) -> None:
        self._stage, self._number, self._pipe, self._log = stage.name, process.number, process.pipe, log
        self._process = process
        self._keeps = stage.keeps
        self._log_start, self._memory_kills = log.stat().st_size, memory_kills()
        self._unfinished = b""
        self._said_its_last = self._hung = self._doomed = False

    def _events(self) -> Iterator[Event | None]:
        """Yield the child's events until it has ended and all events are read.

        Yield None when no event came for 0.2 s, so that the caller can check the time limits.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            while True:
                ended = processes.exit_code(self._number) is not None
                block = self._pipe.read() if selector.select(0 if ended else _POLL) else None
                *lines, self._unfinished = (self._unfinished + (block or b"")).split(b"\n")
                for line in lines:
                    event = from_line(line)
                    self._said_its_last = event["event"] in ("result", "error")
                    yield event
                if ended and not block:
                    return
                if block == b"":  # the pipe is closed, but the child still runs
                    time.sleep(_POLL)
                yield None

    def watched(self, machine: Settings, ending: Ending) -> Iterator[Event]:
        """Yield the child's events.

        Raises:
            PodlineError: the child exceeds a time limit, or ``ending`` was used.
        """
        pace, timeout, begun = None, machine.stage_timeout, False
        started = heard = time.monotonic()
        for event in self._events():
            begun = begun or (event is not None and event["event"] in ("alive", "pace", "progress"))
            if event is not None and event["event"] in ("alive", "pace"):
                pace, heard = event["seconds"] if event["event"] == "pace" else pace, time.monotonic()
            elif event is not None:
                yield event
                # The listener's own time does not count as the child's silence.
                heard = time.monotonic()
                started = heard if event["event"] == "waiting" else started
            elif ending.error is not None:
                self._doomed = ending.at_once
                raise ending.error
            elif timeout is not None and time.monotonic() - started > timeout:
                raise StageTimeoutError(
                    f"{self._stage} took longer than {timeout:g} s and was ended; {self._kept} (the limit is the "
                    "setting stage_timeout)"
                )
            elif time.monotonic() - heard > (limit := _longest_silence(machine, pace, begun=begun))[0]:
                stacks = self._stacks()
                message = f"the stacks of all threads before the end:\n{stacks}"
                yield {"event": "log", "stage": self._stage, "level": "warning", "message": message}
                raise (HangError if self._keeps else HangAnewError)(
                    f"{self._stage} made no progress for {limit[0]:.4g} s and was ended; {self._kept} ({limit[1]})\n"
                    f"{where(stacks)}\nthe stacks are in {self._log}"
                )

    @property
    def _kept(self) -> str:
        return self._keeps or "the next start begins anew"

    def _stacks(self) -> str:
        """Make a hung child write the stacks of its threads to its log; return the stacks."""
        self._hung = True
        before = self._log.stat().st_size
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._number, STACKS_SIGNAL)
        deadline, written, latest = time.monotonic() + _STACKS_SECONDS, b"", None
        while time.monotonic() < deadline and (not written or written != latest):
            latest = written
            time.sleep(_POLL)
            with self._log.open("rb") as stream:
                stream.seek(before)
                written = stream.read()
        return written.decode(errors="replace").strip()

    def error(self, document: dict[str, Any]) -> PodlineError:
        """Return the error of a child's last event; for an unexpected error, add the path of the child's log."""
        error = from_json(document)
        if "known" not in document:
            return PodlineError(f"{self._stage}: {error} (this is a bug; its traceback is in {self._log})")
        return error

    def unexplained(self) -> PodlineError:
        """Return the error for a child that ended without a result or an error."""
        code = processes.exit_code(self._number) or 0
        if code >= 0:
            return PodlineError(f"{self._stage} ended with exit code {code} and no result{self._tail()}")
        name = signal_name(-code)
        if name == "SIGKILL" and memory_kills() > self._memory_kills:
            return self._out_of_memory()
        why = {
            "SIGKILL": " (by a person, or by the kernel because memory ran out)",
            "SIGSEGV": " (a crash in native code)",
            "SIGBUS": " (a mapped file became shorter, or its disk is full or failing)",
            "SIGABRT": " (native code aborted)",
        }.get(name, "")
        return ChildKilledError(
            f"{self._stage}: killed by {name}{why}; its process id was {self._number}{self._tail()}"
        )

    def _out_of_memory(self) -> PodlineError:
        """Return the error for a child that the kernel killed because memory ran out.

        A new attempt helps only if other programs used the memory.
        """
        held, limit, self._doomed = self._process.end(), memory_limit(), True
        what = f"{self._stage}: killed by the kernel as memory ran out; it used up to {size(held)} of {size(limit)}"
        own = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if held > max(own, _MOST_MEMORY * limit):
            return TooLittleMemoryError(
                f"{what}; provide more memory (a container or job has its own limit), or lower batch_size, the number "
                f"of workers or the images' side{self._tail()}"
            )
        return OutOfMemoryError(f"{what}; end the programs that use the rest, or provide more memory{self._tail()}")

    def end(self, listener: Listener, grace: float) -> None:
        """Wait for the end of a child that sent its last event; send SIGTERM to any other child.

        Meanwhile the child's log events go to the listener.
        """
        if self._doomed:
            return
        seconds = _EXIT_SECONDS
        if not self._said_its_last:
            seconds = min(grace, _HUNG_GRACE) if self._hung else grace
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._number, signal.SIGTERM)
        deadline = time.monotonic() + seconds
        for event in self._events():
            if event is not None and event["event"] == "log":
                listener(event)
            if time.monotonic() > deadline:
                return

    def _tail(self) -> str:
        with self._log.open("rb") as stream:
            stream.seek(self._log_start)
            text = stream.read().decode(errors="replace")
        lines = [line for line in text.splitlines() if line.strip() and not NOISE.search(line)][-_TAIL_LINES:]
        return "".join(f"\n  {line}" for line in [f"the end of {self._log}:", *lines]) if lines else ""


@contextlib.contextmanager
def _started(stage: Stage[Any, Any], spec: Spec, listener: Listener, grace: float) -> Iterator[_Child]:
    """Start a child; end the child and its descendants after the body, even with an exception."""
    store = open_store(spec.root)
    log = _log_file(store, stage, spec)
    # Without the lock, another process could delete the file as an old log.
    with locks.locked(log, shared=True), _kept(log, store), child_process(stage, store, log) as process:
        child = _Child(stage, process, log)
        process.order(
            Order(
                stage=stage.name,
                run_at=stage.run_at,
                find_at=stage.find_at,
                spec_type=f"{stage.spec.__module__}:{stage.spec.__qualname__}",
                result_type=f"{stage.result.__module__}:{stage.result.__qualname__}",
                log=str(log),
                spec=spec.model_dump(mode="json"),
            )
        )
        start_following(stage)
        try:
            yield child
        finally:
            child.end(listener, grace)


@contextlib.contextmanager
def _kept(log: Path, store: Store) -> Iterator[None]:
    """While the body runs, publish the end of ``log`` to a bucket repeatedly; a folder store has the log itself."""
    if isinstance(store, FolderStore):
        yield
        return
    published = -1

    def publish(_last: bool) -> float:
        nonlocal published
        size = log.stat().st_size
        with contextlib.suppress(PodlineError), log.open("rb") as stream:  # a failing log must not fail the stage
            if size != published:
                stream.seek(max(0, size - _LOG_BYTES))
                store.publish_bytes(f"logs/{socket.gethostname()}/{log.name}", stream.read(), replace=True)
                published = size
        return _LOG_SECONDS

    with beside(publish, _LOG_SECONDS, "log"):
        yield


def _log_file(store: Store, stage: Stage[Any, Any], spec: Spec) -> Path:
    path = store.own_folder("logs") / f"{stage.name}-{spec.digest()[:12]}{worker_suffix(spec)}.log"
    with explained("write to the store", store.uri):
        path.touch()
    return path
