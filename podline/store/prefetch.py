"""An ordered prefetching map over a thread pool."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from podline.base.progress import alive

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def in_order(function: Callable[[Item], Answer], items: Iterable[Item], threads: int) -> Generator[Answer, None, None]:
    """Yield a function's results for items, in the order of the items; the threads inherit the context variables.

    Args:
        function: called by the threads.
        items: consumed lazily.
        threads: number of items in progress, and largest number of results waiting; with 1, no thread is started.

    Raises:
        Exception: any exception of the function, raised in place of its result.
    """
    if threads == 1:
        for item in items:
            yield function(item)
            alive()
        return
    ahead: deque[Future[Answer]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                if len(ahead) == threads:
                    yield ahead.popleft().result()
                    alive()
                ahead.append(pool.submit(copy_context().run, function, item))
            while ahead:
                yield ahead.popleft().result()
        finally:
            for waiting in ahead:
                waiting.cancel()
