"""Open the store at a root."""

from __future__ import annotations

import os
from pathlib import Path

from podline.base.errors import SettingsError
from podline.settings.machine import load
from podline.store.contract import BUCKET_SCHEME, Store
from podline.store.folder import FolderStore


def open_store(root: str | Path, option: str = "--root") -> Store:
    """Return the store at a root; the root is not created or requested yet.

    Args:
        root: a folder, which is created at the first publication; or ``gs://bucket`` or ``gs://bucket/prefix``.
        option: the command-line option that named the store, for errors.

    Raises:
        SettingsError: the root is invalid.
        CredentialsError: the root is in a bucket, and this machine has no credentials.
    """
    store = _opened(root, option)
    store.marks, store.shared = True, load().store.group
    if store.shared:
        os.umask(0o002)
    return store


def _opened(root: str | Path, option: str) -> Store:
    if not str(root).strip():
        raise SettingsError(
            f"{option}: got {str(root)!r}, expected a folder or gs://bucket/prefix; check whether a variable is empty"
        )
    if str(root).startswith(BUCKET_SCHEME):
        # Importing Google's client takes a second, which only stores in buckets need.
        from podline.store.buckets import BucketStore  # noqa: PLC0415

        return BucketStore(str(root), option)
    if "://" in str(root) or str(root).startswith("gs:"):
        raise SettingsError(f"{option}: got {root}, expected a folder or gs://bucket/prefix")
    return FolderStore(Path(root).expanduser().absolute())
