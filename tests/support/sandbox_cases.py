"""Parsers that misbehave, for tests of the sandbox. Its children import this module."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from podline.data.sandbox.child import begin
from podline.data.sandbox.limits import Limits
from podline.errors import SettingsError, SourceError


def parser(offset: int) -> Callable[[Any], Any]:
    """Return a parser: numbers are answered with ``number + offset``, words are what they say."""

    def parse(item: Any) -> Any:
        if isinstance(item, int):
            return item + offset
        if isinstance(item, list):  # megabytes
            return int(np.ones(item[0] * 1_000_000, np.uint8).sum())
        if isinstance(item, float):  # seconds of CPU time
            end = time.process_time() + item
            while time.process_time() < end:
                pass
            return item
        return _BAD[item]()

    return parse


def _crash() -> None:
    ctypes.string_at(0)


def _print() -> str:
    print("noise")  # noqa: T201
    os.write(1, b"more noise")
    return "said"


def _full() -> None:
    raise OSError(28, "No space left on device", "/somewhere/file")


def _settings() -> None:
    raise SettingsError("side=33 vs a multiple of 8")


def _wrapped() -> None:
    raise SourceError("a.csv cannot be read") from MemoryError()


def _aborted() -> None:
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n")
    os.abort()


def _named() -> None:
    raise ValueError("malloc/allocations/out of memory.csv has no labels")


def _value() -> None:
    raise ValueError("bad magic")


_BAD: dict[str, Callable[[], Any]] = {
    "aborted": _aborted,
    "crash": _crash,
    "exit": lambda: os._exit(3),
    "full": _full,
    "named": _named,
    "print": _print,
    "settings": _settings,
    "sleep": lambda: time.sleep(60),
    "value": _value,
    "wrapped": _wrapped,
}


def total(one: int, other: int) -> int:
    """Return a sum."""
    return one + other


def grow(megabytes: int) -> int:
    """Take memory."""
    return len(bytearray(megabytes * 1_000_000))


def begun(item: float) -> Any:
    """Parse so many megabytes, or seconds, within limits that are set here."""
    begin(Limits(10_000_000, 0.1), "b.csv")
    return parser(0)([item] if isinstance(item, int) else item)
