"""Parsers that misbehave, for tests of the sandbox. Its children import this module."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from podline.base.errors import SettingsError, SourceError
from podline.data.sandbox.child import begin
from podline.data.sandbox.limits import ParseLimits


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


def _surroundings() -> dict[str, Any]:
    """What a parser that was taken over could reach."""

    def tried(act: Callable[[], Any]) -> str:
        try:
            return f"done: {act()!r}"
        except OSError as error:
            return str(error.errno and errno.errorcode[error.errno])

    parent = Path(f"/proc/{os.getppid()}")
    with ThreadPoolExecutor(1) as pool:
        in_thread = pool.submit(tried, lambda: socket.create_connection(("127.0.0.1", 9))).result()
    return {
        "variables": sorted(os.environ),
        "descriptors": {
            path.name: str(path.readlink())
            for path in [*Path("/proc/self/fd").iterdir()]
            if path.is_symlink()  # not that of the listing
        },
        "network": [
            tried(lambda kind=kind, how=how: socket.socket(kind, how).close())
            for kind in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
            for how in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
        ],
        "in a thread": in_thread,
        "parent": [tried((parent / name).read_bytes) for name in ("environ", "mem")],
        "program": tried(lambda: os.execv("/bin/true", ["true"])),  # noqa: S606
    }


def _wrapped() -> None:
    raise SourceError("a.csv cannot be read") from MemoryError()


def _aborted() -> None:
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n")
    os.abort()


def _noisy() -> None:
    os.write(2, b"libpng warning: iCCP: known incorrect sRGB profile\n" * 1_000)
    _aborted()


def _named() -> None:
    raise ValueError("malloc/allocations/out of memory.csv has no labels")


def _value() -> None:
    raise ValueError("bad magic")


def _unidentified() -> None:
    raise OSError("cannot identify image file")


_BAD: dict[str, Callable[[], Any]] = {
    "aborted": _aborted,
    "crash": _crash,
    "exit": lambda: os._exit(3),
    "full": _full,
    "named": _named,
    "noisy": _noisy,
    "print": _print,
    "settings": _settings,
    "surroundings": _surroundings,
    "unidentified": _unidentified,
    "sleep": lambda: time.sleep(60),
    "value": _value,
    "wrapped": _wrapped,
}


def begun(item: float) -> Any:
    """Parse so many megabytes, or seconds, within limits that are set here."""
    begin(ParseLimits(10_000_000, 0.1), "b.csv")
    return parser(0)([item] if isinstance(item, int) else item)
