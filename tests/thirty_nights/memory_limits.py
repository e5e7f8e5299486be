"""Too little memory for a process, so that the kernel's own killer ends it: a memory control group of Linux."""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
# Of what it takes from now on; what it has already is its old group's.
_BYTES = 100_000_000


@contextlib.contextmanager
def memory_limit() -> Iterator[Callable[[int], None]]:
    """What puts a process into a group with hardly any memory left; the processes must be gone when the body ends."""
    first_version = (_GROUPS / "memory").is_dir()
    group = (_GROUPS / "memory" if first_version else _GROUPS) / f"nights-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if first_version else "memory.max")).write_text(str(_BYTES))
    except OSError as error:
        sys.exit(f"a child out of memory is in the plan, and this user cannot limit memory: {error}")

    def put_in(process: int) -> None:
        (group / "cgroup.procs").write_text(str(process))

    try:
        yield put_in
    finally:
        group.rmdir()
