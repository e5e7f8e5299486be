"""Makes a source available on this machine: downloads a bucket's objects into the store's cache, and verifies them.

Images that an engine's workers decode stay in the bucket. On this machine, each is represented by a sparse file of the
same size, whose modification time is the generation. So code that lists and selects files handles buckets like folders.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO

from podline.base.errors import SourceError
from podline.base.progress import counted
from podline.data import bounds
from podline.data.places import IMAGE_ENDINGS, StoredFile
from podline.data.rawfiles import renaming
from podline.data.sources.decoding import DECODING
from podline.store import digests
from podline.store.contract import BUCKET_SCHEME, Listed, Store, explained
from podline.store.opening import open_store
from podline.store.prefetch import in_order

_OPTION = "--source"
_NAMED = 6
# Folder of this process with links or placeholders (sparse files) → URI of the store with the objects.
_listed_folders: dict[str, str] = {}


def is_remote(uri: str) -> bool:
    """Return whether a source is in a bucket."""
    return uri.startswith(BUCKET_SCHEME)


def objects_of(uri: str) -> tuple[Store, Iterator[Listed]]:
    """Return a store, and in order the object that ``uri`` names or all objects below this prefix.

    Args:
        uri: ``gs://bucket`` or ``gs://bucket/prefix``, or a file's ``gs://bucket/…/name``.

    Raises:
        SourceError: the prefix has no object.
        StoreError: the bucket cannot be read.
    """
    parent, _, last = uri.rstrip("/").rpartition("/")
    names_bucket = parent.startswith(BUCKET_SCHEME) and parent != BUCKET_SCHEME  # not for ``gs://bucket``
    if names_bucket and not uri.endswith("/"):
        beside = open_store(parent, _OPTION)
        file = beside.find(last)
        if file is not None:
            return beside, iter([file])
    store = open_store(uri, _OPTION)
    files = store.listing()
    first = next(files, None)
    if first is None:
        raise SourceError(f"{uri} does not exist: no object has this name or this prefix; give an existing address")
    return store, chain([first], files)


def _downloaded(uri: str, work: Path, wanted: Callable[[str], bool]) -> Path:
    """Download a source into the cache; return the folder or file of links to the copies, named like the objects.

    Images that workers read themselves are not downloaded; see :func:`stored_at`.
    """
    store, there = objects_of(uri)
    with tempfile.TemporaryFile("w+") as listing:
        state = digests.of_list([found.name, found.version] for found in _write_wanted(uri, there, wanted, listing))
        # Placeholders have a folder of their own: decoding on this machine would read their zeros as images.
        folder = work / ("placeholders" if DECODING.get() else "remote") / digests.of_json([store.uri, state])[:32]
        listing.seek(0)
        count = sum(1 for _ in listing)
        listing.seek(0)
        links = counted(_links(store, folder, (Listed(*json.loads(line)) for line in listing)), count, "files")
        first, _ = next(links), deque(links, maxlen=0)
    return first if store.where(first.relative_to(folder).as_posix()) == uri else folder


def _write_wanted(
    uri: str, objects: Iterable[Listed], wanted: Callable[[str], bool], stream: IO[str]
) -> Iterator[Listed]:
    """Yield the wanted objects, and write each to a file, since there may be millions.

    Raises:
        SourceError: no object is wanted.
    """
    count, tops = 0, dict[str, None]()
    for found in objects:
        if wanted(found.name):
            count += 1
            stream.write(f"{json.dumps(found)}\n")
            yield found
        elif len(tops) <= _NAMED:
            tops[found.name.partition("/")[0]] = None
    if not count:
        more = " …" if len(tops) > _NAMED else ""
        named = ", ".join([*tops][:_NAMED])
        raise SourceError(f"{uri} contains {named}{more}, but no file that this data set needs; give another folder")


def _links(store: Store, folder: Path, objects: Iterable[Listed]) -> Iterator[Path]:
    """Yield a link in ``folder`` to the copy of each object; images that workers read are not copied."""
    left_there = IMAGE_ENDINGS if DECODING.get() else frozenset[str]()
    _listed_folders[str(folder)] = store.uri

    def link(found: Listed) -> Path:
        store.where(found.name)  # refuses a name that leads out of the folder
        path = folder / found.name
        with explained("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix.lower() in left_there:
                _write_placeholder(found, path)
                return path
            copy = store.local(found.name, found)
            if os.path.lexists(path) and not (path.is_symlink() and path.readlink() == copy):
                path.unlink(missing_ok=True)  # a placeholder of an older release, or a link into a moved cache
            with contextlib.suppress(FileExistsError):  # the same link, perhaps from another process
                path.symlink_to(copy)
        return path

    return in_order(link, objects, store.parallel)


def _write_placeholder(found: Listed, path: Path) -> None:
    """Write a sparse file that represents an object of the bucket, unless it exists."""
    generation = int(found.version)
    if not (path.exists() and path.stat().st_mtime_ns == generation):
        path.touch()
        os.truncate(path, found.bytes)
        os.utime(path, ns=(generation, generation))


def stored_at(path: str) -> StoredFile | None:
    """Return the bucket object that a sparse local file represents; None for other files.

    Raises:
        OSError: the file does not exist.
    """
    for folder, uri in _listed_folders.items():
        if path.startswith(f"{folder}/"):
            found = os.lstat(path)
            if stat.S_ISREG(found.st_mode):
                size = min(found.st_size, bounds.IMAGE_BYTES + 1)
                return StoredFile(uri, path[len(folder) + 1 :], str(found.st_mtime_ns), size)
    return None


def copy_of(path: str) -> str:
    """Return the cached copy that a link of :func:`on_this_machine` points to; empty for other files.

    Each generation of an object has a copy of its own.
    """
    linked = any(path.startswith(f"{folder}/") for folder in _listed_folders) and os.path.islink(path)  # noqa: PTH114
    return os.readlink(path) if linked else ""  # noqa: PTH115 (as many as images)


@contextlib.contextmanager
def on_this_machine(source: str, work: Path, wanted: Callable[[str], bool] = lambda _name: True) -> Iterator[Path]:
    """Yield a source's folder or file on this machine; download a bucket's objects first.

    A SourceError of the body then has URIs of the bucket instead of local paths.

    Args:
        source: a folder or a file, here or in a bucket.
        work: the cache folder of sources.
        wanted: returns whether a file of a bucket is needed, given its name.

    Raises:
        SourceError: the bucket has no object of this address, or no wanted one; the address is not of a bucket of
            Google Cloud; see :func:`local_path`; or the body raises this error.
        ArtifactError: an object has a new generation, or a name that leads out of the source.
        StoreError: an object cannot be downloaded.
    """
    if is_remote(source):
        local = _downloaded(source, work, wanted)
        with renaming({str(local): source.rstrip("/")}):
            yield local
    elif "://" in source:
        raise SourceError(
            f"{source} is not supported; give a folder or a file as a source, on this machine or in {BUCKET_SCHEME}"
        )
    else:
        yield local_path(source)


def local_path(source: str) -> Path:
    """Return the absolute path of a source on this machine, which need not exist; ``~`` is a user's home folder.

    Raises:
        SourceError: the text is blank, or begins with ``~`` and an unknown user.
    """
    if not source.strip():
        raise SourceError("got an empty source, expected a folder or a file; check whether a variable is empty")
    try:
        return Path(source).expanduser().absolute()
    except RuntimeError as error:
        raise SourceError(f"{source}: there is no such user; give the whole path") from error
