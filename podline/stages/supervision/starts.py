"""Starts the child processes of stages; those of the next stages in a flow start ahead, while a stage runs.

A child that is started ahead imports its stage's code and waits for its order. Before the order it reads no settings,
opens no store, imports no user code, and initialises no device. If memory runs out, the kernel kills this child first.
It ends with its parent, at the end of the flow, when a stage of the flow fails, and after a minute without an order, so
that a long stage has the memory for itself.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from podline.base.cores import free_memory
from podline.base.errors import PodlineError
from podline.settings.environment import STAGE_MARK, child_environment
from podline.stages.supervision import processes
from podline.stages.supervision.child import Order
from podline.stages.table import Stage
from podline.store.contract import Store

# TensorFlow is imported in 5 to 20 s.
_AHEAD_SECONDS = 60.0
_AHEAD_STAGES = 2
# A process that has imported TensorFlow takes 0.3 GB.
_LEAST_FREE_BYTES = 2 << 30


class ChildProcess:
    """A child process of a stage, with a pipe for its events and a temporary folder."""

    def __init__(self, stage: Stage[Any, Any], store: Store, log: Path | None = None) -> None:
        """Start the process, which then waits for :meth:`order`.

        Args:
            stage: the stage.
            store: the store with the temporary folder.
            log: the file for the process's output; None starts the process ahead, and :meth:`order` gives the file.

        Raises:
            StoreError: the temporary folder cannot be created.
        """
        self._stage, self._store, self._place, self._mark = stage, store, Path.cwd(), uuid.uuid4().hex
        self._peak = 0
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        with contextlib.ExitStack() as held, os.fdopen(writing, "wb"):
            self.pipe = held.enter_context(os.fdopen(reading, "rb", buffering=0))
            # Killed processes leave temporary files of libraries behind.
            self._temporary = held.enter_context(store.workspace(stage.name))
            self._environment = self._wanted_environment()
            ahead = () if log else ("--ahead", stage.run_at)
            command = (
                "podline.stages.supervision.child",
                stage.name,
                "--progress-fd",
                str(writing),
                "--mark",
                self._mark,
            )
            with (log or self._early_output).open("ab") as output:
                self._process = subprocess.Popen(  # noqa: S603 (our own module, in our own interpreter)
                    [sys.executable, "-P", "-m", *command, *ahead],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    pass_fds=(writing,),
                    start_new_session=True,
                )
            self._held = held.pop_all()

    @property
    def number(self) -> int:
        """Return the process's id."""
        return self._process.pid

    @property
    def is_ready(self) -> bool:
        """Return whether the process still runs, with the environment and folder that a new process would get."""
        same = (self._environment, self._place) == (self._wanted_environment(), Path.cwd())
        return same and processes.exit_code(self.number) is None

    def order(self, order: Order) -> None:
        """Send the process its order, once. If the process is dead, its supervisor reports that later."""
        if self._early_output.exists():
            with Path(order.log).open("ab") as log:
                log.write(self._early_output.read_bytes())
        assert self._process.stdin is not None  # noqa: S101 (it is a pipe)
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(order.model_dump_json().encode() + b"\n")
            self._process.stdin.flush()

    def end(self) -> int:
        """Kill the process group; return the peak memory in bytes of the process or of its largest child.

        Linux includes the memory that this parent process had at the child's start.
        """
        if self._process.returncode is None:
            processes.kill_group(self.number)
            _, _, usage = os.wait4(self.number, 0)
            self._process.returncode, self._peak = 0, 1024 * usage.ru_maxrss
        return self._peak

    def close(self) -> None:
        """Kill the process group, and all descendants in other sessions; delete the temporary folder."""
        with self._held:
            self.end()
            processes.kill_marked(STAGE_MARK, self._mark)
            assert self._process.stdin is not None  # noqa: S101 (it is a pipe)
            self._process.stdin.close()

    def _wanted_environment(self) -> dict[str, str]:
        return child_environment(self._store.scratch, self._mark) | {"TMPDIR": str(self._temporary)}

    @property
    def _early_output(self) -> Path:
        return self._temporary / "output"


class _Ahead:
    """The children that were started ahead, for the next stages of a flow."""

    def __init__(self, chain: Sequence[Stage[Any, Any]], store: Store) -> None:
        self._chain, self._store, self._lock = chain, store, threading.Lock()
        self._waiting: dict[str, ChildProcess] = {}

    def take(self, stage: Stage[Any, Any], store: Store) -> ChildProcess | None:
        """Return the child that was started ahead for a stage and can still be used, or None."""
        with self._lock:
            found = self._waiting.pop(stage.name, None)
        if found is not None and (store.uri != self._store.uri or not found.is_ready):
            found.close()
            return None
        return found

    def start_after(self, stage: Stage[Any, Any]) -> None:
        """Start children for the two stages after ``stage``, unless memory is short."""
        names = [each.name for each in self._chain]
        place = names.index(stage.name) + 1 if stage.name in names else len(names)
        for following in self._chain[place : place + _AHEAD_STAGES]:
            # A stage that cannot be started ahead reports its problem at its own start.
            with contextlib.suppress(OSError, PodlineError):
                if following.name not in self._waiting and free_memory() >= _LEAST_FREE_BYTES:
                    self._keep(following, ChildProcess(following, self._store))

    def end(self) -> None:
        """End all children that wait for an order."""
        for name in list(self._waiting):
            self._end(name, self._waiting.get(name))

    def _keep(self, stage: Stage[Any, Any], process: ChildProcess) -> None:
        self._waiting[stage.name] = process
        timer = threading.Timer(_AHEAD_SECONDS, self._end, (stage.name, process))
        timer.daemon = True
        timer.start()

    def _end(self, name: str, process: ChildProcess | None) -> None:
        """End a child unless :meth:`take` has returned it."""
        with self._lock:
            if process is None or self._waiting.get(name) is not process:
                return
            del self._waiting[name]
        process.close()


_current: ContextVar[_Ahead | None] = ContextVar("ahead", default=None)


@contextlib.contextmanager
def started_ahead(chain: Sequence[Stage[Any, Any]], store: Store) -> Iterator[None]:
    """Allow :func:`start_following` to start children ahead during the body; end those that were not used.

    Args:
        chain: the stages that the body runs, in order.
        store: the store of the stages' specs.
    """
    ahead = _Ahead(chain, store)
    token = _current.set(ahead)
    try:
        yield
    finally:
        _current.reset(token)
        ahead.end()


@contextlib.contextmanager
def child_process(stage: Stage[Any, Any], store: Store, log: Path) -> Iterator[ChildProcess]:
    """Yield a stage's child process, which may have been started ahead, and end the process after the body.

    If the body fails, all children that were started ahead end too.
    """
    ahead = _current.get() or _Ahead((), store)
    process = ahead.take(stage, store) or ChildProcess(stage, store, log)
    try:
        yield process
    except BaseException:
        ahead.end()
        raise
    finally:
        process.close()


def start_following(stage: Stage[Any, Any]) -> None:
    """Start children for the next stages in the chain of :func:`started_ahead`; without a chain, do nothing."""
    if ahead := _current.get():
        ahead.start_after(stage)
