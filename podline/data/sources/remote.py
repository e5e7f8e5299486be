"""Raw files in a bucket, made to look like files of a folder: links to checked copies in the cache.

A folder of links is named by the generations that it links to, and the cache keeps a copy under the same path for as
long as it is the same generation: so the links of an earlier run lead to the right bytes, or nowhere until they are
fetched again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from podline import digests
from podline.errors import SourceError
from podline.storage import BUCKET_SCHEME, Listed, Store, explained, open_store


def is_remote(uri: str) -> bool:
    """Whether a source is in a bucket."""
    return uri.startswith(BUCKET_SCHEME)


def fetched(uri: str, work: Path, wanted: Callable[[str], bool]) -> Path:
    """A folder or a file on this machine with what a URI has.

    Args:
        uri: ``gs://bucket/prefix``, or an archive's ``gs://bucket/…/name.tar.gz``.
        work: where the links go.
        wanted: says which files of a prefix are needed, by their names in it.

    Raises:
        SourceError: nothing of the kind is there.
        StoreError: it cannot be fetched.
    """
    parent, _, last = uri.rstrip("/").rpartition("/")
    store = open_store(uri)
    if parent.removeprefix(BUCKET_SCHEME).strip("/") and not uri.endswith("/"):
        beside = open_store(parent)
        archive = beside.find(last)
        if archive is not None:
            return _linked(beside, [archive], work) / last
    found = [file for file in store.listing() if wanted(file.name)]
    if not found:
        raise SourceError(f"{uri}: there is no object of that name, and none below it that any data set has")
    return _linked(store, found, work)


def _linked(store: Store, files: list[Listed], work: Path) -> Path:
    key = digests.of_json([store.uri, *([file.name, file.version] for file in files)])[:32]
    folder = work / "remote" / key
    for file, copy in zip(files, store.locals(file.name for file in files), strict=True):
        link = folder / file.name
        with explained("write", link):
            link.parent.mkdir(parents=True, exist_ok=True)
            if not (link.is_symlink() and link.readlink() == copy):
                with contextlib.suppress(FileExistsError):  # another process makes the same one
                    link.symlink_to(copy)
    return folder
