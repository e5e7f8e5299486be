"""Maps several files into one range of addresses, so that one NumPy gather reads from all of them."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from podline.base.errors import ArtifactError
from podline.store.contract import explained

_MAP_FIXED = 0x10
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


class MappedFiles:
    """The content of files in one range of addresses; each file starts at a page boundary.

    The operating system loads pages on access and shares them among all processes that map the same files.

    Attributes:
        data: uint8, (bytes of all pages,), read-only.
        starts: position of each file's first byte in ``data``, int64 (files,).
    """

    def __init__(self, files: Mapping[Path, int]) -> None:
        """Map files, given as path → size in bytes.

        Raises:
            ArtifactError: a file does not exist, or has another size.
            StoreError: a file cannot be read.
        """
        pages = [-(-size // mmap.PAGESIZE) * mmap.PAGESIZE for size in files.values()]
        edges = [0, *itertools.accumulate(pages)]
        # One call reserves the address range; each file is then mapped over its part.
        reserved = mmap.mmap(-1, max(edges[-1], 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
        self.data = np.frombuffer(reserved, np.uint8)
        self.starts = np.array(edges[:-1], np.int64)
        for (path, size), start in zip(files.items(), edges, strict=False):
            _map(path, size, self.data.ctypes.data + start)

    def take(self, places: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.uint8]:
        """Return ``size`` bytes from each position in :attr:`data`: int64 (n,) to uint8 (n, size)."""
        # A strided view has one overlapping row per byte; NumPy copies each requested row in one piece.
        every = np.ndarray((max(0, len(self.data) - size + 1),), f"V{size}", self.data, 0, (1,))
        return every[places].view(np.uint8).reshape(-1, size)


def _map(path: Path, size: int, address: int) -> None:
    if not path.exists():
        raise ArtifactError(f"{path} is gone; convert the data again")
    with explained("read", path), path.open("rb") as stream:
        found = os.fstat(stream.fileno()).st_size
        if found != size:
            raise ArtifactError(f"{path} has {found} bytes vs {size} in the manifest; convert the data again")
        flags = mmap.MAP_SHARED | _MAP_FIXED
        if size and _LIBC.mmap(address, size, mmap.PROT_READ, flags, stream.fileno(), 0) != address:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
