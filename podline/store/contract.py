"""The contract of a store: names under one root, each object published atomically.

A store is a folder (:mod:`podline.store.folder`) or a bucket (:mod:`podline.store.buckets`). Both guarantee the same: a
name does not exist or has its full content. Different content never overwrites an existing name unless the caller
passes ``replace``. A read returns the published content, or raises an error.

Code that needs a file, to map it into memory or to pass it to a library, calls :meth:`Store.local`. Messages use
:meth:`Store.where`. All other code uses names.

A store also has a *scratch* folder on this machine, for logs, locks and temporary files; in a folder it is
``.podline``.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import stat
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from podline.base.errors import ArtifactError, StoreError, StoreUnavailableError
from podline.base.frozen import Json, is_object
from podline.store import digests, fences, locks, uses
from podline.store.marker import MARKER, holding_of
from podline.store.retries import retried

T = TypeVar("T")

BUCKET_SCHEME = "gs://"
SCRATCH = ".podline"
INDEX = "index.html"
"""The page about all nights, in the root."""
_TEMPORARY = "tmp"
# Errors of a mounted folder whose server is away, or of a connection to it.
_PASSING = frozenset(
    {
        errno.EIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.EREMOTEIO,
        errno.ENOTCONN,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOLCK,
        errno.EAGAIN,
    }
)
# Modes of the scratch folder: accessible to its owner only, or to a group that shares the store.
_PRIVATE, _SHARED = 0o700, 0o770
_marking = threading.RLock()


@contextlib.contextmanager
def explained(action: str, path: Path | str) -> Generator[None, None, None]:
    """Turn an :class:`OSError` in the body into a one-line :class:`StoreError`, or :class:`StoreUnavailableError`.

    Args:
        action: the action as a verb phrase: "write", "read the manifest of".
        path: the file or folder of the action.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _PASSING:
            raise StoreUnavailableError(
                f"cannot {action} {path}: {error.strerror}; the file system does not answer properly"
            ) from error
        raise refused(action, path, error) or StoreError(
            f"cannot {action} {path}: {error.strerror or error}"
        ) from error


def refused(action: str, path: Path | str, error: OSError) -> StoreError | None:
    """Return the error for a full disk or a missing permission, with its remedy; None for other errors."""
    where = f"cannot {action} {path}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(f"{where}: no space left on the device; free some, or choose another --root")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        writing = action.startswith(("write", "make", "delete"))
        remedy = "choose a --root that this user can write" if writing else "give this user access to it"
        return StoreError(f"{where}: permission denied ({error.strerror}); {remedy}")
    return None


class Listed(NamedTuple):
    """A published name.

    Attributes:
        published: Unix time of the publication.
        version: a text that changes with the content.
        sha256: hexadecimal checksum of its content; empty if only reading the content would give it.
        crc32c: of an object, in the service's format; empty for a file.
    """

    name: str
    bytes: int
    published: float
    version: str
    sha256: str = ""
    crc32c: str = ""


class Store(ABC):
    """A store; names are relative, with ``/`` between their parts.

    A method that reads raises :class:`StoreError` if the name does not exist or cannot be read, and
    :class:`ArtifactError` if the object has changed since the ``found`` or ``version`` that :meth:`find` or
    :meth:`listing` returned. A method that writes raises :class:`StoreError` if it fails.

    Attributes:
        uri: the root as a user would write it.
        scratch: a folder on this machine for unpublished files.
        beside: a folder on this machine for local files that people use, like drawn samples.
        parallel: number of objects that may be fetched at once.
        marks: whether the next publication marks a new root; see :mod:`podline.store.marker`.
        read_only: whether this user may only read; ``scratch`` is then the user's own.
        shared: whether a group shares the store, by the setting ``store.group``.
    """

    uri: str
    scratch: Path
    beside: Path
    parallel: int = 1
    marks: bool = False
    read_only: bool = False
    shared: bool = False

    @abstractmethod
    def where(self, name: str) -> str:
        """Return a name as a user would write it, a path or gs://bucket/prefix/name; it need not exist.

        Raises:
            ArtifactError: the name leads out of the store.
        """

    @abstractmethod
    def local(self, name: str, found: Listed | None = None) -> Path:
        """Return a local file with the content of a published name, for reading only.

        For a folder it is the file itself, which may be missing. For an object it is a copy in the cache, verified by
        the object's checksum and kept while this process runs. With ``found``, the object is not looked up again.
        """

    def locals(self, names: Iterable[str]) -> list[Path]:
        """Return local files of several names; objects are looked up together, and fetched in parallel."""
        return [self.local(name) for name in names]

    @abstractmethod
    def find(self, name: str) -> Listed | None:
        """Return the listing of a published name with size and time, or None."""

    @abstractmethod
    def sha256(self, name: str, found: Listed | None = None) -> str:
        """Return the sha256 of a published name's content, in hexadecimal; ``found`` often has it."""

    @abstractmethod
    def read_bytes(self, name: str, version: str = "") -> bytes:
        """Return the whole content of a small object."""

    @abstractmethod
    def read_range(self, name: str, start: int, length: int, version: str = "") -> bytes:
        """Return ``length`` bytes of a published name from ``start``, or fewer at its end."""

    @abstractmethod
    def read_pieces(self, name: str, length: int, version: str) -> Iterator[bytes]:
        """Yield the whole content of a large object, ``length`` bytes at a time, with constant memory.

        Raises:
            StoreUnavailableError: after the last piece: the received bytes differ from the object.
        """

    @abstractmethod
    def listing(self, prefix: str = "") -> Iterator[Listed]:
        """Yield all published names below a folder, but the marker, in sorted order, with constant memory."""

    @abstractmethod
    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders in a folder, sorted, without listing their content."""

    @abstractmethod
    def now(self) -> float:
        """Return the Unix time by the clock that dates publications; this writes something to the store."""

    def publish_file(self, source: Path, name: str, *, replace: bool = False, flush: bool = True) -> None:
        """Publish a finished local file; ``source`` should be in :meth:`workspace`, and may be moved.

        Args:
            source: the file.
            name: name of the publication.
            replace: whether different content may be overwritten.
            flush: wait until the content is on the disk. Without it, a power cut (but not a killed process) may leave a
                published name with incomplete content, until :meth:`flush` is called.

        Raises:
            TakenError: the name exists with other content, and ``replace`` is not set.
            OtherWriterError: this process was the only writer of the folder, and no longer is.
        """
        self.require_writable()
        if fence := fences.over(self.uri, name):
            fence.publish(source, name, replace=replace, flush=flush)
            return
        if self.marks:
            self._mark()
        self._publish(source, name, replace=replace, flush=flush)

    def swap(self, source: Path | None, name: str, version: str, *, flush: bool = True) -> str:
        """Publish a file in place of one version of a name, in one step; return the new version.

        Args:
            source: the file, see :meth:`publish_file`; None deletes the name, if it has this version.
            name: name of the publication.
            version: the version to replace; empty if the name must be free.
            flush: see :meth:`publish_file`.

        Raises:
            TakenError: the name has another version, with other content, or is gone.
        """
        self.require_writable()
        if source and self.marks:
            self._mark()
        return self._swap(source, name, version, flush=flush)

    def swap_bytes(self, name: str, data: bytes, version: str, *, flush: bool = True) -> str:
        """Publish bytes in place of one version of a name; see :meth:`swap`."""
        with self._file_of(name, data) as source:
            return self.swap(source, name, version, flush=flush)

    def swap_json(self, name: str, document: Json, version: str) -> str:
        """Publish a JSON document in place of one version of it; see :meth:`swap` and :meth:`publish_json`."""
        return self.swap_bytes(name, _json_bytes(name, document), version)

    @abstractmethod
    def _swap(self, source: Path | None, name: str, version: str, *, flush: bool) -> str:
        """See :meth:`swap`."""

    def _mark(self) -> None:
        with _marking:  # no thread publishes before the marker is there
            marks, self.marks = self.marks, False
            try:
                if marks and not self.exists(MARKER) and (next(self.listing(), None) is None or self._has_holding()):
                    self.mark()
            except BaseException:
                self.marks = True
                raise

    def _has_holding(self) -> bool:
        runs = (f"{folder}/spec.json" for folder in self.folders("runs"))
        datasets = (f"{each}/manifest.json" for folder in self.folders("datasets") for each in self.folders(folder))
        return any(holding_of(name) and self.exists(name) for name in itertools.chain(runs, datasets))

    def mark(self) -> None:
        """Publish the marker."""
        self.publish_json(MARKER, {"format": 1}, replace=True)

    def require_marker(self) -> None:
        """Refuse to delete where there is no marker.

        Raises:
            StoreError: the root has no marker.
        """
        if not self.exists(MARKER):
            raise StoreError(
                f"{self.uri} has no {MARKER}, so it may be another program's: nothing is deleted there; if it is a "
                f"store of Podline's, run `podline store mark --root {self.uri}` first"
            )

    @abstractmethod
    def _publish(self, source: Path, name: str, *, replace: bool, flush: bool) -> None:
        """See :meth:`publish_file`."""

    @abstractmethod
    def flush(self, names: Iterable[str]) -> None:
        """Wait until files that were published without waiting are on the disk; does nothing for a bucket."""

    def delete(self, name: str, version: str = "") -> None:
        """Remove a name; a missing name, or one with another version than the given one, is no error.

        Raises:
            OtherWriterError: this process was the only writer of the folder, and no longer is.
        """
        if fence := fences.over(self.uri, name):
            fence.delete(name, version)
        else:
            self._delete(name, version)

    @abstractmethod
    def _delete(self, name: str, version: str) -> None:
        """See :meth:`delete`."""

    def exists(self, name: str) -> bool:
        """Return whether a name exists."""
        return self.find(name) is not None

    def list(self, prefix: str = "") -> list[str]:
        """Return the names of :meth:`listing`."""
        return [found.name for found in self.listing(prefix)]

    def read_json(self, name: str, remedy: str = digests.REMEDY) -> Json:
        """Return a JSON document, verified by the digest in it.

        Args:
            name: name of the document.
            remedy: remedy for a damaged document.

        Raises:
            ArtifactError: the document is not JSON, or has changed.
        """
        return self.read_document(name, remedy)[0]

    def read_document(self, name: str, remedy: str = digests.REMEDY) -> tuple[Json, str]:
        """Return the result of :meth:`read_json`, with the digest, which is empty for values other than objects."""
        return digests.read_document(name, self.where(name), self.read_bytes(name), remedy)

    def publish_bytes(self, name: str, data: bytes, *, replace: bool = False, flush: bool = True) -> None:
        """Publish bytes under a name; see :meth:`publish_file`."""
        with self._file_of(name, data) as source:
            self.publish_file(source, name, replace=replace, flush=flush)

    @contextlib.contextmanager
    def _file_of(self, name: str, data: bytes) -> Generator[Path, None, None]:
        with self.workspace("publish") as folder:
            retried(_write)(folder / "object", data, self.where(name))
            yield folder / "object"

    def publish_json(self, name: str, document: Json, *, replace: bool = False, flush: bool = True) -> None:
        """Publish a JSON document, indented, with keys in the given order; an object gets a digest."""
        self.publish_bytes(name, _json_bytes(name, document), replace=replace, flush=flush)

    def require_writable(self) -> None:
        """Refuse to write to a store that this user may only read.

        Raises:
            StoreError: the store is read-only.
        """
        if self.read_only:
            raise StoreError(
                f"cannot write to the store {self.uri}: permission denied; choose a --root that this user can write"
            )

    @retried
    def own_folder(self, *parts: str) -> Path:
        """Create a folder below :attr:`scratch`, and return it; others cannot enter the scratch folder.

        Files in it (logs, a server's database and secret, unpacked archives) may themselves be readable.
        """
        folder = self.scratch.joinpath(*parts)
        with explained("write to the store", self.uri):
            _make(self.scratch)
            found, mode = self.scratch.stat(), _SHARED if self.shared else _PRIVATE
            if found.st_mode & 0o777 != mode and found.st_uid == os.geteuid():
                self.scratch.chmod(mode | found.st_mode & stat.S_ISGID)
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    @contextlib.contextmanager
    def workspace(self, label: str) -> Generator[Path, None, None]:
        """Create a temporary folder on this machine, and delete it after the body.

        For a folder, it is on the store's own file system.
        """
        with contextlib.ExitStack() as stack:
            yield self._temporary(stack, label)

    @retried
    def _temporary(self, stack: contextlib.ExitStack, label: str) -> Path:
        parent = self.own_folder(_TEMPORARY)
        with explained("write to the store", self.uri):
            return stack.enter_context(locks.temporary_folder(parent, label))

    def sweep(self) -> int:
        """Remove temporary folders of killed processes; return their number."""
        return locks.sweep(self.scratch / _TEMPORARY)

    @contextlib.contextmanager
    def using(self, folders: Iterable[str]) -> Generator[None, None, None]:
        """Protect data sets and runs, by their names in the store, from deletion while the body runs.

        In a folder this protects from every process that uses the folder, in a bucket from those of this machine. A
        deletion in progress is waited for.
        """
        with contextlib.ExitStack() as stack:
            self._lease(stack, lambda lease: lease.share(folders))
            yield

    @contextlib.contextmanager
    def alone(self, *folders: str) -> Generator[set[str], None, None]:
        """Protect data sets and runs from use while the body runs; yield those that no process uses."""
        self.require_writable()
        with contextlib.ExitStack() as stack:
            yield self._lease(stack, lambda lease: lease.take(folders))

    @retried
    def _lease(self, stack: contextlib.ExitStack, use: Callable[[uses.Lease], T]) -> T:
        folder = self.own_folder("uses")
        with explained("write to the store", self.uri):
            return use(stack.enter_context(uses.Lease(folder)))

    def _require_inside(self, name: str) -> None:
        if name.startswith("/") or ".." in name.split("/"):
            raise ArtifactError(f"the name {name!r} leads out of the store {self.uri}")


def _json_bytes(name: str, document: Json) -> bytes:
    published = digests.with_digest(name, document) if is_object(document) else document
    return (json.dumps(published, indent=2, allow_nan=False) + "\n").encode()


def _write(path: Path, data: bytes, name: str) -> None:
    with explained("write", name):
        path.write_bytes(data)


def _make(folder: Path) -> None:
    """Create a folder and its parents; scratch folders are accessible to their owner only."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=_PRIVATE if folder.name == SCRATCH else 0o777, exist_ok=True)
