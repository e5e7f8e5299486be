"""Writes files and folders outside of a store, such as exports and tables, so that readers never see a part of one."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Generator
from pathlib import Path

from podline.store.contract import explained


@contextlib.contextmanager
def appearing(path: Path) -> Generator[Path, None, None]:
    """Yield a path beside a file or folder; what the body writes there takes the place of ``path`` at the end.

    The name begins with a dot, so servers that look for numbers ignore it.

    Raises:
        StoreError: it cannot be written; then nothing is left of it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with explained("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            temporary.replace(path)
        finally:
            if temporary.is_dir():
                shutil.rmtree(temporary, ignore_errors=True)
            else:
                temporary.unlink(missing_ok=True)
