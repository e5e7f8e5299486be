"""Opens the store at a root."""

from __future__ import annotations

from pathlib import Path

from podline.errors import SettingsError
from podline.store.contract import BUCKET_SCHEME, Store
from podline.store.folder import FolderStore


def open_store(root: str | Path, option: str = "--root") -> Store:
    """Return the store at a root.

    Args:
        root: a folder, which is created at the first publication; or ``gs://bucket`` or ``gs://bucket/prefix``.
        option: the option that names the store, for errors.

    Raises:
        SettingsError: the root is invalid.
    """
    if str(root).startswith(BUCKET_SCHEME):
        # Importing Google's client takes a second, which only stores in buckets need.
        from podline.store.buckets import BucketStore  # noqa: PLC0415

        return BucketStore(str(root), option)
    if "://" in str(root) or str(root).startswith("gs:"):
        raise SettingsError(f"{option} {root}: a store is a folder or gs://bucket/prefix")
    return FolderStore(Path(root).expanduser().absolute())
