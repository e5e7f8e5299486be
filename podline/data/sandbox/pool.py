"""Runs code that parses untrusted files in child processes with limits on memory, CPU time and wall-clock time.

A file that needs too many resources, hangs or crashes its parser costs one child and one error message. Limits grow
with the size of the input. An item that exceeds a limit is tried again alone, with four times the memory and CPU time,
so that neither a busy machine nor an earlier item's memory affects the result.

Requests to a child are pickles; replies are lines of JSON, since a parser's result comes from an untrusted file. A
function with arrays as results writes these to a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from multiprocessing import Pipe
from queue import Empty, SimpleQueue
from typing import Any, Self

from podline.base.cores import memory_kills, usable_cores
from podline.base.errors import ChildKilledError, OutOfMemoryError, SourceError, from_json, signal_name
from podline.base.progress import alive
from podline.data.sandbox import child
from podline.data.sandbox.limits import Breach, ParseLimits, too_much_memory
from podline.settings.environment import parser_environment
from podline.settings.machine import load
from podline.store.prefetch import in_order

CALLER = f"{__name__}:caller"
"""The ``maker`` of a :class:`Sandbox` whose items are (function, *arguments); see :func:`caller`."""
AGAIN = 4
"""The factor of an item's limits in its second try."""

_BATCH = 64
_FEW = 400  # items: starting a process takes as long as a few hundred items
_BEAT = 1.0  # seconds between two signs of life while a child works
_LOG_BYTES = 10_000  # of a dead child's stderr, in which the cause is searched, from the end
_ENDING = 10.0  # seconds that a child may take to end after its connection closed
_BEGUN = json.dumps([child.BEGIN])[:-1].encode()  # the first bytes of a line with new limits
# First words of the lines with which C++, Python, OpenBLAS and Rust end a process that gets no memory.
_NO_MEMORY = re.compile(
    r"^(terminate called after throwing an instance of 'std::bad_alloc'|MemoryError\b|OpenBLAS error: Memory allocation"
    r"|memory allocation of \d+ bytes failed)",
    re.MULTILINE,
)


class Sandbox:
    """Child processes that parse untrusted items, one for each thread that parses at the same time.

    Leaving the ``with`` block ends the processes.

    Args:
        maker: ``module:name`` of a function that a child calls once with ``arguments``. This function does all imports,
            so that they do not count towards an item's limits. It returns another function, which parses one item and
            returns JSON-compatible values.
        arguments: picklable arguments.
    """

    def __init__(self, maker: str, *arguments: object) -> None:
        self._make = (maker, arguments)
        self._free: SimpleQueue[_Child] = SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child processes; no thread may use the sandbox any more."""
        while child := self._idle():
            child.end()

    def one(self, item: Any, limits: ParseLimits, what: str) -> Any:
        """Parse one item, within limits multiplied by the setting ``parse_limits``; ``what`` names it in errors.

        Raises:
            SourceError: a limit was exceeded, or the parser crashed; or see :meth:`map`, also for other errors.
        """
        factor = load().parse_limits
        (result,) = self.map([item], limits, what, factor)
        if isinstance(result, Breach):
            raise SourceError(result.refusal(what, factor))
        return result

    def parse(
        self,
        items: Iterable[Any],
        limits: ParseLimits,
        what: str,
        factor: float,
        doubtful: Callable[[Any], bool],
        processes: int = 0,
    ) -> Iterator[Any]:
        """Parse many items in some processes, by default one per core, but a single one for few items.

        Yield the result for each item, in order. See :meth:`map` for the arguments and errors.
        """
        stream = iter(items)
        first = list(islice(stream, _FEW))
        rest = chain(first, stream)
        batches = iter(lambda: tuple(islice(rest, _BATCH)), ())
        threads = processes or (usable_cores() if len(first) == _FEW else 1)
        results = in_order(lambda batch: self.map(batch, limits, what, factor, doubtful), batches, threads)
        with contextlib.closing(results):
            yield from chain.from_iterable(results)

    def map(
        self,
        items: Sequence[Any],
        limits: ParseLimits,
        what: str,
        factor: float = 1.0,
        doubtful: Callable[[Any], bool] = lambda _result: False,
    ) -> list[Any]:
        """Parse items in one child.

        Args:
            items: picklable items.
            limits: limits of each item, until its parser sets others.
            what: description of the items, for errors.
            factor: factor for all limits, including those that the parser sets.
            doubtful: returns whether a lack of memory may have caused a result; the item is then parsed again with
                higher limits.

        Returns:
            For each item the parser's result, or a :class:`Breach`.

        Raises:
            PodlineError: an error of the parser.
            OSError: an error of the parser: a full disk, an unreadable file.
            SourceError: another exception of the parser, or the child ended while starting.
            ChildKilledError: the child was killed while starting, or twice at the same item. In the second case it is
                an OutOfMemoryError if the kernel killed the child because memory ran out.
        """
        kills = memory_kills()
        results: list[Any] = []
        while len(results) < len(items):  # a child that dies leaves items unparsed
            results += map(_result, self._ask(items[len(results) :], limits, factor))
        for at, result in enumerate(results):
            breach = isinstance(result, Breach)
            if result.limited if breach else doubtful(result):
                results[at] = _result(*self._ask([items[at]], limits, factor * AGAIN, fresh=breach))
        for result in results:
            if isinstance(result, Breach) and result.killed:
                out = memory_kills() > kills
                how, largest = "because memory ran out" if out else "from outside", result.what or "the largest item"
                raise (OutOfMemoryError if out else ChildKilledError)(
                    f"a process that reads {what} was killed {how}; end other programs, give this machine more memory, "
                    f"or leave out {largest}"
                )
        return results

    def _ask(self, items: Sequence[Any], limits: ParseLimits, factor: float, *, fresh: bool = False) -> list[Any]:
        """Return a child's replies to items, in order; if the child dies, the last reply is the :class:`Breach`.

        The items after it have no reply. With ``fresh``, a new child process is started, and an idle one is ended.
        """
        process = self._idle()
        if process is None or fresh:
            if process:
                process.end()
            process = _Child(*self._make)
        try:
            return list(process.ask(items, limits, factor))
        finally:
            if process.idle:
                self._free.put(process)
            else:
                process.end()

    def _idle(self) -> _Child | None:
        try:
            return self._free.get_nowait()
        except Empty:
            return None


class _Child:
    """A parser's process, with its connection, the file of its replies, and its stderr.

    Attributes:
        idle: whether it has answered the last request.
    """

    def __init__(self, maker: str, arguments: Sequence[object]) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in end)
        self._replies = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed in end)
        self._connection, theirs = Pipe()
        self.idle = self._started = False
        with theirs:
            passed = (theirs.fileno(), self._replies.fileno())
            self._process = subprocess.Popen(  # noqa: S603 (our own)
                [sys.executable, "-P", "-c", f"from {child.__name__} import serve; serve{passed}"],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=parser_environment(),
                pass_fds=passed,
            )
        with contextlib.suppress(OSError):  # the next request notices a dead child
            self._connection.send((maker, arguments))

    def ask(self, items: Sequence[Any], limits: ParseLimits, factor: float) -> Iterator[Any]:
        """Yield the replies to items; if the process dies, the last reply is the breach that ended the process."""
        self.idle = False
        with contextlib.suppress(OSError, EOFError):  # it dies
            self._connection.send((list(items), limits, factor))
            while not self._connection.poll(_BEAT):
                alive()
            self._connection.recv_bytes()
            self.idle = True
        begun, left = list[bytes](), len(items)
        self._replies.seek(0)
        *lines, _cut = self._replies.read().split(b"\n")
        self._replies.truncate(0)
        self._replies.seek(0)  # the child writes there next
        for line in lines:
            if line.startswith(_BEGUN):
                begun.append(line)
                continue
            kind, *values = json.loads(line)
            if kind == child.READY:
                self._started = True
                continue
            yield too_much_memory(*_last(begun, limits, factor)) if kind == child.MEMORY else (kind, *values)
            begun, left = [], left - 1
        if left:
            yield self._death(*_last(begun, limits, factor))

    def end(self) -> None:
        self._process.kill()  # it has no work that could be left incomplete
        self._process.wait()
        self._connection.close()
        self._replies.close()
        self._log.close()

    def _death(self, limits: ParseLimits, what: str) -> Breach:
        """Return why the process has ended; raise an error if it ended before it was ready for items."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING)
        code = self._process.poll()
        end = os.fstat(self._log.fileno()).st_size
        output = os.pread(self._log.fileno(), _LOG_BYTES, max(0, end - _LOG_BYTES)).decode(errors="replace")
        breach = _breach_of(code, output, limits, what)
        if not self._started:
            error = ChildKilledError if breach.killed else SourceError
            raise error(f"a process that reads untrusted files {breach.reason} while it starts")
        return breach


def _last(begun: Sequence[bytes], limits: ParseLimits, factor: float) -> tuple[ParseLimits, str]:
    """Return the limits in force, and the file being read, after the BEGIN messages of an item."""
    current, what = limits.times(factor), ""
    for line in begun:
        _, *numbers, named = json.loads(line)
        current, what = ParseLimits(*numbers), named or what
    return current, what


def _breach_of(code: int | None, output: str, limits: ParseLimits, what: str) -> Breach:
    if code == -signal.SIGPROF:
        return Breach(f"takes more than {limits.seconds:.3g} s of CPU time", limited=True, what=what)
    if code == -signal.SIGALRM:
        return Breach(f"takes more than {limits.patience:.3g} s", limited=True, what=what)
    if _NO_MEMORY.search(output):
        return too_much_memory(limits, what)
    name = signal_name(-code) if code is not None and code < 0 else f"exit code {code}"
    last = output.strip().splitlines()[-1:] if code is not None and code >= 0 else []
    killed = code == -signal.SIGKILL
    return Breach(": ".join([f"crashes its parser ({name})", *last]), limited=killed, what=what, killed=killed)


def _result(reply: Any) -> Any:
    """Return the parser's result, or the :class:`Breach`, of a reply; raise the errors of :meth:`Sandbox.map`."""
    match reply:
        case (child.VALUE, value):
            return value
        case (child.ERROR, document):
            raise from_json(document)
        case (child.SYSTEM, *arguments):
            raise OSError(*arguments)
        case (child.OTHER, text):
            raise SourceError(text)
        case breach:
            return breach


def confined(function: Callable[..., Any], *arguments: Any, what: str, limits: ParseLimits) -> Any:
    """Call a function of a module once in a separate child, and return its result; see :meth:`Sandbox.one`."""
    with Sandbox(CALLER, function) as sandbox:
        return sandbox.one((function, *arguments), limits, what)


def caller(_function: Callable[..., Any]) -> Callable[[Sequence[Any]], Any]:
    """Return a function that calls an item's first element with the other elements.

    The child unpickles ``_function`` before the first item, so the imports of its module do not count for the limits.
    """
    return lambda item: item[0](*item[1:])
