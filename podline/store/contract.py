"""The contract of a store: names under one root, each object published whole.

A store is a folder (:mod:`podline.store.folder`) or a bucket (:mod:`podline.store.buckets`). Both promise the same: a
name does not exist or has its full content; an existing name is never overwritten by other content unless the caller
says ``replace``; what is read is what was published, or an error.

Code that needs a file, to map it into memory or to hand it to a library, asks for :meth:`Store.local`; for messages
there is :meth:`Store.where`; all else goes through names.

Beside what is published, a store has a *scratch* folder on this machine, for logs, locks and temporary files: a
folder's is ``.podline`` below it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from podline.errors import ArtifactError, StoreError
from podline.frozen import Json, is_object
from podline.store import digests, locks

BUCKET_SCHEME = "gs://"
SCRATCH = ".podline"
INDEX = "index.html"
"""The page over all nights, in the root."""
_TEMPORARY = "tmp"
# Of the scratch folder: for its owner alone.
_PRIVATE = 0o700


@contextlib.contextmanager
def explained(action: str, path: Path | str) -> Generator[None, None, None]:
    """Turn an :class:`OSError` in the body into a :class:`StoreError` of one clear line.

    Args:
        action: what was being done, as a verb phrase: "write", "read the manifest of".
        path: what it was done to.
    """
    try:
        yield
    except OSError as error:
        where = f"cannot {action} {path}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreError(f"{where}: no space left on the device; free some, or choose another --root") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise StoreError(
                f"{where}: permission denied ({error.strerror}); choose a --root that this user can write"
            ) from error
        raise StoreError(f"{where}: {error.strerror or error}") from error


class Listed(NamedTuple):
    """A published name.

    Attributes:
        published: the Unix time at which it was published.
        version: changes with the content.
        sha256: of its content, in hexadecimal; empty if the content would have to be read for it.
        crc32c: of an object, as the service writes it; of a file none.
    """

    name: str
    bytes: int
    published: float
    version: str
    sha256: str = ""
    crc32c: str = ""


class Store(ABC):
    """A store; names are relative, with ``/`` between their parts.

    A method that reads raises :class:`StoreError` if the name is not there or cannot be read, and
    :class:`ArtifactError` if it is another object by now than ``found`` or ``version`` says, as :meth:`find` or
    :meth:`listing` returned it. A method that writes raises :class:`StoreError` if it cannot.

    Attributes:
        uri: the root as a user would write it.
        scratch: a folder on this machine, for what is not published.
        beside: a folder on this machine for files that are for people and for this machine alone, like drawn samples.
        parallel: how many objects may be fetched at once.
    """

    uri: str
    scratch: Path
    beside: Path
    parallel: int = 1

    @abstractmethod
    def where(self, name: str) -> str:
        """Return a name as a user would write it, a path or gs://bucket/prefix/name; it need not exist.

        Raises:
            ArtifactError: the name leads out of the store.
        """

    @abstractmethod
    def local(self, name: str, found: Listed | None = None) -> Path:
        """Return a local file with the content of a published name, for reading only.

        In a folder it is the file itself, which need not be there. Of an object it is a copy in the cache, checked
        against the object's checksum, which stays for as long as this process lives. With ``found``, the object is not
        looked up again.
        """

    def locals(self, names: Iterable[str]) -> list[Path]:
        """Return local files of several names; objects are looked up together, and fetched several at a time."""
        return [self.local(name) for name in names]

    @abstractmethod
    def find(self, name: str) -> Listed | None:
        """Return a published name with its size and time; None if there is none."""

    @abstractmethod
    def sha256(self, name: str, found: Listed | None = None) -> str:
        """Return the sha256 of a published name's content, in hexadecimal; ``found`` often has it."""

    @abstractmethod
    def read_bytes(self, name: str, version: str = "") -> bytes:
        """Return the whole content of a small object."""

    @abstractmethod
    def read_range(self, name: str, start: int, length: int, version: str = "") -> bytes:
        """Return ``length`` bytes of a published name from ``start``; fewer at its end."""

    @abstractmethod
    def read_pieces(self, name: str, length: int, version: str) -> Iterator[bytes]:
        """Yield the whole content of a large object, ``length`` bytes at a time; memory is flat.

        Raises:
            StoreUnavailableError: after the last piece: what came is not what is there.
        """

    @abstractmethod
    def listing(self, prefix: str = "") -> Iterator[Listed]:
        """Yield all published names below a folder in their order, as strings are sorted; memory is flat."""

    @abstractmethod
    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders in a folder, sorted; what lies in them is not listed."""

    @abstractmethod
    def now(self) -> float:
        """Return the Unix time by the clock that dates what is published; something is written to find out."""

    @abstractmethod
    def publish_file(self, source: Path, name: str, *, replace: bool = False, flush: bool = True) -> None:
        """Publish a finished local file; ``source`` is best made in :meth:`workspace`, and may be gone afterwards.

        Args:
            source: the file.
            name: where it goes.
            replace: whether other content that is there may be overwritten.
            flush: wait until the disk has it. Without, a power cut (not a killed process) may leave a published name
                with less than its content, until :meth:`flush` was called.

        Raises:
            TakenError: the name is there with other content, and ``replace`` is not set.
        """

    @abstractmethod
    def flush(self, names: Iterable[str]) -> None:
        """Wait until the disk has files that were published without waiting; of a bucket, there is nothing to do."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a name; one that is not there is no error."""

    def exists(self, name: str) -> bool:
        """Return whether a name was published."""
        return self.find(name) is not None

    def list(self, prefix: str = "") -> list[str]:
        """Return the names of :meth:`listing`."""
        return [found.name for found in self.listing(prefix)]

    def read_json(self, name: str, remedy: str = digests.REMEDY) -> Json:
        """Return a JSON document, verified against the digest that it carries.

        Args:
            name: what is read.
            remedy: what to do if it is damaged.

        Raises:
            ArtifactError: it is not JSON, or not what was published under this name.
        """
        return self.read_document(name, remedy)[0]

    def read_document(self, name: str, remedy: str = digests.REMEDY) -> tuple[Json, str]:
        """Return what :meth:`read_json` does, with the digest, which is empty for anything but an object."""
        return digests.read_document(name, self.where(name), self.read_bytes(name), remedy)

    def publish_bytes(self, name: str, data: bytes, *, replace: bool = False, flush: bool = True) -> None:
        """Publish bytes under a name; see :meth:`publish_file`."""
        with self.workspace("publish") as folder:
            temporary = folder / "object"
            with explained("write", self.where(name)):
                temporary.write_bytes(data)
            self.publish_file(temporary, name, replace=replace, flush=flush)

    def publish_json(self, name: str, document: Json, *, replace: bool = False, flush: bool = True) -> None:
        """Publish a JSON document, indented, keys in the order given; an object carries a digest of itself."""
        published = digests.with_digest(name, document) if is_object(document) else document
        content = (json.dumps(published, indent=2, allow_nan=False) + "\n").encode()
        self.publish_bytes(name, content, replace=replace, flush=flush)

    def own_folder(self, *parts: str) -> Path:
        """Make a folder below :attr:`scratch`, and return it; only this user can enter the scratch folder.

        What is in there (logs, the database of a server and its secret, unpacked archives) may be readable by itself.
        """
        folder = self.scratch.joinpath(*parts)
        with explained("write to the store", self.uri):
            _make(self.scratch)
            found = self.scratch.stat()
            if stat.S_IMODE(found.st_mode) != _PRIVATE and found.st_uid == os.geteuid():
                self.scratch.chmod(_PRIVATE)
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    @contextlib.contextmanager
    def workspace(self, label: str) -> Generator[Path, None, None]:
        """Make a temporary folder on this machine that is gone when the body ends.

        Of a folder, it is on the store's own file system.
        """
        with contextlib.ExitStack() as stack:
            parent = self.own_folder(_TEMPORARY)
            with explained("write to the store", self.uri):
                folder = stack.enter_context(locks.temporary_folder(parent, label))
            yield folder

    def sweep(self) -> int:
        """Remove the temporary folders that killed processes left; return their number."""
        return locks.sweep(self.scratch / _TEMPORARY)

    @contextlib.contextmanager
    def using(self, folders: Iterable[str]) -> Generator[None, None, None]:
        """Keep data sets and runs, by their names in the store, from being deleted while the body runs.

        In a folder this holds for every process that has the folder, in a bucket for those of this machine. Where one
        is being deleted just now, its end is waited for.
        """
        with contextlib.ExitStack() as stack:
            for folder in sorted(set(folders)):
                with explained("write to the store", self.uri):
                    stack.enter_context(locks.locked(self._use_of(folder), shared=True))
            yield

    @contextlib.contextmanager
    def alone(self, folder: str) -> Generator[bool, None, None]:
        """Keep a data set or a run from being used while the body runs; yields False where a process uses it."""
        with contextlib.ExitStack() as stack:
            with explained("write to the store", self.uri):
                free = stack.enter_context(locks.locked(self._use_of(folder), wait=False))
            yield free is not None

    def _use_of(self, folder: str) -> Path:
        return self.own_folder("uses") / digests.of_bytes(folder.encode())[:32]

    def _require_inside(self, name: str) -> None:
        if name.startswith("/") or ".." in name.split("/"):
            raise ArtifactError(f"the name {name!r} leads out of the store {self.uri}")


def _make(folder: Path) -> None:
    """Make a folder and those that it lies in; of these, scratch folders are for their owner alone."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=_PRIVATE if folder.name == SCRATCH else 0o777, exist_ok=True)
