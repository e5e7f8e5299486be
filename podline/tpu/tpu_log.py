"""The TPU log of a run: events with durations, for log, table and budgets.

A TPU log is all that a run has to keep from one attempt to the next: how many repairs were tried follows from it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum

from podline.frozen import Frozen
from podline.tpu.clock import in_words


class Event(StrEnum):
    """What an entry tells of.

    ``EARLIER`` stands for entries that were left out, of stages and attempts long ago. ``REPLACE`` is a new node
    for one that was taken away, ``LEAVE`` the end of a use, ``HANG`` the end of one that hung although the node
    said that it was healthy. ``BEGIN`` is the first attempt of a stage; budgets count from there.
    """

    EARLIER = "earlier"
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

MOST = 120
"""A TPU log is told in about so many entries."""
TURN = "waits for its turn"
"""So begins what is waited for where it is not the TPU itself but whoever else has it."""
_AND_OTHERS = " (and other waits)"


class TpuLogEntry(Frozen):
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


class TpuLog:
    """Entries in the order of time; grows while a TPU is waited for, repaired and used.

    Args:
        entries: what happened in earlier attempts of the same run.
        log: is told each new entry, in one line.
    """

    def __init__(self, entries: Iterable[TpuLogEntry] = (), log: Callable[[str], None] = lambda _line: None) -> None:
        self._entries = list(entries)
        self._log = log

    @property
    def entries(self) -> tuple[TpuLogEntry, ...]:
        """All that happened so far."""
        return tuple(self._entries)

    def tell(self, at: float, event: Event, what: str, took: float = 0.0, *, worked: bool = True) -> None:
        """Adds an entry, and logs it."""
        self._add(TpuLogEntry(at=at, event=event, what=what, took=took, worked=worked))
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
            self._add(TpuLogEntry(at=at, event=Event.WAIT, what=what, took=seconds))
            self._log(f"waiting: {what}")

    def _add(self, entry: TpuLogEntry) -> None:
        self._entries.append(entry)
        if len(self._entries) > MOST:
            self._entries = shortened(self._entries)

    @property
    def hung(self) -> bool:
        """Whether the last use hung, and no repair has worked since."""
        telling = [entry.event for entry in self._entries if entry.worked and entry.event in (Event.HANG, *REPAIRS)]
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
        """The log as a table: when, what kind of event, what, how long it took."""
        return [
            {
                "when": datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S"),
                "event": str(entry.event),
                "what": entry.what,
                "took": in_words(entry.took) if entry.took else "",
            }
            for entry in sorted(self._entries, key=lambda entry: entry.at)
        ]


def shortened(entries: Sequence[TpuLogEntry]) -> list[TpuLogEntry]:
    """The same log in fewer entries; what the next decision depends on is all in it.

    Waits that follow one another become one. If that is not enough, what lies before the stage that is at work, and
    before the last use that hung, is told in one entry; a stage's own entries are bounded by its budgets.
    """
    told = [_together(list(group)) for group in _groups(entries)]
    if len(told) <= MOST // 2:
        return told
    begins = [place for place, entry in enumerate(told) if entry.event is Event.BEGIN]
    hangs = [place for place, entry in enumerate(told) if entry.event is Event.HANG]
    first = min([*begins[-1:], *hangs[-1:]], default=0)
    return [*_summary(told[:first]), *told[first:]]


def _groups(entries: Sequence[TpuLogEntry]) -> Iterator[Iterator[TpuLogEntry]]:
    """The entries one by one, but waits that follow one another together."""
    numbered = enumerate(entries)
    for _key, group in itertools.groupby(numbered, lambda pair: "" if pair[1].event is Event.WAIT else str(pair[0])):
        yield (entry for _place, entry in group)


def _together(group: list[TpuLogEntry]) -> TpuLogEntry:
    if len(group) == 1:
        return group[0]
    longest = max(group, key=lambda entry: entry.took)
    what = longest.what.partition(_AND_OTHERS)[0] + _AND_OTHERS
    return group[0].model_copy(update={"what": what, "took": sum(entry.took for entry in group)})


def _summary(entries: Sequence[TpuLogEntry]) -> list[TpuLogEntry]:
    if len(entries) < 2:
        return list(entries)
    before = int(entries[0].what.partition(" ")[0]) - 1 if entries[0].event is Event.EARLIER else 0
    what = f"{before + len(entries)} entries of earlier attempts are left out here"
    return [TpuLogEntry(at=entries[0].at, event=Event.EARLIER, what=what)]
