"""Keeps freed memory in the process, for code that allocates blocks of some 100 kB over and over."""

from __future__ import annotations

import numpy as np

_LARGE_BLOCK_BYTES = 31 * 2**20


def keep_what_is_freed() -> None:
    """Set this process up for many blocks of some 100 kB, one after another.

    The C library of Linux (glibc) gives memory back to the kernel as soon as twice the largest block that was ever
    freed lies idle, and gets it anew page by page: a fifth of all the time of decoding images, and more than half of
    looking at their files. Blocks of up to 32 MB count for that, and need not be touched.
    """
    np.empty(_LARGE_BLOCK_BYTES, np.uint8)
