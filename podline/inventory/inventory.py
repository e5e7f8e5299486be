"""Lists data sets and runs with their size, their users, and whether they can be pruned.

One listing covers the whole store. Only manifests, specs and completion records are read besides; in a bucket, several
at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from podline.documents import champions, versions
from podline.documents.manifest import MANIFEST, SHARD_RECORDS, dataset_folder
from podline.errors import ArtifactError, StoreError
from podline.stages.specs import SPEC
from podline.store.contract import Listed, Store
from podline.store.marker import holding_of
from podline.store.prefetch import in_order

_OURS = re.compile(
    rf"/({re.escape(MANIFEST)}|{re.escape(SPEC)}|(stages|{SHARD_RECORDS}|checkpoints)/.+|[^/]+\.tfrecord-.+)$"
)


@dataclass(frozen=True)
class Holding:
    """A data set or a run.

    Attributes:
        store: its store.
        name: name of its folder.
        objects: all its objects.
        whole: whether it has a manifest, or the completion record of a training.
        users: for a data set, the runs that use it, or a note that it is the newest version; for a run, the recipes
            whose champion it is or was.
        needs: the data sets whose shards a version uses.
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
        """Return whether a living process uses it, according to :mod:`podline.store.uses`; None if it cannot be known.

        Only the owner of a folder can see its leases.
        """
        with contextlib.suppress(StoreError), self.store.alone(self.name) as free:
            return not free
        return None

    def remove(self) -> bool:
        """Delete it, manifest and records first, so that a part of it never looks complete.

        Returns:
            Whether it was deleted; it stays while a living process uses it.

        Raises:
            StoreError: a file cannot be deleted.
        """
        with self.store.alone(self.name) as free:
            if free:
                self.delete()
        return bool(free)

    def delete(self) -> None:
        """Delete what nobody uses; see :meth:`remove`."""

        def delete(found: Listed) -> None:
            self.store.delete(found.name, found.version)

        for found in sorted(filter(_is_record, self.objects)):
            delete(found)
        # A part of it is known as ours to the end.
        content = sorted(itertools.filterfalse(_is_record, self.objects), key=lambda found: (_is_ours(found), found))
        deque(in_order(delete, content, self.store.parallel), maxlen=0)


def holdings(store: Store) -> list[Holding]:
    """Return every data set and every run of a store, by name; folders of other programs are left out.

    Raises:
        StoreError: the store cannot be read.
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
    users = _users(store, folders)
    for base in bases & folders.keys():
        users.setdefault(base, []).append("a conversion that extends it")
    for name in names:
        for newest in versions.versions(store, name)[-1:]:
            users.setdefault(dataset_folder(name, newest.fingerprint), []).append(f"{name}@{newest.number}")
    found = (_holding(store, folder, objects, users.get(folder, ())) for folder, objects in sorted(folders.items()))
    return [replace(one, needs=_needs(store, one.name)) if _has_versions(one, names) else one for one in found]


def _has_versions(holding: Holding, names: set[str]) -> bool:
    return holding.whole and holding.name.startswith("datasets/") and holding.name.split("/")[1] in names


def _needs(store: Store, folder: str) -> tuple[str, ...]:
    """Return the folders of older versions whose shards a version uses."""
    above = folder.rpartition("/")[0]
    splits = _fields(store, f"{folder}/{MANIFEST}").get("splits", ())
    older = {each["fingerprint"] for split in splits for each in split.get("older", ())}
    return tuple(f"{above}/{fingerprint}" for fingerprint in sorted(older))


def _holding(store: Store, folder: str, objects: list[Listed], users: Iterable[str]) -> Holding:
    record = MANIFEST if folder.startswith("datasets/") else "stages/train.json"
    whole = any(found.name == f"{folder}/{record}" for found in objects)
    return Holding(store, folder, tuple(objects), whole, tuple(sorted(users)))


def _users(store: Store, folders: dict[str, list[Listed]]) -> dict[str, list[str]]:
    """Return data set → the runs trained on it; run → the recipes whose champion it is or was."""
    users: dict[str, list[str]] = {}
    runs = [
        folder
        for folder, objects in folders.items()
        if folder.startswith("runs/") and any(found.name == f"{folder}/{SPEC}" for found in objects)
    ]
    specs = in_order(lambda folder: _fields(store, f"{folder}/{SPEC}"), runs, store.parallel)
    for folder, spec in zip(runs, specs, strict=True):
        trained_on = dataset_folder(_fields_of(spec, "recipe").get("dataset", ""), spec.get("fingerprint", ""))
        users.setdefault(trained_on, []).append(folder.removeprefix("runs/"))
        # The run that a training continues must stay as well.
        further = _fields_of(spec, "recipe").get("further")
        if further:
            users.setdefault(f"runs/{further}", []).append(folder.removeprefix("runs/"))
    for recipe in champions.recipes(store):
        # Earlier champions stay as well, since a rollback may need them.
        for run in {entry.run for entry in champions.history(store, recipe)}:
            users.setdefault(f"runs/{run}", []).append(f"{champions.FOLDER}/{recipe}")
    return users


def _fields(store: Store, name: str) -> dict[str, Any]:
    document = store.read_json(name, remedy="put it back, or delete its whole folder")
    if not isinstance(document, dict):
        raise ArtifactError(f"{store.where(name)} holds no fields; so its inputs are unknown; delete it")
    return document


def _fields_of(document: dict[str, Any], key: str) -> dict[str, Any]:
    below = document.get(key)
    return below if isinstance(below, dict) else {}


def pruned(store: Store, before: float, *, delete: bool) -> tuple[list[Holding], list[Holding]]:
    """Delete the holdings that nothing needs; see :func:`needless`.

    They are determined once more while no process can begin to use them.

    Args:
        store: the store.
        before: see :func:`needless`.
        delete: whether to delete them.

    Returns:
        Those that were, or would be, deleted; those that stay since a living process uses them.
    """
    names = {holding.name for holding in needless(holdings(store), before)}
    with store.alone(*names) as free:
        found = holdings(store) if names else []
        gone = [holding for holding in needless(found, before, names - free) if holding.name in free]
        for holding in gone if delete else ():
            holding.delete()
    return gone, [holding for holding in found if holding.name in names - free]


def needless(found: Iterable[Holding], before: float, in_use: Collection[str] = ()) -> list[Holding]:
    """Return the holdings that no run, champion or kept version needs: unfinished work, data sets without runs.

    Args:
        found: the holdings of the store.
        before: a Unix time by the store's own clock (:meth:`podline.store.contract.Store.now`); holdings that were
            touched since are kept, since they may be in progress.
        in_use: names of holdings that are kept, too.
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
    """Return whether no other program has a file of such a name in a folder that is named as ours."""
    return _OURS.search(found.name) is not None


def _is_record(found: Listed) -> bool:
    return found.name.endswith(f"/{MANIFEST}") or "/stages/" in found.name
