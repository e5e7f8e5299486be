"""The child process of one stage; :mod:`podline.stages.supervision.supervisor` starts it.

``python -m podline.stages.supervision.child STAGE --progress-fd N --mark M`` reads one line of JSON from standard input
(see :class:`Order`), runs the stage, and writes events (:mod:`podline.base.progress`) to the file descriptor. Standard
input stays open until the parent dies; then the child ends itself and its descendants. A child that is started ahead
imports the stage's code before it reads the line; see :mod:`podline.stages.supervision.starts`.

SIGTERM raises an :class:`~podline.base.interruptions.Interruption` in the main thread, which is reported as a
:class:`~podline.base.errors.PreemptedError`; a stage that saves its progress installs its own handler during its work.

While a child runs, it holds two locks. The lease of its output folder (:mod:`podline.store.one_writer`), or a lock on
the spec, prevents two processes from writing the same artifact. A lock of the machine allows one training at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import faulthandler
import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from podline.base import entry_points
from podline.base.errors import PodlineError, PreemptedError, SettingsError, StoreError
from podline.base.frozen import Frozen
from podline.base.interruptions import Interruption, interruptible
from podline.base.progress import Event, Listener, Reporter, silent, to_line
from podline.base.stopwatch import spans
from podline.settings.cluster import lost
from podline.settings.environment import STAGE_MARK
from podline.settings.machine import cluster, load
from podline.settings.strategies import WORKERS
from podline.stages.base import Result, Spec
from podline.stages.specs import TrainSpec
from podline.stages.supervision import processes
from podline.stages.supervision.stacks import STACKS_SIGNAL
from podline.stages.table import Stage
from podline.store import locks
from podline.store.contract import Store, explained, refused
from podline.store.one_writer import writing
from podline.store.opening import open_store
from podline.tpu.tensorflow_errors import explain

# Seconds to save work after the parent's death. They can delay the next start.
ORPHAN_GRACE = 2.0
_TURN = "waits for its turn: this machine runs one training at a time (PODLINE_TRAIN_LOCK= removes the limit)"


class Order(Frozen):
    """A stage to run. Classes and functions are given as ``module:name``, so that installed stages work too."""

    stage: str
    run_at: str
    find_at: str
    spec_type: str
    result_type: str
    log: str
    spec: dict[str, Any]


def main() -> None:
    """Run one stage; exit with a code of :mod:`podline.base.errors`."""
    parser = argparse.ArgumentParser(prog="python -m podline.stages.supervision.child", description=__doc__)
    parser.add_argument("stage")
    parser.add_argument("--progress-fd", type=int, required=True)
    parser.add_argument("--mark", required=True)
    parser.add_argument("--ahead", metavar="MODULE:FUNCTION")
    given = parser.parse_args()
    # Child processes of the stage must not hold the parent's pipe open.
    os.set_inheritable(given.progress_fd, False)
    faulthandler.enable()
    # A handler in native code also works while the main thread runs TensorFlow; it writes to the stage's log.
    faulthandler.register(STACKS_SIGNAL)
    orphaned, stdin = threading.Event(), sys.stdin.fileno()
    with interruptible():
        processes.when_parent_goes(stdin, lambda: _end_orphan(given.mark, orphaned))
        line = _awaited_line(stdin, given.ahead) if given.ahead else _first_line(stdin)
        order = Order.model_validate_json(line)
        code = _work(order, Reporter(order.stage, json_lines(given.progress_fd)))
    if orphaned.is_set():
        _end_all(given.mark)
    sys.exit(code)


def _awaited_line(descriptor: int, run_at: str) -> bytes:
    """Import a stage's code, wait for the order and return it; send further output to the order's log."""
    with processes.killed_first():
        entry_points.load(run_at)
        line = _first_line(descriptor)
    with Path(Order.model_validate_json(line).log).open("ab") as log:
        for output in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), output.fileno())
    return line


def _work(order: Order, reporter: Reporter) -> int:
    """Run the stage, report its end, and return the exit code."""
    try:
        with preempted():
            result = _result(order, reporter)
    except PodlineError as error:
        reporter.failed(error.to_json())
        return error.exit_code
    except Exception as error:
        traceback.print_exc()
        converted = _of_system(order, error) or _of_tensorflow(order, error)
        document = converted.to_json() if converted else {"type": type(error).__name__, "message": str(error)}
        reporter.failed(document)
        return converted.exit_code if converted else 1
    reporter.ended(result.model_dump(mode="json"))
    return 0


def _result(order: Order, reporter: Reporter) -> Result:
    stage: Stage[Any, Any] = Stage(
        order.stage,
        entry_points.load(order.spec_type),
        entry_points.load(order.result_type),
        order.run_at,
        order.find_at,
    )
    spec = stage.spec.model_validate(order.spec)
    store = open_store(spec.root)
    if spec.record_folder:
        store.require_writable()
    holder = " of ".join((order.stage, *spec.uses[-1:]))
    with contextlib.ExitStack() as stack:
        waited = stack.enter_context(_only_writer(store, order.stage, spec, holder, reporter))
        # No killed process of this work still runs, so its temporary files can go.
        store.sweep()
        # Another process may have finished the work since the parent looked. The parent has logged its findings, so
        # this process only logs after a wait.
        found = stage.find(spec, reporter if waited else silent(order.stage))
        if found is not None:
            return found
        stack.enter_context(_turn_to_train(spec, holder, reporter))
        entry_points.load(order.run_at)
        reporter.alive()
        # Objects of libraries live as long as the process; each collection would search them for 0.1 s.
        gc.freeze()
        result = stage.run(spec, reporter)
    return result.model_copy(update={"spans": spans()})


@contextlib.contextmanager
def _only_writer(store: Store, stage: str, spec: Spec, holder: str, reporter: Reporter) -> Iterator[bool]:
    """Keep other processes from the same work while the body runs; yield whether this process waited for another one.

    Only the chief of several workers holds the lease of the run's folder, since only it writes there.
    """
    waiting, suffix = locks.Waiting(reporter), worker_suffix(spec)
    if spec.record_folder and not suffix:
        with writing(store, spec.record_folder, holder, waiting) as writer:
            yield writer.waited
        return
    lock = store.own_folder("locks") / f"{stage}-{spec.digest()[:16]}{suffix}.lock"
    with contextlib.ExitStack() as stack:
        with explained("write to the store", store.uri):
            waited = stack.enter_context(locks.turn(lock, holder, waiting))
        yield waited


def worker_suffix(spec: Spec) -> str:
    """Return ``-worker-N`` for all workers of a stage but the chief, to make file names unique; else an empty text.

    Raises:
        SettingsError: the environment does not name the workers.
    """
    place = cluster().place if spec.by_workers else 0
    return f"-worker-{place}" if place else ""


@contextlib.contextmanager
def _turn_to_train(spec: Spec, holder: str, reporter: Reporter) -> Iterator[None]:
    """Hold this machine's lock for trainings while the body runs, if the stage is a training or its rehearsal.

    A training on a TPU needs no lock, since the gate serialises it. Workers of one training may share a machine.

    Raises:
        SettingsError: the lock file cannot be used.
    """
    machine = load()
    with contextlib.ExitStack() as stack:
        if machine.train_lock and isinstance(spec, TrainSpec) and not spec.by_workers and machine.tpu is None:
            waiting = locks.Waiting(reporter, _TURN)
            try:
                stack.enter_context(locks.turn(Path(machine.train_lock).expanduser(), holder, waiting))
            except OSError as error:
                raise SettingsError(
                    f"{machine.train_lock}, the lock file of trainings, cannot be used ({error.strerror}); delete "
                    "the file, or set train_lock to another file"
                ) from error
        yield


def _first_line(descriptor: int) -> bytes:
    """Read up to the first newline without a buffer, so that the rest stays in the pipe."""
    line = bytearray()
    while not line.endswith(b"\n"):
        block = os.read(descriptor, 1 << 16)
        if not block:
            raise SystemExit("podline.stages.supervision.child: the parent ended before it sent an order")
        line += block
    return bytes(line)


def json_lines(descriptor: int) -> Listener:
    """Return a listener that writes each event to a file descriptor as a line of JSON.

    Threads and signal handlers may call the listener: its lock is reentrant, and nothing is buffered. A closed pipe is
    ignored, since the watch on standard input detects the parent's death.
    """
    lock = threading.RLock()

    def write(event: Event) -> None:
        line = memoryview(to_line(event))
        with lock, contextlib.suppress(BrokenPipeError):
            while line:
                line = line[os.write(descriptor, line) :]

    return write


@contextlib.contextmanager
def preempted() -> Iterator[None]:
    """Raise a PreemptedError if an Interruption ends the body."""
    try:
        yield
    except Interruption as error:
        raise PreemptedError(str(error)) from error


def _of_system(order: Order, error: Exception) -> StoreError | None:
    """Return a StoreError for a full disk or for a file without permission; None for any other error."""
    if not isinstance(error, OSError):
        return None
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    where = error.filename or (order.spec.get("root") if full else None)
    return refused("write" if full else "use", where, error) if where else None


def _of_tensorflow(order: Order, error: Exception) -> PodlineError | None:
    """Return a PodlineError for an error of TensorFlow in a stage with a model; None for any other error."""
    strategy, kind, message = order.spec.get("strategy"), type(error).__name__, str(error)
    if strategy is None:
        return None
    return (lost(kind, message) if strategy == WORKERS else None) or explain(kind, message)


def _end_orphan(mark: str, orphaned: threading.Event) -> None:
    orphaned.set()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_GRACE)
    _end_all(mark)


def _end_all(mark: str) -> None:
    """End every descendant of this process, then this process."""
    processes.kill_marked(STAGE_MARK, mark)
    processes.kill_group(os.getpgrp())


if __name__ == "__main__":
    main()
