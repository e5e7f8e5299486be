"""The contract of a store: names below one root, with atomic publication of each object.

A store is a folder (:mod:`podline.store.folder`) or a bucket (:mod:`podline.store.buckets`). Both guarantee that a name
either does not exist or has its full content. Different content never overwrites an existing name unless the caller
passes ``replace``. A read returns the published content, or raises an error.

Code that needs a local file, for mapping into memory or for a library, calls :meth:`Store.local`. Messages use
:meth:`Store.where`. All other code uses names.

A store also has a *scratch* folder on this machine for logs, locks and temporary files. The scratch folder of a folder
store is its subfolder ``.podline``; if this user may only read the store, and for a bucket, it is in the user's cache.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import re
import shutil
import stat
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, TypeVar

from podline.base.errors import ArtifactError, StoreError, StoreUnavailableError
from podline.base.frozen import Json, JsonObject
from podline.store import digests, fences, locks, uses
from podline.store.retries import retried

T = TypeVar("T")

BUCKET_SCHEME = "gs://"
SCRATCH = ".podline"
INDEX = "index.html"
"""The name of the page about all nights, in the root of a store."""
MARKER = "podline-store.json"
"""The name of the file that shows that a root is a store; without it nothing is deleted.

Other programs use folders named ``runs`` and ``datasets`` too. The first publication into an empty root writes the
marker, as does the next publication into a store of Podline 1.0.
"""
_HOLDING = re.compile(r"(datasets/[^/]+/[0-9a-f]{16}|runs/[^/]+-[0-9a-f]{12})/")
_TEMPORARY = "tmp"
# Errors of a mounted folder whose server or connection is down.
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
# Modes of the scratch folder: for the owner only, or for the group that shares the store.
_PRIVATE, _SHARED = 0o700, 0o770
_marking = threading.RLock()
LOST = "put it back, or run the command that writes it"
_REMEDIES = {errno.ENOENT: f"; {LOST}", errno.EISDIR: f"; move the folder away, then {LOST}"}


@contextlib.contextmanager
def explained(action: str, path: Path | str) -> Generator[None, None, None]:
    """Turn an :class:`OSError` in the body into a :class:`StoreError` or :class:`StoreUnavailableError` of one line.

    Args:
        action: the attempted action as a verb phrase: "write", "read the manifest of".
        path: the file or folder.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _PASSING:
            raise StoreUnavailableError(
                f"cannot {action} {path}: {error.strerror}; the file system does not respond properly, check its server"
            ) from error
        remedy = _REMEDIES.get(error.errno or 0, "") if action == "read" else ""
        raise refused(action, path, error) or StoreError(
            f"cannot {action} {path}: {error.strerror or error}{remedy}"
        ) from error


@contextlib.contextmanager
def entered(uri: str, context: Callable[[], AbstractContextManager[T]]) -> Generator[T, None, None]:
    """Enter a context that writes to a store; retry and explain an :class:`OSError` of entering, not of the body."""
    with contextlib.ExitStack() as stack:
        yield retried(explained("write to the store", uri)(lambda: stack.enter_context(context())))()


def refused(action: str, path: Path | str, error: OSError) -> StoreError | None:
    """Return an error with a remedy for a full disk or a missing permission; None for other errors."""
    where = f"cannot {action} {path}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(f"{where}: no space left on the device; free some space, or choose another --root")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        writing = action.startswith(("write", "make", "delete"))
        remedy = "choose a --root that this user can write" if writing else "give this user access to it"
        return StoreError(f"{where}: permission denied ({error.strerror}); {remedy}")
    return None


def holding_of(name: str) -> str:
    """Return the folder of the data set or run that contains a name; empty for a name in no such folder."""
    found = _HOLDING.match(name)
    return found[1] if found else ""


class Listed(NamedTuple):
    """Name, size, time and version of a published object.

    Attributes:
        published: Unix time of the publication.
        version: a text that changes with the content.
        sha256: hexadecimal sha256 of the content; empty if unknown without reading the content.
        crc32c: the service's crc32c in base64; empty for a file.
    """

    name: str
    bytes: int
    published: float
    version: str
    sha256: str = ""
    crc32c: str = ""


class Store(ABC):
    """A store; names are relative paths with ``/`` as separator.

    A method that reads raises :class:`StoreError` if the name does not exist or cannot be read. It raises
    :class:`ArtifactError` if the object has changed since :meth:`find` or :meth:`listing` returned the given ``found``
    or ``version``. A method that writes raises :class:`StoreError` if it fails. Both raise
    :class:`StoreUnavailableError` if a later attempt may succeed, and, in a bucket, :class:`CredentialsError`.

    Attributes:
        uri: the root as a user would write it.
        scratch: a folder on this machine for unpublished files.
        beside: a folder on this machine for local files that people use, such as generated samples.
        parallel: largest number of objects to fetch at once.
        marks: whether the next publication writes the marker into an empty root; see :data:`MARKER`.
        read_only: whether this user may only read; ``scratch`` is then in the user's own cache.
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
        """Return a name as a user would write it, a path or gs://bucket/prefix/name; the object need not exist.

        Raises:
            ArtifactError: the name points outside the store.
        """

    @abstractmethod
    def local(self, name: str, found: Listed | None = None) -> Path:
        """Return a local file with the content of a published name, for reading only.

        In a folder store this is the file itself, which may not exist. In a bucket it is a copy in the cache, verified
        by the object's checksum and kept while this process runs. With ``found``, the object is not looked up again.
        """

    def locals(self, names: Iterable[str]) -> list[Path]:
        """Return local files of several names; a bucket looks them up together and fetches them in parallel."""
        return [self.local(name) for name in names]

    @abstractmethod
    def find(self, name: str) -> Listed | None:
        """Return size, time and version of a published name, or None if it does not exist."""

    @abstractmethod
    def sha256(self, name: str, found: Listed | None = None) -> str:
        """Return the hexadecimal sha256 of a published name; with ``found``, the object is not looked up again."""

    @abstractmethod
    def read_bytes(self, name: str, version: str = "") -> bytes:
        """Return the whole content of a small object."""

    @abstractmethod
    def read_range(self, name: str, start: int, length: int, version: str = "") -> bytes:
        """Return ``length`` bytes of a published name from byte ``start`` on; fewer at the end."""

    @abstractmethod
    def read_pieces(self, name: str, length: int, version: str) -> Iterator[bytes]:
        """Yield the content of a large object in pieces of ``length`` bytes, with constant memory.

        Raises:
            StoreUnavailableError: after the last piece, if the received bytes differ from the object.
        """

    @abstractmethod
    def listing(self, prefix: str = "") -> Iterator[Listed]:
        """Yield all published names below a folder, sorted, without the marker; memory stays constant."""

    @abstractmethod
    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders directly in a folder, sorted."""

    @abstractmethod
    def now(self) -> float:
        """Return the Unix time of the clock that dates publications; to read it, this writes a temporary object."""

    def publish_file(self, source: Path, name: str, *, replace: bool = False, flush: bool = True) -> None:
        """Publish a complete local file; ``source`` should be in :meth:`workspace`, and may be moved.

        Args:
            source: the file.
            name: the name to publish under.
            replace: whether existing different content may be overwritten.
            flush: whether to wait until the content is on disk. Without it, a power cut (but not a killed process) may
                leave a published name with incomplete content, until :meth:`flush` is called.

        Raises:
            TakenError: the name exists with other content, and ``replace`` is false.
            OtherWriterError: this process has lost the lease of the folder.
        """
        self.require_writable()
        if fence := fences.over(self.uri, name):
            fence.publish(source, name, replace=replace, flush=flush)
            return
        if self.marks:
            self._mark()
        self._publish(source, name, replace=replace, flush=flush)

    def swap(self, source: Path | None, name: str, version: str, *, flush: bool = True) -> str:
        """Replace the content of a name atomically, if it still has the given version; return the new version, if any.

        Args:
            source: the file with the new content, see :meth:`publish_file`; None deletes the name instead, and does
                nothing if the name has another version.
            name: the name to publish under.
            version: the version to replace; empty if the name must not exist.
            flush: see :meth:`publish_file`.

        Raises:
            TakenError: the name has another version with other content, or was deleted.
        """
        self.require_writable()
        if source and self.marks:
            self._mark()
        return self._swap(source, name, version, flush=flush)

    def swap_bytes(self, name: str, data: bytes, version: str, *, flush: bool = True) -> str:
        """Replace the content of ``name`` by ``data``, if it still has the given version; see :meth:`swap`."""
        with self._file_of(name, data) as source:
            return self.swap(source, name, version, flush=flush)

    def swap_json(self, name: str, document: Json, version: str) -> str:
        """Replace a JSON document, if it still has the given version; see :meth:`swap` and :meth:`publish_json`."""
        return self.swap_bytes(name, _json_bytes(name, document), version)

    @abstractmethod
    def _swap(self, source: Path | None, name: str, version: str, *, flush: bool) -> str:
        """See :meth:`swap`."""

    def _mark(self) -> None:
        with _marking:  # no thread publishes before the marker exists
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
        """Publish the marker file."""
        self.publish_json(MARKER, {"format": 1}, replace=True)

    def require_marker(self) -> None:
        """Raise an error if the root has no marker, since then nothing may be deleted.

        Raises:
            StoreError: the root has no marker.
        """
        if not self.exists(MARKER):
            raise StoreError(
                f"{self.uri} has no {MARKER}, so it may belong to another program, and nothing is deleted; if it is a "
                f"store of Podline, run `podline store mark --root {self.uri}` first"
            )

    @abstractmethod
    def _publish(self, source: Path, name: str, *, replace: bool, flush: bool) -> None:
        """See :meth:`publish_file`."""

    @abstractmethod
    def flush(self, names: Iterable[str]) -> None:
        """Wait until files published with ``flush=False`` are on disk; a bucket needs no wait."""

    def delete(self, name: str, version: str = "") -> None:
        """Delete a name; do nothing if it does not exist, or has another version than the given one.

        Raises:
            OtherWriterError: this process has lost the lease of the folder.
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
        """Return the names of all objects that :meth:`listing` yields."""
        return [found.name for found in self.listing(prefix)]

    def read_json(self, name: str, remedy: str = digests.REMEDY) -> JsonObject:
        """Return a JSON document after verifying the digest in it.

        Args:
            name: name of the document.
            remedy: what to do about a damaged document, for errors.

        Raises:
            ArtifactError: the document is not a JSON object, or its content does not match its digest.
        """
        return self.read_document(name, remedy)[0]

    def read_document(self, name: str, remedy: str = digests.REMEDY) -> tuple[JsonObject, str]:
        """Return a JSON document like :meth:`read_json`, and its digest."""
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

    def publish_json(self, name: str, document: JsonObject, *, replace: bool = False, flush: bool = True) -> None:
        """Publish a JSON document, indented, with keys in the given order, and its digest."""
        self.publish_bytes(name, _json_bytes(name, document), replace=replace, flush=flush)

    def require_writable(self) -> None:
        """Raise an error if this user may only read the store.

        Raises:
            StoreError: the store is read-only.
        """
        if self.read_only:
            raise StoreError(
                f"cannot write to the store {self.uri}: permission denied; choose a --root that this user can write"
            )

    @retried
    def own_folder(self, *parts: str) -> Path:
        """Create a folder below :attr:`scratch`, and return it.

        Only its owner can enter the scratch folder, and the owner's group if the store is :attr:`shared`. Files in it
        (logs, a server's database and secret, unpacked archives) may themselves have readable modes.
        """
        folder = self.scratch.joinpath(*parts)
        with explained("write to the store", self.uri):
            _make(self.scratch)
            found, mode = self.scratch.stat(), _SHARED if self.shared else _PRIVATE
            if found.st_mode & 0o777 != mode and found.st_uid == os.geteuid():
                self.scratch.chmod(mode | found.st_mode & stat.S_ISGID)
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def workspace(self, label: str) -> AbstractContextManager[Path]:
        """Create a temporary folder on this machine, and delete it after the body.

        For a folder store that this user can write, it is on the same file system as the store.
        """
        return entered(self.uri, lambda: locks.temporary_folder(self.own_folder(_TEMPORARY), label))

    def sweep(self) -> None:
        """Delete the temporary folders of killed processes."""
        for folder in locks.left_behind(self.scratch / _TEMPORARY):
            shutil.rmtree(folder, ignore_errors=True)

    def using(self, folders: Iterable[str]) -> AbstractContextManager[uses.Lease]:
        """Protect folders of data sets and runs from deletion while the body runs; first wait for a running deletion.

        A folder store protects them from every process that uses it, a bucket only from processes on this machine. A
        user who may only read a folder store protects nothing from other users.
        """
        names = set(folders)
        return entered(self.uri, lambda: uses.Lease(self.own_folder("uses")).share(names))

    @contextlib.contextmanager
    def alone(self, *folders: str) -> Generator[set[str], None, None]:
        """Reserve those of the folders that no process uses, and yield them; a process that wants to use one waits.

        For a bucket, only processes on this machine count; see :meth:`using`.
        """
        self.require_writable()
        with entered(self.uri, lambda: uses.Lease(self.own_folder("uses")).take(folders)) as lease:
            yield set(lease.names)

    def _require_inside(self, name: str) -> None:
        if name.startswith("/") or ".." in name.split("/"):
            raise ArtifactError(f"the name {name!r} leads out of the store {self.uri}; correct the name")


def _json_bytes(name: str, document: JsonObject) -> bytes:
    return (json.dumps(digests.with_digest(name, document), indent=2, allow_nan=False) + "\n").encode()


def _write(path: Path, data: bytes, name: str) -> None:
    with explained("write", name):
        path.write_bytes(data)


def _make(folder: Path) -> None:
    """Create a folder and its parents; a scratch folder is accessible to its owner only."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=_PRIVATE if folder.name == SCRATCH else 0o777, exist_ok=True)
