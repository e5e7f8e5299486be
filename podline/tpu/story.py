"""What happened to a TPU in the course of a run, and how long it took: for the log, a table, and the budgets.

A story is all that a run has to keep from one attempt to the next: how many repairs were tried follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import StrEnum

from podline.frozen import Frozen
from podline.tpu.clock import in_words


class Event(StrEnum):
    """What an entry tells of.

    ``REPLACE`` is a new node for one that was taken away, ``LEAVE`` the end of a use, ``HANG`` the end of one that hung
    although the node said that it was healthy. ``BEGIN`` is the first attempt of a stage; budgets count from there.
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


class Entry(Frozen):
    """One thing that happened: ``at`` in seconds since 1970, ``took`` in seconds; a repair may not have ``worked``."""

    at: float
    event: Event
    what: str
    took: float = 0.0
    worked: bool = True


class Tried(Frozen):
    """The repairs that a stage's attempts have behind them, whether they worked or not."""

    restarts: int = 0
    recreations: int = 0
    replacements: int = 0


class Story:
    """Entries in the order of time; grows while a TPU is waited for, repaired and used.

    Args:
        entries: what happened in earlier attempts of the same run.
        log: is told each new entry, in one line.
    """

    def __init__(self, entries: Iterable[Entry] = (), log: Callable[[str], None] = lambda _line: None) -> None:
        self._entries = list(entries)
        self._log = log

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All that happened so far."""
        return tuple(self._entries)

    def tell(self, at: float, event: Event, what: str, took: float = 0.0, *, worked: bool = True) -> None:
        """Adds an entry, and logs it."""
        self._entries.append(Entry(at=at, event=event, what=what, took=took, worked=worked))
        self._log(f"{event}: {what}" + (f" ({in_words(took)})" if took else ""))

    def say(self, line: str) -> None:
        """Logs a line that is no event of its own."""
        self._log(line)

    def waited(self, at: float, what: str, seconds: float) -> None:
        """Waited for ``seconds`` from ``at`` because of ``what``: a new entry, or a longer last one."""
        last = self._entries[-1] if self._entries else None
        if last is not None and last.event is Event.WAIT and last.what == what:
            self._entries[-1] = last.model_copy(update={"took": last.took + seconds})
        else:
            self._entries.append(Entry(at=at, event=Event.WAIT, what=what, took=seconds))
            self._log(f"waiting: {what}")

    @property
    def hung(self) -> bool:
        """Whether the last use hung, and no repair has worked since."""
        repairs = (Event.RESTART, Event.RECREATE, Event.REPLACE)
        telling = [entry.event for entry in self._entries if entry.worked and entry.event in (Event.HANG, *repairs)]
        return bool(telling) and telling[-1] is Event.HANG

    def tried(self) -> Tried:
        """How many repairs were made since the stage's first attempt."""
        events = [entry.event for entry in self._entries]
        if Event.BEGIN in events:
            events = events[len(events) - events[::-1].index(Event.BEGIN) :]
        return Tried(
            restarts=events.count(Event.RESTART),
            recreations=events.count(Event.RECREATE),
            replacements=events.count(Event.REPLACE),
        )

    def rows(self) -> list[dict[str, str]]:
        """The story as a table: when, what kind of event, what, how long it took."""
        return [
            {
                "when": datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S"),
                "event": str(entry.event),
                "what": entry.what,
                "took": in_words(entry.took) if entry.took else "",
            }
            for entry in sorted(self._entries, key=lambda entry: entry.at)
        ]
