"""Write files and folders outside of a store, such as exports and tables, so that readers never see partial ones."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Generator
from pathlib import Path

from podline.store.contract import explained


@contextlib.contextmanager
def appearing(path: Path) -> Generator[Path, None, None]:
    """Yield a temporary path next to ``path``; after the body, the file or folder written there replaces ``path``.

    The temporary name begins with a dot, so that servers that look for version numbers ignore it.

    Raises:
        StoreError: the file or folder cannot be written, or replaces a folder with content; the partial one is deleted.
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
