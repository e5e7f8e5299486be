"""Runs code that parses untrusted files in child processes with limits on memory, CPU time and wall-clock time.

A file that needs too many resources, hangs or crashes its parser costs one child and one error message. Limits grow
with the size of the input. An item that exceeds a limit is tried again alone, with four times the limits, so that
neither a busy machine nor an earlier item's memory affects the result.

Requests to a child are pickles; replies are JSON, since a parser's result comes from an untrusted file. A function that
makes arrays writes them to a file. Linux counts the memory (``RLIMIT_DATA``); elsewhere only time is limited.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Self

from podline import entry_points
from podline.errors import ChildKilledError, PodlineError, SourceError, from_json, one_line
from podline.progress import alive
from podline.settings import load, parser_environment

AGAIN = 4
"""The factor of an item's limits in its second try."""

_NO_MEMORY = ("bad_alloc", "out of memory", "outofmemory", "insufficient memory", "allocat", "malloc", "realloc")
_BEAT = 10.0  # seconds between two signs of life while a child works
_ENDING = 10.0  # seconds that a child may take to end after its connection closed
_LONGEST_REPLY = 1 << 30
_STATE = struct.Struct("<qqdd1024s")  # number of the item in its batch, its limits, and the parsed file
_NUMBERS = struct.Struct("<qqdd")  # without the file
_DATA = getattr(resource, "RLIMIT_DATA", None) if sys.platform == "linux" else None


class Limits(NamedTuple):
    """The limits of parsing one item.

    Attributes:
        memory: bytes beyond those of the idle child.
        seconds: CPU seconds of all threads together.
        wait: wall-clock seconds, in addition to four times the CPU seconds.
    """

    memory: int
    seconds: float
    wait: float = 10.0

    @property
    def patience(self) -> float:
        """Return the wall-clock limit in seconds."""
        return 4 * self.seconds + self.wait

    def times(self, factor: float) -> Limits:
        """Return the limits multiplied by a factor."""
        return Limits(int(self.memory * factor), self.seconds * factor, self.wait)


def limits_of(size: int, memory: float = 4.0, rate: float = 20e6) -> Limits:
    """Return the limits for an input of a size.

    Args:
        size: bytes of the input.
        memory: memory per byte of the input, in addition to 64 MB.
        rate: bytes that are parsed per CPU second at least, in addition to 0.4 s.
    """
    return Limits(64_000_000 + int(memory * size), 0.4 + size / rate)


@dataclass(frozen=True)
class Breach:
    """An exceeded limit of an item, or a crash of its parser.

    Attributes:
        reason: the event, as a phrase after the item's name.
        limited: whether higher limits could help.
        what: the parsed file, if the parser named it with :func:`begin`.
        killed: whether another cause ended the process, like a lack of memory.
    """

    reason: str
    limited: bool
    what: str = ""
    killed: bool = False


class _DeathError(Exception):
    """A child ended during an item.

    Attributes:
        at: number of the item in the batch; -1 before the first.
        breach: the reason.
    """

    def __init__(self, at: int, breach: Breach) -> None:
        super().__init__(breach.reason)
        self.at, self.breach = at, breach


class Sandbox:
    """A child process that parses untrusted items. It serves one thread at a time; leaving the ``with`` block ends it.

    Args:
        maker: ``module:name`` of a function that the child calls once with ``arguments``. It returns the function that
            parses one item and returns JSON. It should do all imports, which then do not count towards an item's
        limits.
        arguments: picklable arguments.
    """

    def __init__(self, maker: str, *arguments: object) -> None:
        self._make = (maker, arguments)
        self._child: _Child | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        """End the child with the sandbox, since an engine's worker keeps a sandbox from batch to batch."""
        self.close()

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def map(self, items: Sequence[Any], limits: Sequence[Limits], factor: float = 1.0) -> list[Any]:
        """Parse items.

        Args:
            items: picklable items.
            limits: limits of each item.
            factor: factor for all limits, including those that the child sets itself.

        Returns:
            For each item the result of the child's function, or a :class:`Breach`.

        Raises:
            PodlineError: an error of the function.
            OSError: an error of the function: a full disk, an unreadable file.
            SourceError: another exception of the function.
            ChildKilledError: the child was killed before the first item.
        """
        results: list[Any] = []
        while len(results) < len(items):
            first = len(results)
            try:
                replies = self._ask(items[first:], limits[first:], factor)
            except _DeathError as died:
                if died.at < 0:
                    error = ChildKilledError if died.breach.killed else SourceError
                    raise error(f"a process that reads untrusted files {died.breach.reason} as it starts") from died
                # The batch has no answers yet; its items are parsed again.
                at = first + died.at
                results += self.map(items[first:at], limits[first:at], factor)
                results.append(self._alone(items[at], limits[at], factor, died.breach))
                continue
            for at, reply in enumerate(replies, first):
                result = _result(reply)
                results.append(
                    self._alone(items[at], limits[at], factor, result) if isinstance(result, Breach) else result
                )
        return results

    def one(self, item: Any, limits: Limits, what: str) -> Any:
        """Parse one item, within limits multiplied by the setting ``parse_limits``; see :meth:`map`.

        Args:
            item: the argument of the child's function.
            limits: limits of the item.
            what: name of the file, for errors.

        Raises:
            SourceError: a limit was exceeded, or the parser crashed.
        """
        factor = load().parse_limits
        (result,) = self.map([item], [limits], factor)
        if isinstance(result, Breach):
            raise SourceError(refusal(result.what or what, result, factor))
        return result

    def _alone(self, item: Any, limits: Limits, factor: float, breach: Breach) -> Any:
        """Parse an item again with :data:`AGAIN` times its limits, unless higher limits cannot help."""
        if not breach.limited:
            return breach
        self.close()
        try:
            (reply,) = self._ask([item], [limits], factor * AGAIN)
        except _DeathError as died:
            return died.breach
        return _result(reply)

    def _ask(self, items: Sequence[Any], limits: Sequence[Limits], factor: float) -> list[Any]:
        if self._child is None:
            self._child = _Child(*self._make)
        try:
            return self._child.ask(items, limits, factor)
        except (OSError, EOFError):
            child, self._child = self._child, None
            raise child.death() from None


class _Child:
    """A parser's process, with its connection, the number of its item, and its stderr."""

    def __init__(self, maker: str, arguments: Sequence[object]) -> None:
        self._state = tempfile.TemporaryFile()  # noqa: SIM115 (closed in end)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in end)
        os.pwrite(self._state.fileno(), _STATE.pack(-1, 0, 0.0, 0.0, b""), 0)
        self._connection, theirs = Pipe()
        with theirs:
            passed = (theirs.fileno(), self._state.fileno())
            self._process = subprocess.Popen(  # noqa: S603 (our own)
                [sys.executable, "-P", "-c", f"from {__name__} import serve; serve{passed}"],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=parser_environment(),
                pass_fds=passed,
            )
        with contextlib.suppress(OSError):  # the next request notices a dead child
            self._connection.send((maker, arguments))

    def ask(self, items: Sequence[Any], limits: Sequence[Limits], factor: float) -> list[Any]:
        self._connection.send((list(items), list(limits), factor))
        while not self._connection.poll(_BEAT):
            alive()
        return json.loads(self._connection.recv_bytes(_LONGEST_REPLY))

    def end(self) -> None:
        self._process.kill()  # it has no work that could be left incomplete
        self._process.wait()
        for each in (self._connection, self._state, self._log):
            each.close()

    def death(self) -> _DeathError:
        """Return why the child has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING)
        code = self._process.poll()
        at, memory, seconds, wait, what = _STATE.unpack(os.pread(self._state.fileno(), _STATE.size, 0))
        said = os.pread(self._log.fileno(), 10_000, 0).decode(errors="replace")
        self.end()
        breach = _breach_of(code, said, Limits(memory, seconds, wait))
        return _DeathError(at, replace(breach, what=os.fsdecode(what.rstrip(b"\0"))))


def _breach_of(code: int | None, said: str, limits: Limits) -> Breach:
    if code == -signal.SIGPROF:
        return Breach(f"takes more than {limits.seconds:.3g} s of CPU time", limited=True)
    if code == -signal.SIGALRM:
        return Breach(f"takes more than {limits.patience:.3g} s", limited=True)
    if _tells_of_memory(said):
        return Breach(_too_much(limits), limited=True)
    name = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
    last = said.strip().splitlines()[-1:] if code is not None and code >= 0 else []
    killed = code == -signal.SIGKILL
    return Breach(": ".join([f"crashes its parser ({name})", *last]), limited=killed, killed=killed)


def _result(reply: Sequence[Any]) -> Any:
    """Decode a reply: return the function's result, or a :class:`Breach`.

    Raises:
        PodlineError: an error of the function.
        OSError: an error of the function.
        SourceError: another exception of the function.
    """
    match reply:
        case ("value", value):
            return value
        case ("memory", memory, what):
            return Breach(_too_much(Limits(memory, 0.0)), limited=True, what=what)
        case ("error", document):
            raise from_json(document)
        case ("system", *arguments):
            raise OSError(*arguments)
        case (_, text):
            raise SourceError(text)


def _too_much(limits: Limits) -> str:
    return f"takes more than {limits.memory / 1e6:,.0f} MB of memory"


def _tells_of_memory(said: str) -> bool:
    return any(word in said.lower() for word in _NO_MEMORY)


def confined(function: str, *arguments: Any, what: str, limits: Limits) -> Any:
    """Call a function, ``module:name``, once in a separate child, and return its result; see :meth:`Sandbox.one`."""
    with Sandbox(f"{__name__}:caller", function) as sandbox:
        return sandbox.one(arguments, limits, what)


def refusal(what: str, breach: Breach, factor: float) -> str:
    """Return an error's text: the file, the limit and the setting that raises it."""
    remedy = "; if you trust it, raise the setting parse_limits" if breach.limited else ""
    limit = f" to read (parse_limits={factor:g})" if breach.limited else ""
    return f"{what} {breach.reason}{limit}{remedy}"


def caller(function: str) -> Callable[[Sequence[Any]], Any]:
    """Return a function of an item that calls ``function`` with the item's members."""
    call = entry_points.load(function)
    return lambda arguments: call(*arguments)


class _Guard:
    """The limits of the current item, in the child; SIGPROF ends it by CPU time, SIGALRM by wall-clock time."""

    def __init__(self, state: int) -> None:
        self._state = state
        self._at, self._factor, self._used = -1, 1.0, 0
        self.limits, self.what = Limits(0, 0.0), ""

    def new_batch(self, factor: float) -> None:
        self._factor, self._used = factor, _data_bytes()

    def new_item(self, at: int, limits: Limits) -> None:
        self._at = at
        self._apply(limits, "")

    def begin(self, limits: Limits, what: str) -> None:
        if what:
            self._used = _data_bytes()
        self._apply(limits, what or self.what)

    def _apply(self, limits: Limits, what: str) -> None:
        self.limits = limits.times(self._factor)
        numbers = (self._at, *self.limits)
        same = what == self.what
        os.pwrite(self._state, _NUMBERS.pack(*numbers) if same else _STATE.pack(*numbers, os.fsencode(what)), 0)
        self.what = what
        signal.setitimer(signal.ITIMER_REAL, self.limits.patience)
        signal.setitimer(signal.ITIMER_PROF, self.limits.seconds)
        _limit_data(self._used + self.limits.memory)

    def end(self) -> None:
        _limit_data(resource.RLIM_INFINITY)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)

    def out_of_memory(self) -> tuple[Any, ...]:
        self.end()
        return "memory", self.limits.memory, self.what


_guard: _Guard | None = None


def begin(limits: Limits, what: str = "") -> None:
    """Set new limits for the rest of the current item, in a child whose parser knows more about it.

    Args:
        limits: the limits, which are multiplied like those of the item.
        what: name of the file being read, for errors; empty keeps the previous one. A new name restarts the memory
            count.
    """
    if _guard is not None:  # otherwise this process is not a child
        _guard.begin(limits, what)


def serve(connection: int, state: int) -> None:
    """Answer the parent's requests until it closes the connection; runs in the child.

    Args:
        connection: the descriptor of the connection to the parent.
        state: the descriptor of the file with the number of the current item.
    """
    global _guard  # noqa: PLW0603 (one process, one guard)
    faulthandler.enable(all_threads=False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    parent = Connection(connection)
    with contextlib.suppress(EOFError, BrokenPipeError):
        maker, arguments = parent.recv()
        parse = entry_points.load(maker)(*arguments)
        _guard = _Guard(state)
        while True:
            items, limits, factor = parent.recv()
            _guard.new_batch(factor)
            replies = []
            for at, (item, limit) in enumerate(zip(items, limits, strict=True)):
                _guard.new_item(at, limit)
                replies.append(_guarded(_guard, partial(parse, item)))
            _guard.end()
            parent.send_bytes(json.dumps(replies).encode())


def _guarded(guard: _Guard, call: Callable[[], Any]) -> tuple[Any, ...]:
    try:
        return "value", call()
    except MemoryError:
        return guard.out_of_memory()
    except PodlineError as error:
        return guard.out_of_memory() if _tells_of_memory(str(error)) else ("error", error.to_json())
    except OSError as error:
        if error.errno == errno.ENOMEM:
            return guard.out_of_memory()
        return "system", error.errno, error.strerror, error.filename and str(error.filename)
    except Exception as error:
        text = f"{type(error).__name__}: {one_line(error)}"
        return guard.out_of_memory() if _tells_of_memory(text) else ("other", text)


def _limit_data(limit: int) -> None:
    if _DATA is not None:
        resource.setrlimit(_DATA, (limit, resource.getrlimit(_DATA)[1]))


def _data_bytes() -> int:
    if _DATA is None:
        return 0
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData"))
