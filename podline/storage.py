"""The store: one root where everything that Podline makes lives, every part of it published whole.

There are two kinds of place: a folder (:class:`FolderStore`, here) and a bucket (:mod:`podline.buckets`). Both promise
the same: a name either does not exist or has its full content; an existing name is never overwritten by something else
unless the caller says ``replace``; what is read is what was published, or an error.

Code that needs a file, to map it into memory or to hand it to a library, asks for :meth:`Store.local`; for messages
there is :meth:`Store.where`; all else goes through names.

Beside what is published, a store has a *scratch* folder on this machine, for logs, locks and temporary files: a
folder's is ``.podline`` below it. Temporary files are in ``tmp`` there; what a killed process left is removed by the
next one (:meth:`Store.sweep`).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
import socket
import stat
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from podline import digests, document_digest
from podline.errors import ArtifactError, SettingsError, StoreError, TakenError

BUCKET_SCHEME = "gs://"
_SCRATCH, _TEMPORARY = ".podline", "tmp"
# Of the scratch folder: for its owner alone.
_PRIVATE = 0o700
# What file systems without hard links say; on them, two who write a name at once are not told apart.
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


@contextlib.contextmanager
def explained(action: str, path: Path | str) -> Iterator[None]:
    """Turns an :class:`OSError` in its body into a :class:`StoreError` of one clear line.

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


def open_store(root: str | Path) -> Store:
    """The store at a root.

    Args:
        root: a folder, which is made when the first thing is published; or ``gs://bucket`` or ``gs://bucket/prefix``.

    Raises:
        SettingsError: the root is neither.
    """
    if str(root).startswith(BUCKET_SCHEME):
        # Google's client takes a second to import, for those alone who use it.
        from podline.buckets import open_bucket_store  # noqa: PLC0415

        return open_bucket_store(str(root))
    if "://" in str(root) or str(root).startswith("gs:"):
        raise SettingsError(f"--root {root}: a store is a folder or gs://bucket/prefix")
    return FolderStore(Path(root).expanduser().absolute())


class Listed(NamedTuple):
    """A published name.

    Attributes:
        name: as it was published.
        bytes: its size.
        published: the Unix time at which it was.
        version: another content has another one.
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
    """What both kinds of store promise. Names are relative, with ``/`` between their parts.

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
        """A name as a user would write it: a path, or gs://bucket/prefix/name; it need not exist.

        Raises:
            ArtifactError: the name leads out of the store.
        """

    @abstractmethod
    def local(self, name: str, found: Listed | None = None) -> Path:
        """A local file with the content of a published name, for reading only.

        In a folder it is the file itself (which need not be there, for the caller to find out); of an object it is a
        copy in the cache, checked against the object's checksum, which stays for as long as this process lives.

        Args:
            name: what is wanted.
            found: what :meth:`find` or :meth:`listing` told of it: exactly this object, which is not looked at again.

        Raises:
            ArtifactError: it is another one by now.
            StoreError: the object is not there, or cannot be read.
        """

    def locals(self, names: Iterable[str]) -> list[Path]:
        """Like :meth:`local`, of several names; objects are looked at together, and fetched several at a time."""
        return [self.local(name) for name in names]

    @abstractmethod
    def find(self, name: str) -> Listed | None:
        """A published name with its size and time; None if there is none."""

    @abstractmethod
    def sha256(self, name: str, found: Listed | None = None) -> str:
        """The sha256 of a published name's content, in hexadecimal.

        Args:
            name: whose.
            found: what :meth:`find` or :meth:`listing` told of it just now, which often has it.

        Raises:
            ArtifactError: it is another one by now.
            StoreError: it is not there or cannot be read.
        """

    @abstractmethod
    def read_bytes(self, name: str, version: str = "") -> bytes:
        """The whole content of a small object.

        Args:
            name: what is read.
            version: as :meth:`find` told; it must still be this one.

        Raises:
            ArtifactError: it has another version by now.
            StoreError: it is not there or cannot be read.
        """

    @abstractmethod
    def read_range(self, name: str, start: int, length: int, version: str = "") -> bytes:
        """Some bytes of a published name; fewer than ``length`` at its end.

        Args:
            name: what is read.
            start: the first byte.
            length: how many.
            version: as :meth:`find` told; it must still be this one.

        Raises:
            ArtifactError: it has another version by now.
            StoreError: it is not there or cannot be read.
        """

    @abstractmethod
    def read_pieces(self, name: str, length: int, version: str) -> Iterator[bytes]:
        """The whole content of a large object, ``length`` bytes at a time; memory is flat.

        Raises:
            ArtifactError: it has another version by now.
            StoreError: it is not there or cannot be read.
            DamagedTransferError: after the last piece: what came is not what is there.
        """

    @abstractmethod
    def listing(self, prefix: str = "") -> list[Listed]:
        """All published names below a folder, sorted by name."""

    @abstractmethod
    def now(self) -> float:
        """The Unix time by the clock that says when something was published, which may not be this machine's.

        Raises:
            StoreError: the store cannot be written, by which it is found out.
        """

    @abstractmethod
    def publish_file(self, source: Path, name: str, *, replace: bool = False, flush: bool = True) -> None:
        """Publishes a finished local file; ``source`` is best made in :meth:`workspace`, and may be gone afterwards.

        Args:
            source: the file.
            name: where it goes.
            replace: whether other content that is there may be overwritten.
            flush: wait until the disk has it. Without, a power cut (not a killed process) may leave a published name
                with less than its content: only for what is checked against a checksum each time before it is used.

        Raises:
            TakenError: the name is there with other content, and ``replace`` is not set.
            StoreError: it cannot be written.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Removes a name; one that is not there is no error."""

    def exists(self, name: str) -> bool:
        """Whether a name was published."""
        return self.find(name) is not None

    def list(self, prefix: str = "") -> list[str]:
        """The names of :meth:`listing`."""
        return [found.name for found in self.listing(prefix)]

    def read_json(self, name: str, remedy: str = document_digest.REMEDY) -> Any:
        """A JSON document, verified against the digest that it carries.

        Args:
            name: what is read.
            remedy: what to do if it is damaged.

        Raises:
            StoreError: it is not there or cannot be read.
            ArtifactError: it is not JSON, or not what was published under this name.
        """
        return self.read_document(name, remedy)[0]

    def read_document(self, name: str, remedy: str = document_digest.REMEDY) -> tuple[Any, str]:
        """Like :meth:`read_json`, with the digest, which is empty in documents of earlier versions."""
        return document_digest.read_with_digest(name, self.where(name), self.read_bytes(name), remedy)

    def publish_bytes(self, name: str, data: bytes, *, replace: bool = False, flush: bool = True) -> None:
        """Publishes bytes under a name; see :meth:`publish_file`.

        Raises:
            TakenError: the name is there with other content, and ``replace`` is not set.
            StoreError: it cannot be written.
        """
        with self.workspace("publish") as folder:
            temporary = folder / "object"
            with explained("write", self.where(name)):
                temporary.write_bytes(data)
            self.publish_file(temporary, name, replace=replace, flush=flush)

    def publish_json(self, name: str, document: Any, *, replace: bool = False, flush: bool = True) -> None:
        """Publishes a JSON document, indented, keys in the order given; an object carries a digest of itself."""
        told = document_digest.with_digest(name, document) if isinstance(document, dict) else document
        content = (json.dumps(told, indent=2, allow_nan=False) + "\n").encode()
        self.publish_bytes(name, content, replace=replace, flush=flush)

    def own_folder(self, *parts: str) -> Path:
        """A folder below :attr:`scratch`, which is made; nobody but this user can enter the scratch folder.

        What is in there (logs, the database of a server and its secret, unpacked archives) may be readable by itself,
        also in a folder that an earlier release made.

        Raises:
            StoreError: it cannot be written.
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
    def workspace(self, label: str) -> Iterator[Path]:
        """A temporary folder on this machine (in a folder, on the store's own file system), gone when its body ends.

        Its name says host and process, so that :meth:`sweep` can tell a dead process's folder from a living one's.
        """
        name = f"{label}~{socket.gethostname()}~{os.getpid()}~{uuid.uuid4().hex[:12]}"
        folder = self.own_folder(_TEMPORARY, name)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def private(self, label: str) -> Iterator[FolderStore]:
        """A store of its own in a temporary folder (see :meth:`workspace`), gone when its body ends."""
        with self.workspace(label) as folder:
            yield FolderStore(folder)

    def sweep(self) -> int:
        """Removes the temporary folders of processes that ended without cleaning up on this host; returns how many."""
        removed = 0
        for folder in sorted(self._temporary.iterdir()) if self._temporary.is_dir() else []:
            parts = folder.name.split("~")
            if len(parts) == 4 and parts[1] == socket.gethostname() and not _alive(int(parts[2])):
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
        return removed

    @property
    def _temporary(self) -> Path:
        return self.scratch / _TEMPORARY

    def _require_inside(self, name: str) -> None:
        if name.startswith("/") or ".." in name.split("/"):
            raise ArtifactError(f"the name {name!r} leads out of the store {self.uri}")


def _make(folder: Path) -> None:
    """Makes a folder and those that it lies in; of these, scratch folders are for their owner alone."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=_PRIVATE if folder.name == _SCRATCH else 0o777, exist_ok=True)


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


class FolderStore(Store):
    """A folder as the store: a name is published by a rename on the same file system."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.uri = str(root)
        self.scratch = root / _SCRATCH
        self.beside = root

    def where(self, name: str) -> str:
        """A name's path; see :meth:`Store.where`."""
        return str(self.local(name))

    def local(self, name: str, found: Listed | None = None) -> Path:
        """The file of a name; see :meth:`Store.local`."""
        del found  # whoever reads the file finds out
        self._require_inside(name)
        return self.root / name

    def find(self, name: str) -> Listed | None:
        """See :meth:`Store.find`."""
        try:
            facts = self.local(name).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _listed(name, facts) if stat.S_ISREG(facts.st_mode) else None

    def sha256(self, name: str, found: Listed | None = None) -> str:
        """See :meth:`Store.sha256`; reads all of the file."""
        del found
        with explained("read", self.local(name)):
            return digests.of_file(self.local(name))

    def read_bytes(self, name: str, version: str = "") -> bytes:
        """See :meth:`Store.read_bytes`."""
        return b"".join(self._read(name, [-1], version))

    def read_range(self, name: str, start: int, length: int, version: str = "") -> bytes:
        """See :meth:`Store.read_range`."""
        return b"".join(self._read(name, [length], version, start))

    def read_pieces(self, name: str, length: int, version: str) -> Iterator[bytes]:
        """See :meth:`Store.read_pieces`."""
        return self._read(name, itertools.repeat(length), version)

    def _read(self, name: str, lengths: Iterable[int], version: str, start: int = 0) -> Iterator[bytes]:
        with explained("read", self.local(name)), self.local(name).open("rb") as stream:
            found = _listed(name, os.fstat(stream.fileno())).version
            if version and found != version:
                raise ArtifactError(f"{self.where(name)} is version {found} vs {version} when it was looked at first")
            stream.seek(start)
            yield from itertools.takewhile(bool, map(stream.read, lengths))

    def listing(self, prefix: str = "") -> list[Listed]:
        """See :meth:`Store.listing`."""
        top = self.local(prefix) if prefix else self.root
        with explained("list", top):
            found = [self.find(name) for name in sorted(self._names(top))]
        return [facts for facts in found if facts is not None]

    def _names(self, top: Path) -> Iterator[str]:
        """The files below a folder, without those of processes at work; folders of theirs come and go."""
        for folder, folders, files in os.walk(top, onerror=_unless_gone):
            here = Path(folder).relative_to(self.root)
            folders[:] = [each for each in folders if here / each != Path(_SCRATCH)]
            yield from ((here / file).as_posix() for file in files)

    def now(self) -> float:
        """By a file: the folder may be another machine's; see :meth:`Store.now`."""
        with self.workspace("clock") as folder:
            return folder.stat().st_mtime

    def publish_file(self, source: Path, name: str, *, replace: bool = False, flush: bool = True) -> None:
        """Moves the file; see :meth:`Store.publish_file`."""
        target = self.local(name)
        with explained("write", target):
            if not replace and _has_same(target, source):
                return
            _make_folder(target.parent)
            if flush:
                with source.open("rb") as stream:
                    os.fsync(stream.fileno())
            settle = Path.replace if replace else _appear
            try:
                settle(source, target)
            except FileExistsError:
                if not _has_same(target, source):  # somebody else was faster
                    raise
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
                shutil.copyfile(source, beside)
                settle(beside, target)
            if flush:
                _sync_folder(target.parent)

    def delete(self, name: str) -> None:
        """See :meth:`Store.delete`."""
        with explained("delete", self.local(name)):
            self.local(name).unlink(missing_ok=True)


def _has_same(target: Path, source: Path) -> bool:
    """Whether a file is there with the content of another.

    Raises:
        TakenError: it is there with other content.
    """
    if not target.is_file():
        return False
    if digests.of_file(target) != digests.of_file(source):
        raise TakenError(f"{target} is already there with other content; delete it, or choose another --root")
    return True


def _appear(source: Path, target: Path) -> None:
    """Gives a file a name that nobody has: of several at once, one succeeds, and the others get FileExistsError."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        source.replace(target)
    else:
        source.unlink()


def _listed(name: str, facts: os.stat_result) -> Listed:
    return Listed(name, facts.st_size, facts.st_mtime, f"{facts.st_ino}.{facts.st_mtime_ns}")


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _make_folder(folder: Path) -> None:
    """Makes a folder, and those above it, so that a power cut takes none of them away again."""
    made = list(itertools.takewhile(lambda above: not above.exists(), (folder, *folder.parents)))
    folder.mkdir(parents=True, exist_ok=True)
    for each in made:
        _sync_folder(each.parent)


def _sync_folder(folder: Path) -> None:
    """Makes a rename durable: after a power cut the new name is there, or the old one, never neither."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
