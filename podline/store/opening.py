"""Opens the store at a root."""

from __future__ import annotations

from pathlib import Path

from podline.errors import SettingsError
from podline.store.contract import BUCKET_SCHEME, Store
from podline.store.folder import FolderStore


def open_store(root: str | Path, option: str = "--root") -> Store:
    """Return the store at a root.

    Args:
        root: a folder, which is made when the first thing is published; or ``gs://bucket`` or ``gs://bucket/prefix``.
        option: where a person names it, for errors.

    Raises:
        SettingsError: the root is neither.
    """
    if str(root).startswith(BUCKET_SCHEME):
        # Google's client takes a second to import, for those alone who use it.
        from podline.store.buckets import BucketStore  # noqa: PLC0415

        return BucketStore(str(root), option)
    if "://" in str(root) or str(root).startswith("gs:"):
        raise SettingsError(f"{option} {root}: a store is a folder or gs://bucket/prefix")
    return FolderStore(Path(root).expanduser().absolute())
