"""The ledger: one small JSON for every run that finished, failed or was cancelled, written once.

An entry holds what produced the result (code, settings, data, environment), what the run took, and the result itself,
with intervals. Its name begins with the moment at which the run ended, so that a listing is in the order of time and
tells recipe and state before any entry is read.

Needs neither TensorFlow nor pandas; :func:`podline.reporting.ledger.load` makes one table of all entries.
"""

from __future__ import annotations

import itertools
import re
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, NamedTuple

from podline.documents.ledger_entry import Entry, State
from podline.errors import ArtifactError, StoreError
from podline.store.contract import Listed, Store

FOLDER = "ledger"
REMEDY = "put it back; if it is lost, delete it, and see docs/reference/store.md"
# In names, and so without a colon; to the second, the rest is the entry's own.
_MOMENT = "%Y%m%dT%H%M%SZ"
_NAME = re.compile(r"(?P<ended>\d{8}T\d{6}Z)-(?P<recipe>[a-z0-9_.-]+)-(?P<state>finished|failed|cancelled)-[0-9a-f]{8}")
# Entries that are read ahead of the one that is looked at: enough to hide a bucket's answer times, few to hold.
_AHEAD = 32
_LEAST_THREADS = 4


class Named(NamedTuple):
    """The parts of an entry's name; ``ended`` is a Unix time."""

    name: str
    ended: float
    recipe: str
    state: State


def name_of(ended: float, recipe: str, state: State) -> str:
    """Return a new entry's name: when the run ended, its recipe, how it ended, and eight random digits."""
    return f"{datetime.fromtimestamp(ended, UTC):{_MOMENT}}-{recipe}-{state}-{uuid.uuid4().hex[:8]}"


def file_of(name: str) -> str:
    """Return the name of an entry's file in the store."""
    return f"{FOLDER}/{name}.json"


def publish(store: Store, entry: Entry) -> None:
    """Write an entry, once.

    Raises:
        ArtifactError: there is another one of that name.
        StoreError: it cannot be written.
    """
    store.publish_json(file_of(entry.name), entry.model_dump(mode="json"))


def read(store: Store, name: str) -> Entry:
    """Read an entry by name.

    Raises:
        StoreError: there is none, or it cannot be read.
        ArtifactError: it is damaged.
    """
    try:
        return Entry.model_validate(store.read_json(file_of(name), REMEDY))
    except ValueError as error:
        problem = "; ".join(line.strip() for line in str(error).splitlines()[1:3])
        raise ArtifactError(
            f"{store.where(file_of(name))} is not an entry of the ledger ({problem}); {REMEDY}"
        ) from error


def names(
    store: Store,
    *,
    recipe: str | None = None,
    state: State | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Named]:
    """List the entries by their names alone, the newest first; read none.

    Args:
        store: the store.
        recipe: only those of this recipe.
        state: only those that ended so.
        since: only those that ended at this moment or later.
        until: only those that ended before this moment.
    """
    found = filter(None, map(_named, files(store.listing(FOLDER))))
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
    """Whether a name in the store is that of an entry."""
    return name.startswith(f"{FOLDER}/") and _named(name) is not None


def files(listing: Iterable[Listed]) -> dict[str, Listed]:
    """Return the files of entries among those of the ledger's folder, by name."""
    return {found.name: found for found in listing if _named(found.name)}


def foreign(store: Store) -> list[str]:
    """Return what lies in the ledger's folder and is no entry by its name."""
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
    """Yield entries in the order asked for; several are read ahead.

    A few are held at any time, however many there are.

    Args:
        store: the store.
        wanted: which, as :func:`names` gave them.
        dataset: only those of this data set: its name, or how its fingerprint begins.
        commit: only those of the code whose commit begins so.
        damaged: told of each entry that is not what was written, which is then left out.

    Raises:
        StoreError: one cannot be read.
        ArtifactError: one is not what was written, and ``damaged`` is not given.
    """
    with ThreadPoolExecutor(max(store.parallel, _LEAST_THREADS)) as threads:
        waiting = iter(wanted)
        ahead = deque(threads.submit(read, store, named.name) for named in itertools.islice(waiting, _AHEAD))
        while ahead:
            entry = None
            try:
                entry = ahead.popleft().result()
            except ArtifactError as error:
                if damaged is None:
                    raise
                damaged(error)
            ahead.extend(threads.submit(read, store, named.name) for named in itertools.islice(waiting, 1))
            if entry is not None and _fits(entry, dataset, commit):
                yield entry


def entry_of(store: Store, name: str) -> Entry:
    """Return the entry of a name, or the newest one of a run; either name may be shortened.

    Raises:
        StoreError: there is none.
        ArtifactError: the entry is damaged.
    """
    there = names(store)
    if not there:
        raise StoreError(f"{store.where(FOLDER)}: no run has ended in this store; `podline run` makes one")
    by_name = [named for named in there if named.name.startswith(name)]
    if len(by_name) == 1:
        return read(store, by_name[0].name)
    # A run's name begins with its recipe's.
    likely = (named for named in there if name.startswith(named.recipe) or named.recipe.startswith(name))
    for entry in entries(store, likely):
        if entry.run.startswith(name):
            return entry
    raise StoreError(
        f"{store.where(FOLDER)}: {len(by_name)} entries are called {name}…, and no run; `podline runs list` shows all"
    )


def _fits(entry: Entry, dataset: str | None, commit: str | None) -> bool:
    of_data = dataset is None or (
        entry.data is not None and (entry.data.dataset == dataset or entry.data.fingerprint.startswith(dataset))
    )
    return of_data and (commit is None or entry.code.commit.startswith(commit))


def _named(file: str) -> Named | None:
    name = file.removeprefix(f"{FOLDER}/").removesuffix(".json")
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        ended = datetime.strptime(match["ended"], _MOMENT).replace(tzinfo=UTC).timestamp()
    except ValueError:  # digits that are no moment
        return None
    state: Any = match["state"]
    return Named(name, ended, match["recipe"], state)
