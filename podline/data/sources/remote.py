"""Raw files in a bucket, with the interface of files in a folder.

Files are downloaded into the store's cache, checked, several at a time.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from podline.data.rawfiles import RawFile, raw_file
from podline.errors import SourceError
from podline.store import digests
from podline.store.contract import BUCKET_SCHEME, Listed, Store, explained
from podline.store.opening import open_store
from podline.store.prefetch import in_order

_OPTION = "--source"
_HASHING_THREADS = 2


def is_remote(uri: str) -> bool:
    """Whether a source is in a bucket."""
    return uri.startswith(BUCKET_SCHEME)


@dataclass(frozen=True, order=True)
class RemotePath:
    """A file or a folder of a source in a bucket, as it was when the source was looked at; pathlib's words.

    Attributes:
        place: the name below the source's own; empty for the source itself.
    """

    place: str
    _store: Store = field(compare=False, repr=False)
    _files: Mapping[str, Listed] = field(compare=False, repr=False)

    def __str__(self) -> str:
        """Return what errors call this."""
        return self._store.where(self.place) if self.place else self._store.uri

    def __truediv__(self, name: str) -> RemotePath:
        """Return what is below this."""
        return RemotePath(f"{self.place}/{name}" if self.place else name, self._store, self._files)

    @property
    def name(self) -> str:
        """The last part of it."""
        return str(self).rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        """What it is in."""
        return RemotePath(self.place.rpartition("/")[0], self._store, self._files)

    @property
    def uri(self) -> str:
        """A file's ``gs://bucket/name#generation``."""
        return f"{self}#{self._listed.version}"

    @property
    def bytes(self) -> int:
        """A file's size."""
        return self._listed.bytes

    @property
    def parallel(self) -> int:
        """How many objects may be read at once."""
        return self._store.parallel

    def is_file(self) -> bool:
        """Whether there is an object of this name."""
        return self.place in self._files

    def is_dir(self) -> bool:
        """Whether there are objects below this."""
        return next(iter(self.iterdir()), None) is not None

    def exists(self) -> bool:
        """Either."""
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield what is in this folder."""
        top = PurePosixPath(self.place)
        depth = len(top.parts)
        below = (PurePosixPath(name) for name in self._files if not self.place or name.startswith(f"{self.place}/"))
        for name in dict.fromkeys(path.parts[depth] for path in below):
            yield self / name

    def staged(self, work: Path) -> Path:
        """Return a file on this machine with a file's content: a link, under its own name, to the copy in the cache.

        Args:
            work: where the link goes.

        Raises:
            ArtifactError: it has another generation by now.
            StoreError: it cannot be fetched.
        """
        return self.linked(work / "remote" / digests.of_bytes(self.uri.encode())[:32] / self.name)

    def linked(self, link: Path) -> Path:
        """Make a link to the copy of a file in the cache; see :meth:`staged`."""
        copy = self._store.local(self.place, self._listed)
        with explained("write", link):
            link.parent.mkdir(parents=True, exist_ok=True)
            if not (link.is_symlink() and link.readlink() == copy):
                with contextlib.suppress(FileExistsError):  # another process makes the same one
                    link.symlink_to(copy)
        return link

    def files(self) -> Iterator[RemotePath]:
        """Yield all files below this, or this file."""
        if self.is_file():
            yield self
        else:
            for below in self.iterdir():
                yield from below.files()

    @property
    def _listed(self) -> Listed:
        return self._files[self.place]


def open_remote(uri: str) -> RemotePath:
    """Return what a URI names: an object, or a folder of objects.

    Args:
        uri: ``gs://bucket/prefix``, or an archive's ``gs://bucket/…/name.tar.gz``.

    Raises:
        SourceError: nothing is there.
        StoreError: the bucket cannot be read.
    """
    parent, _, last = uri.rstrip("/").rpartition("/")
    store = open_store(uri, _OPTION)
    if parent.removeprefix(BUCKET_SCHEME).strip("/") and not uri.endswith("/"):
        beside = open_store(parent, _OPTION)
        file = beside.find(last)
        if file is not None:
            return RemotePath(last, beside, {last: file})
    files = {file.name: file for file in store.listing()}
    if not files:
        raise SourceError(f"{uri}: there is no object of that name, and none below it")
    return RemotePath("", store, files)


@contextlib.contextmanager
def on_this_machine(source: str, work: Path, wanted: Callable[[str], bool] = lambda _name: True) -> Iterator[Path]:
    """Yield a source's folder or file on this machine; a bucket's are downloaded, and errors name those in the bucket.

    Args:
        source: a folder or a file, here or in a bucket.
        work: the cache folder of sources.
        wanted: which files are needed, by their names in a bucket.

    Raises:
        SourceError: nothing is there; the body raised it.
        ArtifactError: an object has another generation by now.
        StoreError: an object cannot be fetched.
    """
    if not is_remote(source):
        yield Path(source).expanduser().resolve()
        return
    place = open_remote(source)
    files = [file for file in place.files() if wanted(file.place)]
    folder = work / "remote" / digests.of_json(sorted(file.uri for file in files))[:32]
    deque(in_order(lambda file: file.linked(folder / file.place), files, place.parallel), maxlen=0)
    local = folder / place.place
    try:
        yield local
    except SourceError as error:
        raise SourceError(str(error).replace(str(local), source.rstrip("/"))) from error


AnyPath = Path | RemotePath
"""Where a raw file may be."""


def raw_files(files: Mapping[str, AnyPath], work: Path) -> dict[str, RawFile]:
    """Return raw files with their checksums; those in a bucket are downloaded, several at a time.

    Args:
        files: by official name.
        work: the cache folder of sources.

    Raises:
        SourceError: a file cannot be read.
        ArtifactError: an object has another generation by now.
        StoreError: an object cannot be fetched.
    """

    def raw(name: str, path: AnyPath) -> RawFile:
        local = path.staged(work) if isinstance(path, RemotePath) else path
        return replace(raw_file(name, local), shown=str(path))

    several = max((path.parallel for path in files.values() if isinstance(path, RemotePath)), default=_HASHING_THREADS)
    with ThreadPoolExecutor(several) as threads:  # a checksum is computed without Python's lock
        return dict(zip(files, threads.map(raw, files, files.values()), strict=True))
