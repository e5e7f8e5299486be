"""The TPU log of a run: events with durations, for people and for the repair budgets.

The log is a file in the run's folder. Only this file carries the number of repairs from one attempt to the next. It is
read again before each entry, since the flow and the run on the node write to it alternately.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import StrEnum

from podline.base.errors import TakenError
from podline.base.figures import duration
from podline.base.frozen import Frozen
from podline.documents.reading import read_model
from podline.store.contract import Store

FILE = "tpu.json"
TURN = "waits for its turn"
"""The beginning of an entry's text about a wait for another process or flow that uses the TPU."""


class Event(StrEnum):
    """The kind of an entry.

    ``BEGIN``: a stage's first attempt, at which budgets start. ``REPLACE``: a new node for a preempted node. ``LEAVE``:
    the end of a use. ``HANG``: the end of a use that hung although the node was reported healthy.
    """

    BEGIN = "begin"
    WAIT = "wait"
    RESTART = "restart"
    RECREATE = "recreate"
    REPLACE = "replace"
    LOCK = "lock"
    GO = "go"
    GIVE_UP = "give up"
    LEAVE = "leave"
    HANG = "hang"


REPAIRS = (Event.RESTART, Event.RECREATE, Event.REPLACE)


class TpuLogEntry(Frozen):
    """An event: ``at`` in seconds since 1970, ``took`` in seconds; ``worked`` is False for a failed repair."""

    at: float
    event: Event
    what: str
    took: float = 0.0
    worked: bool = True


class _Entries(Frozen):
    """The document of the log."""

    entries: tuple[TpuLogEntry, ...]


class Tried(Frozen):
    """The numbers of repairs in all attempts of a stage, including failed repairs."""

    restarts: int = 0
    recreations: int = 0
    replacements: int = 0


class TpuLog:
    """Entries in the order of time.

    Args:
        log: gets each new entry, in one line.
        store: the store of the log; None keeps it in memory only.
        folder: the run's folder.
    """

    def __init__(
        self, log: Callable[[str], None] = lambda _line: None, store: Store | None = None, folder: str = ""
    ) -> None:
        self.say = log
        self._store, self.folder = store, folder
        self._entries: tuple[TpuLogEntry, ...] = ()

    @property
    def entries(self) -> tuple[TpuLogEntry, ...]:
        """All entries so far."""
        return self._entries if self._store is None else read_tpu_log(self._store, self.folder)

    def tell(self, at: float, event: Event, what: str, took: float = 0.0, *, worked: bool = True) -> None:
        """Add an entry and log it."""
        entry = TpuLogEntry(at=at, event=event, what=what, took=took, worked=worked)
        self._change(lambda entries: (*entries, entry))
        self.say(f"{event}: {what}" + (f" ({duration(took)})" if took else ""))

    def waited(self, at: float, what: str, seconds: float) -> None:
        """Add a wait of ``seconds`` from ``at`` because of ``what``; extend the last entry if it is the same wait."""

        def extended(entries: tuple[TpuLogEntry, ...]) -> tuple[TpuLogEntry, ...]:
            *before, last = entries or (None,)
            if last is not None and last.event is Event.WAIT and last.what == what:
                return (*before, last.model_copy(update={"took": last.took + seconds}))
            return (*entries, TpuLogEntry(at=at, event=Event.WAIT, what=what, took=seconds))

        if len(self.entries) != len(self._change(extended)):
            self.say(f"waiting: {what}")

    def _change(self, change: Callable[[tuple[TpuLogEntry, ...]], tuple[TpuLogEntry, ...]]) -> tuple[TpuLogEntry, ...]:
        """Apply a change to the log's entries and write the file; repeat if another machine wrote it meanwhile."""
        while self._store is not None:
            found = self._store.find(f"{self.folder}/{FILE}")
            entries = change(self.entries)
            document = _Entries(entries=entries).model_dump(mode="json")
            with contextlib.suppress(TakenError):
                self._store.swap_json(f"{self.folder}/{FILE}", document, found.version if found else "")
                return entries
        self._entries = change(self._entries)
        return self._entries

    @property
    def hung(self) -> bool:
        """Return whether the last use hung and no repair has worked since then."""
        events = [entry.event for entry in self.entries if entry.worked and entry.event in (Event.HANG, *REPAIRS)]
        return events[-1:] == [Event.HANG]

    def tried(self) -> Tried:
        """Return the numbers of repairs since the stage's first attempt."""
        events = [entry.event for entry in self.entries]
        if Event.BEGIN in events:
            events = events[len(events) - events[::-1].index(Event.BEGIN) :]
        return Tried(
            restarts=events.count(Event.RESTART),
            recreations=events.count(Event.RECREATE),
            replacements=events.count(Event.REPLACE),
        )


def read_tpu_log(store: Store, folder: str) -> tuple[TpuLogEntry, ...]:
    """Return the TPU log in a run's folder; empty for a run without a TPU.

    Raises:
        ArtifactError: the file is damaged.
    """
    name = f"{folder}/{FILE}"
    return read_model(store, name, _Entries, "a log of a TPU", "delete it").entries if store.exists(name) else ()


def rows(entries: Iterable[TpuLogEntry]) -> list[dict[str, str]]:
    """Return a log as a table: time, kind of event, description, duration."""
    return [
        {
            "when": datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S"),
            "event": str(entry.event),
            "what": entry.what,
            "took": duration(entry.took) if entry.took else "",
        }
        for entry in sorted(entries, key=lambda entry: entry.at)
    ]
