"""The ledger: one small JSON file for every run that finished, failed or was cancelled, written once.

An entry contains the inputs of a run (code, settings, data, environment), the costs, and the result with intervals. The
entry's name begins with the end time of the run, so listings are in order of time, and also has recipe and state.

This module needs neither TensorFlow nor pandas; :func:`podline.report.ledger.load` loads all entries as a table.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from podline.base.errors import ArtifactError, StoreError
from podline.documents.ledger_entry import Entry, State
from podline.documents.reading import read_model
from podline.store.contract import Store
from podline.store.prefetch import in_order

FOLDER = "ledger"
REMEDY = "put it back; if it is lost, delete it, and see docs/reference/store.md"
# Format of the end time in names: in seconds, without colons. The random digits make a name unique.
_MOMENT = "%Y%m%dT%H%M%SZ"
_FILE = re.compile(
    rf"{FOLDER}/(?P<name>(?P<ended>\d{{8}}T\d{{6}}Z)-(?P<recipe>[a-z0-9_.-]+)-(?P<state>finished|failed|cancelled)"
    r"-[0-9a-f]{8})\.json"
)
_LEAST_THREADS = 4


class Named(NamedTuple):
    """The components of an entry's name; ``ended`` is a Unix time."""

    name: str
    ended: float
    recipe: str
    state: State


def name_of(ended: float, recipe: str, state: State) -> str:
    """Return a name for a new entry: end time, recipe, state and eight random hexadecimal digits."""
    return f"{datetime.fromtimestamp(ended, UTC):{_MOMENT}}-{recipe}-{state}-{uuid.uuid4().hex[:8]}"


def file_of(name: str) -> str:
    """Return the name of an entry's file in the store."""
    return f"{FOLDER}/{name}.json"


def publish(store: Store, entry: Entry) -> None:
    """Write an entry once.

    Raises:
        ArtifactError: another entry has this name.
        StoreError: the entry cannot be written.
    """
    store.publish_json(file_of(entry.name), entry.model_dump(mode="json"))


def read(store: Store, name: str) -> Entry:
    """Read an entry by name.

    Raises:
        StoreError: the entry does not exist, or cannot be read.
        ArtifactError: the entry is damaged.
    """
    return read_model(store, file_of(name), Entry, "an entry of the ledger", REMEDY)


def names(
    store: Store,
    *,
    recipe: str | None = None,
    state: State | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Named]:
    """List the names of entries, newest first, without reading them.

    Args:
        store: the store.
        recipe: only entries of this recipe.
        state: only entries that ended in this state.
        since: only entries that ended at this time or later.
        until: only entries that ended before this time.
    """
    found = filter(None, map(_named, store.list(FOLDER)))
    fitting = (
        named
        for named in found
        if (recipe is None or named.recipe == recipe)
        and (state is None or named.state == state)
        and (since is None or named.ended >= since.timestamp())
        and (until is None or named.ended < until.timestamp())
    )
    return sorted(fitting, key=lambda named: (named.ended, named.name), reverse=True)


def is_entry(name: str) -> bool:
    """Return whether a file name in the store is the name of a ledger entry."""
    return _named(name) is not None


def foreign(store: Store) -> list[str]:
    """Return the names of files in the ledger's folder that are not entries."""
    found = store.list(FOLDER)
    return [name for name in found if name.count("/") == 1 and _named(name) is None]


def entries(
    store: Store,
    wanted: Iterable[Named],
    *,
    dataset: str | None = None,
    commit: str | None = None,
    damaged: Callable[[ArtifactError], None] | None = None,
) -> Iterator[Entry]:
    """Yield entries in the requested order, reading several ahead; memory holds only a few entries at a time.

    Args:
        store: the store.
        wanted: names from :func:`names`.
        dataset: only entries on this data set: its name, or the start of its fingerprint.
        commit: only entries of code whose commit begins with this text.
        damaged: called with each damaged entry, which is then left out.

    Raises:
        StoreError: an entry cannot be read.
        ArtifactError: an entry is damaged, and ``damaged`` is not given.
    """

    def found(named: Named) -> Entry | ArtifactError:
        try:
            return read(store, named.name)
        except ArtifactError as error:
            if damaged is None:
                raise
            return error

    for entry in in_order(found, wanted, max(store.parallel, _LEAST_THREADS)):
        if isinstance(entry, Entry):
            if _fits(entry, dataset, commit):
                yield entry
        elif damaged:
            damaged(entry)


def entry_of(store: Store, name: str) -> Entry:
    """Return the entry with this name, or the newest entry of the run with this name; a prefix of a name suffices.

    Raises:
        StoreError: no run has this name, and not exactly one entry.
        ArtifactError: the only entry with this name is damaged; damaged entries of runs are skipped.
    """
    there = names(store)
    if not there:
        raise StoreError(f"{store.where(FOLDER)}: no run has ended in this store; `podline run` makes one")
    by_name = [named for named in there if named.name.startswith(name)]
    if len(by_name) == 1:
        return read(store, by_name[0].name)
    # A run's name begins with the recipe's name.
    likely = (named for named in there if name.startswith(named.recipe) or named.recipe.startswith(name))
    for entry in entries(store, likely, damaged=lambda _: None):
        if entry.run.startswith(name):
            return entry
    raise StoreError(
        f"{store.where(FOLDER)}: {len(by_name)} entries and no run have a name that begins with {name}; `podline runs "
        "list` shows all"
    )


def _fits(entry: Entry, dataset: str | None, commit: str | None) -> bool:
    of_data = dataset is None or (
        entry.data is not None and (entry.data.dataset == dataset or entry.data.fingerprint.startswith(dataset))
    )
    return of_data and (commit is None or entry.code.commit.startswith(commit))


def _named(file: str) -> Named | None:
    match = _FILE.fullmatch(file)
    if match is None:
        return None
    try:
        ended = datetime.strptime(match["ended"], _MOMENT).replace(tzinfo=UTC).timestamp()
    except ValueError:  # digits that are not a time
        return None
    state: Any = match["state"]
    return Named(match["name"], ended, match["recipe"], state)
