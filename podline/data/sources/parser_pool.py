"""Parses many untrusted items in parallel sandboxes, in batches, and returns the results in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

from podline.cores import usable_cores
from podline.errors import ChildKilledError, SourceError
from podline.sandbox import AGAIN, Breach, Limits, Sandbox
from podline.store.prefetch import in_order

_BATCH = 64
_FEW = 400  # items: starting a process takes as long as a few hundred items


class Sandboxes:
    """Sandboxes of one kind, one for each thread that uses one at the same time.

    Args:
        maker: see :class:`podline.sandbox.Sandbox`.
        arguments: arguments of the maker.
    """

    def __init__(self, maker: str, *arguments: object) -> None:
        self._make = partial(Sandbox, maker, *arguments)
        self._free: SimpleQueue[Sandbox] = SimpleQueue()
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    @contextmanager
    def lent(self) -> Iterator[Sandbox]:
        """Lend a sandbox to the calling thread while the body runs."""
        try:
            sandbox = self._free.get_nowait()
        except Empty:
            sandbox = self._opened.enter_context(self._make())
        try:
            yield sandbox
        finally:
            self._free.put(sandbox)


@dataclass(frozen=True)
class Parser:
    """A way to parse items.

    Attributes:
        maker: see :class:`podline.sandbox.Sandbox`.
        arguments: arguments of the maker.
        limits: limits for each item, until its parser sets others.
        doubtful: whether a result may come from a lack of memory; the item is then parsed again with higher limits.
    """

    maker: str
    arguments: tuple[object, ...]
    limits: Limits
    doubtful: Callable[[Any], bool] = lambda _result: False

    def parse(self, items: Iterable[Any], what: str, factor: float) -> Iterator[Any]:
        """Parse items with one process per core, or with one process for few items.

        Args:
            items: picklable items.
            what: description of the items, for errors.
            factor: factor for all limits: the setting ``parse_limits``.

        Yields:
            The parser's result, or a :class:`Breach`, for each item.

        Raises:
            SourceError: a file cannot be read.
            ChildKilledError: a process was killed twice by the same item.
            PodlineError: the parser raised it.
        """
        stream = iter(items)
        first = list(islice(stream, _FEW))
        processes = usable_cores() if len(first) == _FEW else 1
        rest = chain(first, stream)
        batches = iter(lambda: tuple(islice(rest, _BATCH)), ())
        with Sandboxes(self.maker, *self.arguments) as sandboxes:

            def parsed(batch: tuple[Any, ...]) -> list[Any]:
                with sandboxes.lent() as sandbox:
                    return self.answers(sandbox, batch, factor, what)

            with closing(in_order(parsed, batches, processes)) as answers:  # close these before the sandboxes
                yield from chain.from_iterable(answers)

    def answers(self, sandbox: Sandbox, batch: Sequence[Any], factor: float, what: str) -> list[Any]:
        """Parse items in one sandbox; see :meth:`parse`."""
        try:
            results = sandbox.map(batch, [self.limits] * len(batch), factor)
            doubtful = [at for at, result in enumerate(results) if self.doubtful(result)]
            again = sandbox.map([batch[at] for at in doubtful], [self.limits] * len(doubtful), factor * AGAIN)
        except OSError as error:
            raise SourceError(f"cannot read {error.filename or what}: {error.strerror or error}") from error
        for at, result in zip(doubtful, again, strict=True):
            results[at] = result
        for result in results:
            if isinstance(result, Breach) and result.killed:
                raise ChildKilledError(
                    f"a process that reads {what} was killed; give this machine more memory, or leave out "
                    f"{result.what or 'the largest of them'}"
                )
        return results
