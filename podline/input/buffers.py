"""A pool of batch buffers, re-used when no reader holds them.

A batch of 1,024 CIFAR images is 3 MB. Fresh memory of that size comes from the kernel a page at a time, and those 750
page faults cost about as much as filling the pages.
"""

from __future__ import annotations

import math
import sys
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

# TensorFlow takes an array that starts at such an address over as it is; any other it copies.
_ALIGNMENT = 64
# Several fields of the batches that are prefetched, on their way and in use; what is beyond that is plain new memory.
_MOST_KEPT = 64


class Buffers:
    """Hands out arrays; any number of threads may ask.

    An array's memory is handed out again only when neither it nor any view of it is left: NumPy has every view refer to
    the block of memory itself, and TensorFlow refers to the array for as long as a tensor uses it.
    """

    def __init__(self) -> None:
        self._blocks: list[npt.NDArray[np.uint8]] = []
        self._lock = threading.Lock()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return an uninitialised C-contiguous array, aligned so that TensorFlow need not copy it."""
        size = math.prod(shape) * dtype.itemsize
        with self._lock:
            block = self._block(size + _ALIGNMENT)
            start = -block.ctypes.data % _ALIGNMENT
            return block[start : start + size].view(dtype).reshape(shape)

    def _block(self, size: int) -> npt.NDArray[np.uint8]:
        for number in range(len(self._blocks)):
            if self._blocks[number].size == size and _references(self._blocks, number) == _UNUSED:
                return self._blocks[number]
        block = np.empty(size, np.uint8)
        if len(self._blocks) < _MOST_KEPT:
            self._blocks.append(block)
        return block


def _references(blocks: list[npt.NDArray[np.uint8]], number: int) -> int:
    return sys.getrefcount(blocks[number])


# What is counted of a block that nothing but the list refers to.
_UNUSED = _references([np.empty(0, np.uint8)], 0)
