"""Deletes runs, finished or not, except champions and runs that other runs need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from podline.base.errors import ArtifactError, StoreError
from podline.ledger.inventory.inventory import Holding, holdings
from podline.settings.machine import load
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.one_writer import LEASE

_RUNS = "runs/"


@dataclass(frozen=True)
class Deletion:
    """The outcome of deleting runs, or of a dry run.

    Attributes:
        gone: the deleted runs; in a dry run, those that would be deleted.
        kept: one line with the reason for each run that stays.
    """

    gone: Sequence[Holding]
    kept: Sequence[str]


def name_of(run: Holding) -> str:
    """Return the name of a run."""
    return run.name.removeprefix(_RUNS)


def recipe_of(run: Holding) -> str:
    """Return the recipe in the name of a run."""
    return name_of(run).rpartition("-")[0]


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


def old_runs(found: Iterable[Holding], before: float, *, keep: int = 0, recipe: str | None = None) -> list[Holding]:
    """Return the runs that were last changed before a time, oldest first.

    Args:
        found: the holdings of a store.
        before: a Unix time by the store's own clock.
        keep: number of newest runs of each recipe to leave out.
        recipe: return only runs of this recipe.
    """
    by_recipe = dict[str, list[Holding]]()
    for run in found:
        if run.name.startswith(_RUNS) and recipe in (None, recipe_of(run)):
            by_recipe.setdefault(recipe_of(run), []).append(run)
    newest_first = [sorted(runs, key=lambda run: -run.touched) for runs in by_recipe.values()]
    old = [run for runs in newest_first for run in runs[keep:] if run.touched < before]
    return sorted(old, key=lambda run: run.touched)


def delete_runs(
    store: Store, runs: Sequence[Holding], damaged: Callable[[ArtifactError], None] | None = None, *, delete: bool
) -> Deletion:
    """Delete runs, except current and former champions, runs that kept runs continue, and runs in use.

    A run that only deleted runs continue is deleted with them. Entries of the ledger stay.

    Args:
        store: the store.
        runs: the runs.
        damaged: see :func:`podline.ledger.inventory.inventory.holdings`.
        delete: whether to delete the runs; False for a dry run.

    Raises:
        StoreError: a file cannot be deleted.
    """
    with store.alone(*(run.name for run in runs)) as unlocked:
        wanted = {run.name for run in runs}
        now = {run.name: run for run in holdings(store, damaged) if run.name in wanted} if runs else {}
        free = unlocked - _written_elsewhere(store, now.values())
        gone = {name: run for name, run in now.items() if name in free}
        while needed := {name for name, run in gone.items() if _users(run, gone)}:
            gone = {name: run for name, run in gone.items() if name not in needed}
        for run in gone.values() if delete else ():
            run.delete()
    busy = [f"{name_of(run)} stays: a living process uses it" for name, run in now.items() if name not in free]
    used = [
        f"{name_of(run)} stays: used by {', '.join(_users(run, gone))}"
        for name, run in now.items()
        if name in free and name not in gone
    ]
    return Deletion([*gone.values()], [*used, *busy])


def _written_elsewhere(store: Store, runs: Iterable[Holding]) -> set[str]:
    """Return the runs in a bucket that a process on any machine is writing, known from a recently renewed lease."""
    if isinstance(store, FolderStore):
        return set()  # a folder has locks instead
    before = store.now() - load().store.lease
    return {run.name for run in runs for each in run.objects if each.name.endswith(LEASE) and each.published > before}


def _users(run: Holding, gone: Iterable[str]) -> list[str]:
    """Return the users of a run: recipes whose champion it is or was, and runs, except ``gone``, that continue it."""
    return [user for user in run.users if _RUNS + user not in gone]
