"""Parses many untrusted items in sandboxes side by side, in batches, and gives what they are in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import chain, islice
from queue import SimpleQueue
from typing import Any

from podline.cores import usable_cores
from podline.errors import ChildKilledError, SourceError
from podline.sandbox import AGAIN, Breach, Limits, Sandbox
from podline.store.prefetch import in_order

_BATCH = 64
_FEW = 400  # items: to start a process takes as long as a few hundred of them


@dataclass(frozen=True)
class Parser:
    """How items are parsed.

    Attributes:
        maker: see :class:`podline.sandbox.Sandbox`.
        arguments: likewise.
        limits: of each item, until its parser knows more.
        doubtful: whether a result may come from a lack of memory; it is then asked for once more, with higher limits.
    """

    maker: str
    arguments: tuple[object, ...]
    limits: Limits
    doubtful: Callable[[Any], bool] = lambda _result: False

    def parse(self, items: Iterable[Any], what: str, factor: float) -> Iterator[Any]:
        """Parse items by as many processes as there are cores; a few of them by one.

        Args:
            items: anything that can be pickled.
            what: they are, for an error.
            factor: multiplies all limits: the setting ``parse_limits``.

        Yields:
            Of each what the parser returned, or a :class:`Breach`.

        Raises:
            SourceError: a file cannot be read.
            ChildKilledError: a process was killed twice at the same item.
            PodlineError: the parser raised it.
        """
        stream = iter(items)
        first = list(islice(stream, _FEW))
        processes = usable_cores() if len(first) == _FEW else 1
        free: SimpleQueue[Sandbox] = SimpleQueue()

        def parsed(batch: tuple[Any, ...]) -> list[Any]:
            sandbox = free.get()
            try:
                return self._parsed(sandbox, batch, factor, what)
            finally:
                free.put(sandbox)

        with ExitStack() as opened:
            for _ in range(processes):
                free.put(opened.enter_context(Sandbox(self.maker, *self.arguments)))
            rest = chain(first, stream)
            batches = iter(lambda: tuple(islice(rest, _BATCH)), ())
            # Closed before the sandboxes are, whatever ends this.
            yield from chain.from_iterable(opened.enter_context(closing(in_order(parsed, batches, processes + 1))))

    def _parsed(self, sandbox: Sandbox, batch: tuple[Any, ...], factor: float, what: str) -> list[Any]:
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
