"""A store in a folder."""

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
from contextlib import AbstractContextManager
from pathlib import Path

from podline.base.errors import ArtifactError, StoreError, TakenError
from podline.base.progress import alive
from podline.base.stopwatch import measured
from podline.settings.machine import load
from podline.store import digests, locks
from podline.store.cache import scratch_of
from podline.store.contract import MARKER, SCRATCH, Listed, Store, entered, explained
from podline.store.retries import retried

_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
# Errors of file systems without hard links.
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
# Number of lock files for the replacement of names, which share them by hash.
_GUARDS = 64


class FolderStore(Store):
    """A store in a folder, which publishes a name by a rename on the same file system."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.uri = str(root)
        own = root / SCRATCH
        place = own if os.access(own, os.F_OK) else root
        self.read_only = os.access(place, os.F_OK) and not os.access(place, os.W_OK | os.X_OK, effective_ids=True)
        self.scratch = scratch_of(self.uri, load().store.cache) if self.read_only else own
        self.beside = root

    def where(self, name: str) -> str:
        """Return the path of a name; see :meth:`Store.where`."""
        return str(self.local(name))

    def local(self, name: str, found: Listed | None = None) -> Path:
        """Return the path of a name; see :meth:`Store.local`."""
        del found  # opening the file shows whether it exists
        self._require_inside(name)
        return self.root / name

    @measured("store")
    @retried
    def find(self, name: str) -> Listed | None:
        """See :meth:`Store.find`."""
        path = self.local(name)
        with explained("read", path), _if_there():
            facts = path.stat()
            return _listed(name, facts) if stat.S_ISREG(facts.st_mode) else None
        return None

    @measured("store")
    @retried
    def sha256(self, name: str, found: Listed | None = None) -> str:
        """See :meth:`Store.sha256`; this reads the whole file."""
        del found
        with explained("read", self.local(name)):
            return digests.of_file(self.local(name))

    def read_bytes(self, name: str, version: str = "") -> bytes:
        """See :meth:`Store.read_bytes`."""
        return self.read_range(name, 0, -1, version)

    def read_pieces(self, name: str, length: int, version: str) -> Iterator[bytes]:
        """See :meth:`Store.read_pieces`."""
        starts = itertools.count(0, length)
        return itertools.takewhile(bool, (self.read_range(name, start, length, version) for start in starts))

    @measured("store")
    @retried
    def read_range(self, name: str, start: int, length: int, version: str = "") -> bytes:
        """See :meth:`Store.read_range`; a negative length reads to the end."""
        with explained("read", self.local(name)), self.local(name).open("rb") as stream:
            found = _listed(name, os.fstat(stream.fileno())).version
            if version and found != version:
                raise ArtifactError(
                    f"{self.where(name)} has version {found} now, but had {version} when it was first read; run the "
                    "command again"
                )
            stream.seek(start)
            return stream.read(length)

    def listing(self, prefix: str = "") -> Iterator[Listed]:
        """See :meth:`Store.listing`."""
        for name in self._names(f"{prefix.rstrip('/')}/" if prefix else ""):
            alive()
            if found := self.find(name):
                yield found

    def _names(self, folder: str, above: tuple[tuple[int, int], ...] = ()) -> Iterator[str]:
        """Yield the names below a folder, except in scratch folders; the folder may change meanwhile.

        Links to folders are followed, except to a folder in ``above``, given by device and inode.
        """
        here = self._inode(folder)
        for name in self._entries(folder) if here not in above else ():
            if not name.endswith("/"):
                yield from [name] if name != MARKER else ()
            elif not f"/{name}".endswith(f"/{SCRATCH}/"):
                yield from self._names(name, (*above, here))

    @retried
    def _inode(self, folder: str) -> tuple[int, int]:
        with explained("list", self.local(folder)), _if_there():
            facts = self.local(folder).stat()
            return facts.st_dev, facts.st_ino
        return 0, 0

    @retried
    def _entries(self, folder: str) -> list[str]:
        """Return the names directly in a folder, sorted; a folder's name ends in a slash."""
        path = self.local(folder)
        with explained("list", path), _if_there(), os.scandir(path) as entries:
            return sorted(folder + each.name + "/" * _is_folder(each) for each in entries)
        return []

    def folders(self, prefix: str) -> list[str]:
        """See :meth:`Store.folders`."""
        return [name.rstrip("/") for name in self._entries(f"{prefix}/") if name.endswith("/")]

    @retried
    def now(self) -> float:
        """Create a temporary folder and return its modification time; see :meth:`Store.now`."""
        with self.workspace("clock") as folder, explained("read", folder):
            return folder.stat().st_mtime

    @measured("store")
    def _publish(self, source: Path, name: str, *, replace: bool, flush: bool) -> None:
        target = self.local(name)
        if not replace and _has_same(target, source):
            return
        if flush:
            _sync(source)
        self._put(source, name, replace=replace, flush=flush)
        if flush:
            _sync(target.parent)

    @retried
    def _put(self, source: Path, name: str, *, replace: bool, flush: bool) -> None:
        target = self.local(name)
        with explained("write", target):
            try:
                self._move(source, name, replace=replace)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                with _copied_beside(target, source, flush=flush) as copy:
                    self._move(copy, name, replace=replace)

    def _move(self, source: Path, name: str, *, replace: bool) -> None:
        """Move a file to a name; succeed if the name already has the same content."""
        target, version = self.local(name), _listed(name, source.stat()).version
        try:
            _into_folder(Path.replace if replace else self._appear, source, target)
        except OSError as error:
            there = self.find(name)
            if there is None or (there.version != version and not isinstance(error, FileExistsError)):
                raise
            if there.version == version:  # the server moved it, but its response was lost
                source.unlink(missing_ok=True)
            elif not _has_same(target, source):  # another process was faster
                raise

    def _appear(self, source: Path, target: Path) -> None:
        """Move a file to a free name; if several processes try, one succeeds and the others get FileExistsError."""
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with self._guard("names.lock"):
                if target.exists():
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
                source.replace(target)
        else:
            source.unlink()

    def _guard(self, name: str) -> AbstractContextManager[object]:
        return entered(self.uri, lambda: locks.locked(self.own_folder("locks") / name))

    @measured("store")
    def flush(self, names: Iterable[str]) -> None:
        """See :meth:`Store.flush`."""
        folders = set[Path]()
        for path in map(self.local, names):
            folders.add(path.parent)
            _sync(path)
            alive()
        for folder in folders:
            _sync(folder)

    @measured("store")
    def _swap(self, source: Path | None, name: str, version: str, *, flush: bool) -> str:
        target = self.local(name)
        if source and flush:
            _sync(source)
        with self._guard(f"swap-{zlib.crc32(name.encode()) % _GUARDS}.lock"):
            found = self.find(name)
            if (found.version if found else "") != version:
                if source and not _has_same(target, source):
                    raise TakenError(f"{target} no longer exists: another process deleted it; run the command again")
            elif source:
                self._put(source, name, replace=True, flush=flush)
                found = self.find(name)
            else:
                self._delete(name, version)
        if source and flush:
            _sync(target.parent)
        return found.version if source and found else ""

    @retried
    def _delete(self, name: str, version: str) -> None:
        """Delete the file and the parent folders that become empty; see :meth:`Store.delete`."""
        self.require_writable()
        path, found = self.local(name), self.find(name) if version else None
        if found and found.version != version:
            return
        with explained("delete", path):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a non-empty folder ends the loop
            for folder in itertools.takewhile(self.root.__ne__, path.parents):
                folder.rmdir()


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and Path(entry).is_dir())


@contextlib.contextmanager
def _if_there() -> Generator[None, None, None]:
    """Suppress errors in the body about a file or folder that was deleted, or a link to nothing or to itself."""
    try:
        yield
    except OSError as error:
        if error.errno not in _GONE:
            raise


@retried
def _has_same(target: Path, source: Path) -> bool:
    """Return whether a file exists and has the same content as ``source``.

    Raises:
        TakenError: the file exists with other content.
    """
    with explained("read", target):
        if not target.is_file():
            return False
        is_same = digests.of_file(target) == digests.of_file(source)
    if not is_same:
        raise TakenError(f"{target} already exists with other content; delete it, or choose another --root")
    return True


@contextlib.contextmanager
def _copied_beside(target: Path, source: Path, *, flush: bool) -> Generator[Path, None, None]:
    """Yield a copy of ``source`` next to ``target``, so on the same file system; delete it if it is not moved."""
    copy = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        _into_folder(shutil.copyfile, source, copy)
        if flush:
            _sync(copy)
        yield copy
    finally:
        with contextlib.suppress(OSError):  # an earlier error says more
            copy.unlink()


def _into_folder(settle: Callable[[Path, Path], object], source: Path, target: Path) -> None:
    """Create the target's folder and call ``settle(source, target)``; retry while others delete the empty folder."""
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
    """Create a folder and its parents, and flush them, so that they survive a power cut."""
    made = list(itertools.takewhile(lambda above: not above.exists(), (folder, *folder.parents)))
    folder.mkdir(parents=True, exist_ok=True)
    for each in made:
        try:
            _sync(each.parent)
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # another process has deleted the folder meanwhile
                raise error.__cause__ from None
            raise


@retried
def _sync(path: Path) -> None:
    """Flush a file's content or a folder's entries, so that after a power cut either the old or the new name exists."""
    with explained("write", path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def mirror_of(store: Store) -> FolderStore:
    """Return the local store in which a run is written while it is uploaded to ``store``."""
    return FolderStore(store.scratch / "mirror")


@contextlib.contextmanager
def temporary_store(store: Store, label: str) -> Generator[FolderStore, None, None]:
    """Yield a store in a temporary folder of another store; delete it after the body."""
    with store.workspace(label) as folder:
        yield FolderStore(folder)
