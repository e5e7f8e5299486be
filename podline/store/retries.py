"""Retry calls that failed with a transient error of a mounted folder (NFS, gcsfuse)."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from podline.base.errors import StoreUnavailableError
from podline.base.progress import alive

_PAUSES = (0.1, 1.0, 5.0)

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def retried(call: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """Wrap a function so that it is tried again, three times with pauses, after :class:`StoreUnavailableError`."""

    @functools.wraps(call)
    def persistent(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        for pause in _PAUSES:
            try:
                return call(*args, **kwargs)
            except StoreUnavailableError:
                alive()
                time.sleep(pause)
        return call(*args, **kwargs)

    return persistent
