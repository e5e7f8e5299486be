"""What a disk may hold after a power cut: copies of a store's folder, made while it is being written.

Python's file operations are watched. What was not synced may be lost: of a file its content, since it was synced last;
of a folder its entries, since it was synced last. A replaced or deleted file whose folder was not synced may be back.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from podline.store import digests
from podline.store.folder import FolderStore

STATES = ("lost", "empty", "zeros", "short")
"""What becomes of what was not synced: the entries are lost, or they stay, and the content is none, zeros or half."""


class Cut(NamedTuple):
    """A power cut.

    Attributes:
        folder: the store as it may be then, one for each of the :data:`STATES`.
        broken: what was published, synced, and is not as it was.
    """

    folder: Path
    broken: list[str]


class PowerCuts:
    """Watches a store's folder, and cuts the power before some of the operations on it, in copies.

    Attributes:
        operations: how many there were.
        cuts: by state.
    """

    def __init__(self, root: Path, copies: Path, at: Callable[[int], bool], patch: pytest.MonkeyPatch) -> None:
        """Begins to watch; what is there already is on the disk.

        Args:
            root: of the store.
            copies: a folder on the same file system.
            at: whether the power is cut before the operation of a number, from 1.
            patch: undoes it all.
        """
        self.operations, self.cuts = 0, {state: list[Cut]() for state in STATES}
        self._root, self._copies, self._at = root, copies, at
        self._attic = copies / "attic"
        self._attic.mkdir(parents=True)
        self._lock = threading.RLock()
        self._entries: dict[Path, dict[str, int]] = {}
        self._synced: dict[int, tuple[int, int]] = {}
        self._published: dict[str, str] = {}
        for path in (root, *root.rglob("*")) if root.is_dir() else ():
            self._note(path, path.stat())
        for name in ("replace", "rename", "link", "unlink", "remove"):
            patch.setattr(os, name, self._watched(getattr(os, name)))
        patch.setattr(os, "fsync", self._syncing(os.fsync))
        patch.setattr(FolderStore, "publish_file", self._publishing(FolderStore.publish_file))

    def _watched(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*paths: Any, **options: Any) -> Any:
            ours = [Path(path) for path in paths if self._root in Path(path).parents]
            if options or not ours:
                return operation(*paths, **options)
            with self._lock:
                self._operate()
                for gone in ours:
                    if gone.is_file():  # keeps its inode from being given to another file
                        kept = self._attic / str(gone.stat().st_ino)
                        if not kept.exists():
                            _LINK(gone, kept)
                return operation(*paths)

        return watched

    def _syncing(self, fsync: Callable[[int], None]) -> Callable[[int], None]:
        def syncing(descriptor: int) -> None:
            with self._lock:
                self._operate()
                fsync(descriptor)
                self._note(Path(f"/proc/self/fd/{descriptor}").readlink(), os.fstat(descriptor))

        return syncing

    def _note(self, path: Path, facts: os.stat_result) -> None:
        if stat.S_ISDIR(facts.st_mode):
            self._entries[path] = {each.name: each.stat().st_ino for each in path.iterdir()}
        else:
            self._synced[facts.st_ino] = (facts.st_size, facts.st_mtime_ns)

    def _publishing(self, publish: Callable[..., None]) -> Callable[..., None]:
        def publishing(
            store: FolderStore, source: Path, name: str, *, replace: bool = False, flush: bool = True
        ) -> None:
            publish(store, source, name, replace=replace, flush=flush)
            with self._lock:
                if store.root == self._root and flush:
                    self._published[name] = digests.of_file(store.local(name))
                else:
                    self._published.pop(name, None)

        return publishing

    def _operate(self) -> None:
        self.operations += 1
        if self._at(self.operations):
            for state in STATES:
                folder = self._copies / f"{self.operations}-{state}"
                if state == "lost":
                    self._copy_synced(self._root, folder)
                else:
                    self._copy_present(folder, state)
                self.cuts[state].append(Cut(folder, list(self._broken(folder))))

    def _broken(self, folder: Path) -> list[str]:
        return [
            name
            for name, sha256 in self._published.items()
            if (self._root / name).exists()
            and not ((folder / name).is_file() and digests.of_file(folder / name) == sha256)
        ]

    def _copy_synced(self, source: Path, target: Path) -> None:
        """Only entries that were there when their folder was synced last, even if they were replaced since."""
        target.mkdir()
        for name, inode in self._entries.get(source, {}).items():
            here = source / name
            if here.is_dir():
                self._copy_synced(here, target / name)
            elif here.is_file() and here.stat().st_ino == inode:
                self._copy_file(here, target / name, "empty")
            elif (self._attic / str(inode)).exists():
                self._copy_file(self._attic / str(inode), target / name, "empty")

    def _copy_present(self, target: Path, state: str) -> None:
        target.mkdir()
        # Without temporary files, which come and go meanwhile, and locks that nobody holds.
        kept = [top for top in self._root.iterdir() if top.name != ".podline"]
        for path in sorted(path for top in kept for path in (top, *top.rglob("*"))):
            place = path.relative_to(self._root)
            if path.is_dir():
                (target / place).mkdir()
            elif path.is_file():
                self._copy_file(path, target / place, state)

    def _copy_file(self, source: Path, target: Path, state: str) -> None:
        facts, content = source.stat(), source.read_bytes()
        synced = self._synced.get(facts.st_ino, (0, 0))
        if synced == (facts.st_size, facts.st_mtime_ns):
            shutil.copyfile(source, target)
            return
        safe = min(synced[0], len(content))
        rest = {
            "empty": b"",
            "zeros": bytes(len(content) - safe),
            "short": content[safe:][: (len(content) - safe) // 2],
        }
        target.write_bytes(content[:safe] + rest[state])


_LINK = os.link
