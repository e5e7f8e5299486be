"""The store: one root where everything that Podline makes lives, every part of it published whole.

What a store promises: a name either does not exist or has its full content (written under a temporary name, flushed to
the disk, then renamed); an existing name is never overwritten by something else unless the caller says ``replace``.

Temporary files live in ``.podline/tmp`` under the root, on the same file system. What a killed process left there is
removed by the next one (:meth:`Store.sweep`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from podline import digests
from podline.errors import ArtifactError, SettingsError, StoreError

_TEMPORARY = ".podline/tmp"


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
        root: a folder; it is made when the first thing is published.

    Raises:
        SettingsError: the root is not a folder's path.
    """
    if "://" in str(root):
        raise SettingsError(f"--root {root}: only a folder can be the store in this version; give a path")
    return Store(Path(root).expanduser().absolute())


class Store:
    """A folder as the store. Names are relative, with ``/`` between their parts."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def uri(self) -> str:
        """The root as a user would write it."""
        return str(self.root)

    def path(self, name: str) -> Path:
        """Where a published name can be read; it need not exist.

        Raises:
            ArtifactError: the name leads out of the store.
        """
        if name.startswith("/") or ".." in name.split("/"):
            raise ArtifactError(f"the name {name!r} leads out of the store {self.root}")
        return self.root / name

    def exists(self, name: str) -> bool:
        """Whether a name was published."""
        return self.path(name).is_file()

    def read_bytes(self, name: str) -> bytes:
        """The whole content of a small object.

        Raises:
            StoreError: it is not there or cannot be read.
        """
        with explained("read", self.path(name)):
            return self.path(name).read_bytes()

    def read_json(self, name: str) -> Any:
        """A JSON document.

        Raises:
            StoreError: it is not there or cannot be read.
            ArtifactError: it is not JSON.
        """
        try:
            return json.loads(self.read_bytes(name))
        except ValueError as error:
            raise ArtifactError(
                f"{self.path(name)} is not valid JSON ({error}); delete it to have it made again"
            ) from error

    def list(self, prefix: str = "") -> list[str]:
        """All published names below a folder, sorted."""
        top = self.path(prefix) if prefix else self.root
        found = (path for path in top.rglob("*") if path.is_file())
        names = (path.relative_to(self.root).as_posix() for path in found)
        return sorted(name for name in names if not name.startswith(".podline/"))

    def publish_bytes(self, name: str, data: bytes, *, replace: bool = False) -> Path:
        """Publishes bytes under a name.

        Raises:
            ArtifactError: the name is there with other content, and ``replace`` is not set.
            StoreError: it cannot be written.
        """
        with self.workspace("publish") as folder:
            temporary = folder / "object"
            with explained("write", self.path(name)):
                temporary.write_bytes(data)
            return self.publish_file(temporary, name, replace=replace)

    def publish_json(self, name: str, document: Any, *, replace: bool = False) -> Path:
        """Publishes a JSON document, indented, keys in the order given."""
        return self.publish_bytes(
            name, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode(), replace=replace
        )

    def publish_file(self, source: Path, name: str, *, replace: bool = False, flush: bool = True) -> Path:
        """Moves a finished local file to a name; ``source`` is best made in :meth:`workspace`, where this is a rename.

        Args:
            source: the file.
            name: where it goes.
            replace: whether other content that is there may be overwritten.
            flush: wait until the disk has it. Without, a power cut (not a killed process) may leave a published name
                with less than its content: only for what is checked against a checksum each time before it is used.

        Raises:
            ArtifactError: the name is there with other content, and ``replace`` is not set.
            StoreError: it cannot be written.
        """
        target = self.path(name)
        with explained("write", target):
            if not replace and target.is_file():
                if digests.of_file(target) == digests.of_file(source):
                    return target
                raise ArtifactError(
                    f"{target} is already there with other content; delete it, or choose another --root"
                )
            target.parent.mkdir(parents=True, exist_ok=True)
            if flush:
                with source.open("rb") as stream:
                    os.fsync(stream.fileno())
            try:
                source.replace(target)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
                shutil.copyfile(source, beside)
                beside.replace(target)
            if flush:
                _sync_folder(target.parent)
        return target

    def delete(self, name: str) -> None:
        """Removes a name; one that is not there is no error."""
        with explained("delete", self.path(name)):
            self.path(name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def workspace(self, label: str) -> Iterator[Path]:
        """A temporary folder on the store's own file system, gone when its body ends.

        Its name says host and process, so that :meth:`sweep` can tell a dead process's folder from a living one's.
        """
        folder = self.root / _TEMPORARY / f"{label}~{socket.gethostname()}~{os.getpid()}~{uuid.uuid4().hex[:12]}"
        with explained("write to the store", self.root):
            folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def private(self, label: str) -> Iterator[Store]:
        """A store of its own in a temporary folder (see :meth:`workspace`), gone when its body ends."""
        with self.workspace(label) as folder:
            yield Store(folder)

    def sweep(self) -> int:
        """Removes the temporary folders of processes that ended without cleaning up on this host; returns how many."""
        removed = 0
        top = self.root / _TEMPORARY
        for folder in sorted(top.iterdir()) if top.is_dir() else []:
            parts = folder.name.split("~")
            if len(parts) == 4 and parts[1] == socket.gethostname() and not _alive(int(parts[2])):
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
        return removed


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """Makes a rename durable: after a power cut the new name is there, or the old one, never neither."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
