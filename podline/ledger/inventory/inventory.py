"""Lists data sets and runs with their sizes and with what uses them; deletes runs, and folders that nothing needs.

The whole store is listed once. Besides, only manifests, specs, and the histories of champions and versions are read,
in a bucket several at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from podline.base.errors import ArtifactError, StoreError
from podline.documents import champions, versions
from podline.documents.manifest import MANIFEST, SHARD_RECORDS, dataset_folder
from podline.settings.machine import load
from podline.stages.specs import SPEC
from podline.store.contract import Listed, Store, holding_of
from podline.store.folder import FolderStore
from podline.store.one_writer import LEASE
from podline.store.prefetch import in_order

_RUNS = "runs/"
# Names in the folder of a data set or run; a run evaluated on another split has records in a folder on-SPLIT.
_OURS = re.compile(
    rf"{re.escape(MANIFEST)}|{re.escape(SPEC)}|(on-[^/]+/)?stages/.+|({SHARD_RECORDS}|checkpoints)/.+|[^/]+\.tfrecord-.+"
)
_RECORDS = re.compile(rf"{re.escape(MANIFEST)}|(on-[^/]+/)?stages/.+")


@dataclass(frozen=True)
class Holding:
    """The folder of a data set or of a run in a store.

    Attributes:
        store: the store.
        name: name of the folder in the store.
        objects: all objects in the folder.
        whole: whether the data set has a manifest, or the run a completion record of its training.
        users: why it must be kept. For a data set: the runs that use it, ``NAME@VERSION`` if it is the newest version,
            a conversion that extends it. For a run: recipes whose champion it is or was, runs that continue it.
        needs: folders of older versions whose shards this version uses.
    """

    store: Store
    name: str
    objects: tuple[Listed, ...]
    whole: bool
    users: tuple[str, ...]
    needs: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Return the sum of the objects' sizes."""
        return sum(found.bytes for found in self.objects)

    @property
    def touched(self) -> float:
        """Return the Unix time at which its newest object was published."""
        return max(found.published for found in self.objects)

    @property
    def in_use(self) -> bool | None:
        """Return whether a running process uses the folder, see :mod:`podline.store.uses`; None if unknown.

        It is unknown in a folder of another user, whose leases cannot be read, and in a read-only store.
        """
        with contextlib.suppress(StoreError), self.store.alone(self.name) as free:
            return not free
        return None

    def remove(self) -> bool:
        """Delete the folder unless a running process uses it; return whether it was deleted.

        Manifest and completion records are deleted first, so that a partly deleted folder never looks complete.

        Raises:
            StoreError: a file cannot be deleted.
        """
        with self.store.alone(self.name) as free:
            if free:
                self.delete()
        return bool(free)

    def delete(self) -> None:
        """Delete the folder without checking whether a process uses it; see :meth:`remove`."""

        def delete(found: Listed) -> None:
            self.store.delete(found.name, found.version)

        for found in sorted(filter(_is_record, self.objects)):
            delete(found)
        # Files that identify the folder as Podline's come last, so that pruning recognizes a partly deleted holding.
        content = sorted(itertools.filterfalse(_is_record, self.objects), key=lambda found: (_is_ours(found), found))
        deque(in_order(delete, content, self.store.parallel), maxlen=0)


def holdings(store: Store, damaged: Callable[[ArtifactError], None] | None = None) -> list[Holding]:
    """Return every data set and every run of a store, by name; folders of other programs are left out.

    Args:
        store: the store.
        damaged: called with the error of each damaged document; all data sets and runs that the document could refer
            to then count as used.

    Raises:
        StoreError: the store cannot be read.
        ArtifactError: a document is damaged, and ``damaged`` is not given.
    """
    folders: dict[str, list[Listed]] = {}
    names, bases = set[str](), set[str]()
    for found in store.listing():
        parts = found.name.split("/")
        if parts[0] == versions.FOLDER:
            names.add(parts[1])
        bases.add(versions.extended(found.name))
        if folder := holding_of(found.name):
            folders.setdefault(folder, []).append(found)
    folders = {folder: objects for folder, objects in folders.items() if any(map(_is_ours, objects))}
    whole = {folder for folder, objects in folders.items() if any(found.name == _last(folder) for found in objects)}
    users, needs = defaultdict[str, list[str]](list), dict[str, tuple[str, ...]]()
    for base in bases & folders.keys():
        users[base].append("a conversion that extends it")

    def used(by: _User) -> Mapping[str, str]:
        try:
            return by.read(by.folder)
        except ArtifactError as error:
            if damaged is None:
                raise
            damaged(error)
            return {folder: by.folder.removeprefix(_RUNS) for folder in folders if folder.startswith(by.could)}

    for found in in_order(used, _possible_users(store, folders, whole, names, needs), store.parallel):
        for folder, user in found.items():
            users[folder].append(user)
    return [
        Holding(store, folder, tuple(objects), folder in whole, tuple(sorted(users[folder])), needs.get(folder, ()))
        for folder, objects in sorted(folders.items())
    ]


def _possible_users(
    store: Store,
    folders: Mapping[str, list[Listed]],
    whole: Collection[str],
    names: Collection[str],
    needs: dict[str, tuple[str, ...]],
) -> Iterator[_User]:
    """Yield what uses folders of the store: runs, recipes and data sets.

    Reading a version of a data set adds the folders that it needs to ``needs``.
    """

    def note_needs(folder: str) -> dict[str, str]:
        needs[folder] = _needs(store, folder)
        return {}

    for folder, objects in folders.items():
        above = folder.rpartition("/")[0]
        if folder.startswith(_RUNS) and any(found.name == f"{folder}/{SPEC}" for found in objects):
            yield _User(partial(_inputs, store), folder)
        elif folder in whole and above.removeprefix("datasets/") in names:
            yield _User(note_needs, folder, f"{above}/")
    for recipe in champions.recipes(store):
        yield _User(partial(_champions, store), f"{champions.FOLDER}/{recipe}", f"{_RUNS}{recipe}-")
    for name in names:
        yield _User(partial(_newest, store), f"{versions.FOLDER}/{name}", f"datasets/{name}/")


class _User(NamedTuple):
    """A run, a recipe or a data set, whose documents refer to folders of data sets and runs.

    Attributes:
        read: reads the documents in ``folder``; returns folder of a data set or run → name of the run, recipe or
            version that needs it.
        folder: the folder with the documents.
        could: prefix of all folders that the documents could refer to.
    """

    read: Callable[[str], Mapping[str, str]]
    folder: str
    could: str = ""


def _last(folder: str) -> str:
    """Return the name of the file that is published last, so that a data set or run with this file is complete."""
    return f"{folder}/{MANIFEST if folder.startswith('datasets/') else 'stages/train.json'}"


def _inputs(store: Store, folder: str) -> dict[str, str]:
    """Return folder → run, for the run's data set and for the run whose training it continues."""
    spec, run = _fields(store, f"{folder}/{SPEC}"), folder.removeprefix(_RUNS)
    recipe = spec.get("recipe")
    recipe = recipe if isinstance(recipe, dict) else {}
    used = dataset_folder(recipe.get("dataset", ""), spec.get("fingerprint", ""))
    return {used: run, f"{_RUNS}{recipe.get('further')}": run}


def _champions(store: Store, folder: str) -> dict[str, str]:
    """Return run folder → user, for a recipe's champion and its former champions, which a rollback may need."""
    return {f"{_RUNS}{entry.run}": folder for entry in champions.history(store, folder.rpartition("/")[2])}


def _newest(store: Store, folder: str) -> dict[str, str]:
    """Return folder → ``NAME@VERSION`` for the newest version of a data set."""
    name = folder.rpartition("/")[2]
    newest = versions.versions(store, name)[-1:]
    return {dataset_folder(name, version.fingerprint): f"{name}@{version.number}" for version in newest}


def _needs(store: Store, folder: str) -> tuple[str, ...]:
    """Return the folders of older versions whose shards a version uses."""
    above = folder.rpartition("/")[0]
    splits = _fields(store, f"{folder}/{MANIFEST}").get("splits", ())
    older = {each["fingerprint"] for split in splits for each in split.get("older", ())}
    return tuple(f"{above}/{fingerprint}" for fingerprint in sorted(older))


def _fields(store: Store, name: str) -> dict[str, Any]:
    return store.read_json(name, remedy="put it back, or delete its whole folder")


def pruned(
    store: Store, before: float, damaged: Callable[[ArtifactError], None] | None = None, *, delete: bool
) -> tuple[list[Holding], list[Holding]]:
    """Delete the data sets and unfinished runs that nothing needs; see :func:`needless`.

    The list is computed again under locks, while no process can begin to use a folder of the first list.

    Args:
        store: the store.
        before: see :func:`needless`.
        damaged: see :func:`holdings`.
        delete: whether to delete them; False only lists them.

    Returns:
        What was (or would be) deleted, and what stays because a running process uses it.
    """
    names = {holding.name for holding in needless(holdings(store, damaged), before)}
    with store.alone(*names) as free:
        found = holdings(store, lambda _: None) if names else []
        gone = [holding for holding in needless(found, before, names - free) if holding.name in free]
        for holding in gone if delete else ():
            holding.delete()
    return gone, [holding for holding in found if holding.name in names - free]


def needless(found: Iterable[Holding], before: float, in_use: Collection[str] = ()) -> list[Holding]:
    """Return unfinished runs and conversions, and data sets that no run and no kept version uses.

    Args:
        found: the holdings of the store.
        before: a Unix time by the store's own clock (:meth:`podline.store.contract.Store.now`); folders with a newer
            object are kept, since they may be in progress.
        in_use: names of further folders to keep.
    """
    every = list(found)
    unused = {
        holding.name: holding
        for holding in every
        if not holding.users
        and holding.name not in in_use
        and holding.touched < before
        and (not holding.whole or not holding.name.startswith("runs/"))
    }
    kept = [holding for holding in every if holding.name not in unused]
    while kept:
        kept += [unused.pop(name) for name in kept.pop().needs if name in unused]
    return [*unused.values()]


def _is_ours(found: Listed) -> bool:
    """Return whether a file has a name that only Podline writes, such as a manifest, a spec or a shard."""
    return _OURS.fullmatch(_inside(found)) is not None


def _is_record(found: Listed) -> bool:
    return _RECORDS.fullmatch(_inside(found)) is not None


def _inside(found: Listed) -> str:
    """Return a file's name in the folder of its data set or run."""
    return found.name.removeprefix(f"{holding_of(found.name)}/")


def name_of(run: Holding) -> str:
    """Return the name of a run."""
    return run.name.removeprefix(_RUNS)


def runs_named(found: Iterable[Holding], store: Store, names: Iterable[str]) -> list[Holding]:
    """Return the runs with these names.

    Raises:
        StoreError: a run does not exist.
    """
    runs = {name_of(run): run for run in found if run.name.startswith(_RUNS)}
    for name in names:
        if name not in runs:
            raise StoreError(f"{store.where(_RUNS + name)} does not exist; `podline store list` shows all runs")
    return [runs[name] for name in names]


def old_runs(found: Iterable[Holding], before: float, *, keep: int, recipe: str | None) -> list[Holding]:
    """Return the runs that were last changed before a time, oldest first.

    Args:
        found: the holdings of a store.
        before: a Unix time by the store's own clock.
        keep: number of newest runs of each recipe to leave out.
        recipe: return only runs of this recipe.
    """
    newer, old = Counter[str](), list[Holding]()
    for run in sorted(found, key=lambda run: -run.touched):
        of = name_of(run).rpartition("-")[0]
        if run.name.startswith(_RUNS) and recipe in (None, of):
            newer[of] += 1
            old += [run] if newer[of] > keep and run.touched < before else []
    return old[::-1]


def delete_runs(store: Store, runs: Sequence[Holding], *, delete: bool) -> tuple[list[Holding], list[str]]:
    """Delete runs, except current and former champions, runs that kept runs continue, and runs in use.

    A run that only deleted runs continue is deleted with them. Entries of the ledger stay.

    Args:
        store: the store.
        runs: the runs to delete.
        delete: whether to delete the runs; False for a dry run.

    Returns:
        The runs that were (or would be) deleted, and one line with the reason for each run that stays.

    Raises:
        StoreError: a file cannot be deleted.
    """
    with store.alone(*(run.name for run in runs)) as unlocked:
        wanted = {run.name for run in runs}
        now = {run.name: run for run in holdings(store, lambda _: None) if run.name in wanted} if runs else {}
        free = unlocked - _written_elsewhere(store, now.values())
        gone = {name: run for name, run in now.items() if name in free}
        while needed := {name for name, run in gone.items() if _users(run, gone)}:
            gone = {name: run for name, run in gone.items() if name not in needed}
        for run in gone.values() if delete else ():
            run.delete()
    busy = [f"{name_of(run)} stays: a running process uses it" for name, run in now.items() if name not in free]
    used = [
        f"{name_of(run)} stays: used by {', '.join(_users(run, gone))}"
        for name, run in now.items()
        if name in free and name not in gone
    ]
    return [*gone.values()], [*used, *busy]


def _written_elsewhere(store: Store, runs: Iterable[Holding]) -> set[str]:
    """Return the runs in a bucket that a process on any machine is writing, known from a recently renewed lease."""
    if isinstance(store, FolderStore):
        return set()  # a folder has locks instead
    before = store.now() - load().store.lease
    return {run.name for run in runs for each in run.objects if each.name.endswith(LEASE) and each.published > before}


def _users(run: Holding, gone: Iterable[str]) -> list[str]:
    """Return the users of a run: recipes whose champion it is or was, and runs, except ``gone``, that continue it."""
    return [user for user in run.users if _RUNS + user not in gone]
