"""A folder as the store."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import stat
import uuid
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path

from podline.errors import ArtifactError, TakenError
from podline.progress import alive
from podline.stopwatch import measured
from podline.store import digests, locks
from podline.store.contract import SCRATCH, Listed, Store, explained

# Errors of file systems without hard links, where two processes may write one name at once.
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
# Number of locks under which names are compared and replaced.
_GUARDS = 64


class FolderStore(Store):
    """A folder as the store: a name is published by a rename on the same file system."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.uri = str(root)
        self.scratch = root / SCRATCH
        self.beside = root

    def where(self, name: str) -> str:
        """Return a name's path; see :meth:`Store.where`."""
        return str(self.local(name))

    def local(self, name: str, found: Listed | None = None) -> Path:
        """Return the file of a name; see :meth:`Store.local`."""
        del found  # readers of the file notice a missing file
        self._require_inside(name)
        return self.root / name

    @measured("store")
    def find(self, name: str) -> Listed | None:
        """See :meth:`Store.find`."""
        path = self.local(name)
        with explained("read", path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            facts = path.stat()
            return _listed(name, facts) if stat.S_ISREG(facts.st_mode) else None
        return None

    @measured("store")
    def sha256(self, name: str, found: Listed | None = None) -> str:
        """See :meth:`Store.sha256`; this reads the whole file."""
        del found
        with explained("read", self.local(name)):
            return digests.of_file(self.local(name))

    @measured("store")
    def read_bytes(self, name: str, version: str = "") -> bytes:
        """See :meth:`Store.read_bytes`."""
        return b"".join(self._read(name, [-1], version))

    @measured("store")
    def read_range(self, name: str, start: int, length: int, version: str = "") -> bytes:
        """See :meth:`Store.read_range`."""
        return b"".join(self._read(name, [length], version, start))

    def read_pieces(self, name: str, length: int, version: str) -> Iterator[bytes]:
        """See :meth:`Store.read_pieces`."""
        return self._read(name, itertools.repeat(length), version)

    def _read(self, name: str, lengths: Iterable[int], version: str = "", start: int = 0) -> Iterator[bytes]:
        with explained("read", self.local(name)), self.local(name).open("rb") as stream:
            found = _listed(name, os.fstat(stream.fileno())).version
            if version and found != version:
                raise ArtifactError(f"{self.where(name)} is version {found} now, and was {version} at the first look")
            stream.seek(start)
            yield from itertools.takewhile(bool, map(stream.read, lengths))

    def listing(self, prefix: str = "") -> Iterator[Listed]:
        """See :meth:`Store.listing`."""
        for name in self._names(f"{prefix.rstrip('/')}/" if prefix else ""):
            alive()
            if found := self.find(name):
                yield found

    def _names(self, folder: str) -> Iterator[str]:
        """Yield the names below a folder without scratch folders, also those of stores in it; folders may change."""
        for name in self._entries(folder):
            if not name.endswith("/"):
                yield name
            elif not f"/{name}".endswith(f"/{SCRATCH}/"):
                yield from self._names(name)

    def _entries(self, folder: str) -> list[str]:
        """Return the names directly in a folder, sorted; names of folders end in a slash."""
        path = self.local(folder)
        gone = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        with explained("list", path), gone, os.scandir(path) as entries:
            return sorted(folder + each.name + "/" * each.is_dir(follow_symlinks=False) for each in entries)
        return []

    def folders(self, prefix: str) -> list[str]:
        """See :meth:`Store.folders`."""
        return [name.rstrip("/") for name in self._entries(f"{prefix}/") if name.endswith("/")]

    def now(self) -> float:
        """Create a temporary folder and read its time; see :meth:`Store.now`."""
        with self.workspace("clock") as folder:
            return folder.stat().st_mtime

    @measured("store")
    def _publish(self, source: Path, name: str, *, replace: bool, flush: bool) -> None:
        """Move the file; see :meth:`Store.publish_file`."""
        target = self.local(name)
        with explained("write", target):
            if not replace and _has_same(target, source):
                return
            if flush:
                _sync(source)
            settle = Path.replace if replace else _appear
            try:
                _into_folder(settle, source, target)
            except FileExistsError:
                if not _has_same(target, source):  # another process was faster
                    raise
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
                shutil.copyfile(source, beside)
                settle(beside, target)
            if flush:
                _sync(target.parent)

    @measured("store")
    def flush(self, names: Iterable[str]) -> None:
        """See :meth:`Store.flush`."""
        folders = set[Path]()
        for path in map(self.local, names):
            folders.add(path.parent)
            with explained("write", path):
                _sync(path)
            alive()
        for folder in folders:
            with explained("write", folder):
                _sync(folder)

    @measured("store")
    def swap(self, source: Path | None, name: str, version: str, *, flush: bool = True) -> str:
        """Compare and move under a lock; see :meth:`Store.swap`."""
        guard = self.own_folder("locks") / f"swap-{zlib.crc32(name.encode()) % _GUARDS}.lock"
        target = self.local(name)
        with explained("write", target):
            if source and flush:
                _sync(source)
            with locks.locked(guard):
                found = self.find(name)
                if (found.version if found else "") != version:
                    if source:
                        _has_same(target, source)
                elif source:
                    self._publish(source, name, replace=True, flush=False)
                    found = self.find(name)
                else:
                    self._delete(name, version)
            if source and flush:
                _sync(target.parent)
        return found.version if found else ""

    def _delete(self, name: str, version: str) -> None:
        """Remove the file and its empty parent folders; see :meth:`Store.delete`."""
        path, found = self.local(name), self.find(name) if version else None
        if found and found.version != version:
            return
        with explained("delete", path):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a non-empty folder ends the loop
            for folder in itertools.takewhile(self.root.__ne__, path.parents):
                folder.rmdir()


def _has_same(target: Path, source: Path) -> bool:
    """Return whether a file exists with the content of another.

    Raises:
        TakenError: the file exists with other content.
    """
    if not target.is_file():
        return False
    if digests.of_file(target) != digests.of_file(source):
        raise TakenError(f"{target} is already there with other content; delete it, or choose another --root")
    return True


def _appear(source: Path, target: Path) -> None:
    """Give a file a free name: among several processes one succeeds, the others get FileExistsError."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        source.replace(target)
    else:
        source.unlink()


def _into_folder(settle: Callable[[Path, Path], object], source: Path, target: Path) -> None:
    """Move a file into its folder; retry while other processes delete the folder's last file."""
    for left in reversed(range(100)):
        try:
            _make_folder(target.parent)
            settle(source, target)
        except (FileNotFoundError, FileExistsError):
            if target.exists() or not left:
                raise
        else:
            return


def _listed(name: str, facts: os.stat_result) -> Listed:
    return Listed(name, facts.st_size, facts.st_mtime, f"{facts.st_ino}.{facts.st_mtime_ns}")


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents durably, so that they survive a power cut."""
    made = list(itertools.takewhile(lambda above: not above.exists(), (folder, *folder.parents)))
    folder.mkdir(parents=True, exist_ok=True)
    for each in made:
        _sync(each.parent)


def _sync(path: Path) -> None:
    """Flush a file's content, or a folder's renames, so that after a power cut the old or the new name exists."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def mirror_of(store: Store) -> FolderStore:
    """Return the store on this machine in which runs of a bucket are trained."""
    return FolderStore(store.scratch / "mirror")


@contextlib.contextmanager
def temporary_store(store: Store, label: str) -> Generator[FolderStore, None, None]:
    """Create a store in a temporary folder of another one, and delete it after the body."""
    with store.workspace(label) as folder:
        yield FolderStore(folder)
