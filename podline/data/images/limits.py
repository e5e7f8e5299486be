"""Limits on reading the files of a source: in proportion to their bytes, and to the number of files beside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from podline.data.sources.rawfiles import reading
from podline.sandbox import Limits, begin, limits_of

_MEMORY, _RATE = 16, 4e6  # a row of a table becomes a dozen objects
_ENTRY_BYTES = 500  # that a file in the source counts for
_WAIT = 60.0  # seconds for a slow disk

_entries = 0  # of the source that this process, a sandbox's child, reads


def limits_of_file(size: int, entries: int) -> Limits:
    """Return what reading so many bytes may take, in a source of so many files."""
    return limits_of(size + _ENTRY_BYTES * entries, _MEMORY, _RATE)._replace(wait=_WAIT)


def begin_source(source: str, entries: int) -> None:
    """Set the limits for the work on a source's list of files; see :func:`podline.sandbox.begin`."""
    global _entries  # noqa: PLW0603 (one child, one source)
    _entries = entries
    begin(limits_of_file(0, entries), source)


@contextmanager
def begun(path: str) -> Iterator[None]:
    """Read a file within limits; whatever the system says of it is an error about the source.

    Raises:
        SourceError: so.
    """
    begin_file(path)
    with reading(path):
        yield


def begin_file(path: str) -> None:
    """Set the limits for reading a file; see :func:`podline.sandbox.begin`.

    Raises:
        SourceError: it is not there.
    """
    with reading(path):
        begin(limits_of_file(Path(path).stat().st_size, _entries), path)
