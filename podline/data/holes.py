"""Finds runs of zeros in a file that are holes: blocks that were never written.

The black around letter-boxed images is a quarter of all their pixels. Whoever reads a file finds zeros in its holes; on
a file system that knows none they are zeros on its disk.
"""

from __future__ import annotations

import os
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

_BLOCK = 4096
"""Bytes that a file system gives room to at a time; fewer, and a hole may save none."""

_LEAST = 4
"""Blocks that are worth a hole: each costs a call, and divides the file's place on the disk."""


def write_with_holes(stream: BinaryIO, data: bytes | memoryview) -> None:
    """Writes data where a stream stands, and goes past long runs of zeros in them.

    What ends in a hole is as long as it was meant to be once the stream was truncated where it stands.

    Args:
        stream: a new file; it is only sought in and written to.
        data: contiguous.
    """
    values = np.frombuffer(data, np.uint8)
    first = min(-stream.tell() % _BLOCK, len(values))
    blocks = values[first : first + (len(values) - first) // _BLOCK * _BLOCK].reshape(-1, _BLOCK)
    written = 0
    for start, stop in first + _BLOCK * _runs(blocks.max(axis=1, initial=0) == 0):
        if start > written:
            stream.write(values[written:start].data)
        stream.seek(int(stop - start), os.SEEK_CUR)
        written = stop
    stream.write(values[written:].data)


def _runs(empty: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Where runs of at least :data:`_LEAST` true values begin and end, (n, 2)."""
    edges = np.flatnonzero(np.diff(empty, prepend=False, append=False)).reshape(-1, 2)
    return edges[edges[:, 1] - edges[:, 0] >= _LEAST]
