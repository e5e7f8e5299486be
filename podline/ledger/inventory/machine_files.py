"""Lists and deletes a store's files on this machine: cached sources, runs not yet uploaded, lock files, logs."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from podline.data.rawfiles import delete_unused, unpacked
from podline.data.versions.fingerprint import source_cache
from podline.store import locks
from podline.store.contract import Store, explained
from podline.store.folder import mirror_of

_SPEC = ".spec.json"  # of a job of Slurm or Ray; the job's events are in .jsonl
_ENDINGS = (".lock", ".log", ".jsonl", _SPEC)
_QUEUED_SECONDS = 30 * 86_400  # a job reads its spec when it starts, after it waited in a queue


@dataclass(frozen=True)
class MachineFiles:
    """Files on this machine that Podline can create again, or a training that was not uploaded.

    Attributes:
        name: the path of the files' folder.
        kind: kind of the files, such as ``a cached source``.
        bytes: total size of the files.
        touched: Unix time at which the files were last used, by this machine's clock.
        delete_unused: called with ``delete``, whether to delete the files; returns False, without deleting, if a
            running process uses them.
    """

    name: str
    kind: str
    bytes: int
    touched: float
    delete_unused: Callable[..., bool]

    @property
    def in_use(self) -> bool:
        """Return whether a running process uses the files."""
        return not self.delete_unused(delete=False)

    def remove(self) -> bool:
        """Delete the files unless a running process uses them; return whether they were deleted.

        Raises:
            StoreError: the files cannot be deleted.
        """
        return self.delete_unused(delete=True)


def cached_sources(store: Store) -> list[MachineFiles]:
    """Return the unpacked and decoded sources in the cache of conversions; none if the cache is another user's."""
    found = list[MachineFiles]()
    with contextlib.suppress(PermissionError):
        for folder in unpacked(source_cache(store)):
            with contextlib.suppress(FileNotFoundError):  # a conversion moves or deletes it now
                facts = [path.stat() for path in folder.rglob("*") if path.is_file()]
                touched, remove = folder.stat().st_mtime, partial(delete_unused, folder)
                found.append(MachineFiles(str(folder), "a cached source", _size(facts), touched, remove))
    return found


def machine_files(store: Store, before: float) -> list[MachineFiles]:
    """Return a store's caches, run copies, locks and logs on this machine that were last used before a Unix time."""
    found = [*cached_sources(store), *_mirrors(store), *_old_files(store, before)]
    return [one for one in found if one.touched < before]


def _mirrors(store: Store) -> Iterable[MachineFiles]:
    near = mirror_of(store)
    for name in near.folders("runs"):
        if facts := [near.local(found.name).stat() for found in near.listing(name)]:
            touched, remove = max(each.st_mtime for each in facts), partial(_delete_mirror, store, name)
            yield MachineFiles(near.where(name), "a run that is not uploaded", _size(facts), touched, remove)


def _old_files(store: Store, before: float) -> Iterable[MachineFiles]:
    """Yield, per folder, the lock files, stage logs and files of jobs that were last used before a Unix time."""
    for name, kind in (("locks", "lock files"), ("uses", "lock files"), ("logs", "logs of stages")):
        folder = store.scratch / name
        with contextlib.suppress(OSError):
            facts = {path: path.stat() for path in sorted(folder.iterdir()) if path.name.endswith(_ENDINGS)}
            used = defaultdict[str, float](float)
            for path, each in facts.items():
                waits = _QUEUED_SECONDS if path.name.endswith(_SPEC) else 0
                used[_owner(path)] = max(used[_owner(path)], each.st_mtime + waits)
            if old := {path: each for path, each in facts.items() if used[_owner(path)] < before}:
                touched = max(each.st_mtime for each in old.values())
                yield MachineFiles(str(folder), kind, _size(old.values()), touched, partial(_delete_files, [*old]))


def _owner(path: Path) -> str:
    """Return what the files of one stage or job have in common; the name of a lock file."""
    return path.name if path.suffix == ".lock" else path.name.partition(".")[0]


def _size(facts: Iterable[os.stat_result]) -> int:
    return sum(each.st_size for each in facts)


def _delete_mirror(store: Store, name: str, *, delete: bool) -> bool:
    with store.alone(name) as free, explained("delete", mirror_of(store).where(name)):
        if free and delete:
            shutil.rmtree(mirror_of(store).local(name))
    return bool(free)


def _delete_files(paths: list[Path], *, delete: bool) -> bool:
    for path in paths if delete else ():
        with explained("delete", path), locks.locked(path, wait=False) as free:
            if free:
                path.unlink()
    return True
