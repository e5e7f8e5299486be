"""Writes ledger entries for killed runs: the next run on the same machine writes them from the killed run's notes file.

A running process keeps its notes in a temporary folder below the store's scratch folder, and touches the file every 5
seconds.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable

from pydantic import Field

from podline.base.errors import ChildKilledError, PodlineError
from podline.base.figures import moment
from podline.base.frozen import Frozen
from podline.base.progress import beside
from podline.documents.ledger_entry import Entry
from podline.documents.metrics_log import EVENTS, METRICS, EventLine, MetricsLine, MetricsLines, read_events
from podline.ledger import ledger
from podline.ledger.time_spent import Attempt, time_spent
from podline.store import locks
from podline.store.contract import Store, entered

_FOLDER = "unfinished"
_BEAT_SECONDS = 5.0
_NOTES = "notes.json"
_CHECKPOINT = re.compile(r"step-(\d+)\.json$")


class Unfinished(Frozen):
    """The notes of a run in progress.

    Attributes:
        entry: the ledger entry so far.
        attempts: finished attempts of stages, with Unix times.
        stage: the current stage; empty between stages.
        since: Unix time at which the stage began.
        around: class → seconds in the run's own process; see :func:`podline.ledger.time_spent.time_spent`.
    """

    entry: Entry
    attempts: tuple[Attempt, ...] = ()
    stage: str = ""
    since: float = 0.0
    around: dict[str, float] = Field(default_factory=dict)


@contextlib.contextmanager
def noted(store: Store) -> Generator[Callable[[Unfinished], None], None, None]:
    """Yield a function that saves a run's notes to a file; delete the file at the end of the body."""
    with entered(store.uri, lambda: locks.temporary_folder(store.own_folder(_FOLDER), "run")) as folder:

        def keep(notes: Unfinished) -> None:
            # A run must not fail because its notes cannot be saved.
            with contextlib.suppress(OSError):
                (folder / "new").write_text(notes.model_dump_json())
                (folder / "new").replace(folder / _NOTES)

        def show_life(_is_over: bool) -> float:
            with contextlib.suppress(OSError):
                os.utime(folder / _NOTES)
            return _BEAT_SECONDS

        with beside(show_life, _BEAT_SECONDS, "sign of life"):
            yield keep


def training_lines(
    store: Store, run: str, last_step: float = math.inf
) -> tuple[Iterable[MetricsLine], list[EventLine]]:
    """Return a training's metrics up to a step, and its events; both empty if either file is missing or damaged."""
    if run:
        with contextlib.suppress(PodlineError):
            lines = MetricsLines(store.local(f"runs/{run}/{METRICS}"), last_step)
            deque(lines, maxlen=0)  # raises for a damaged line before any line is used
            return lines, read_events(store.local(f"runs/{run}/{EVENTS}"))
    return (), []


def write_killed(store: Store, flow_run: str = "") -> None:
    """Write entries for runs that were killed on this machine; an entry that cannot be written is left to the next run.

    Args:
        store: the store.
        flow_run: id of the flow run that begins; for a killed attempt of this flow run, the time until now counts as
            lost.
    """
    for folder in locks.left_behind(store.scratch / _FOLDER):
        # Podline 1.0 kept the notes beside the lock file.
        file = folder / _NOTES if folder.exists() else folder.with_suffix(".json")
        try:
            notes = Unfinished.model_validate_json(file.read_bytes())
        except (FileNotFoundError, ValueError):  # killed before the first note
            shutil.rmtree(folder, ignore_errors=True)
            continue
        except OSError:  # the next run reads them
            continue
        with contextlib.suppress(PodlineError, OSError):
            sign = file.stat().st_mtime
            ended = time.time() if flow_run and notes.entry.flow_run == flow_run else sign
            ledger.publish(store, _entry(store, notes, ended, sign))
            file.unlink()
            shutil.rmtree(folder, ignore_errors=True)


def _entry(store: Store, notes: Unfinished, ended: float, sign: float) -> Entry:
    """Return the entry of a killed run; training steps after the last checkpoint count as lost time."""
    entry, attempts = notes.entry, list(notes.attempts)
    if notes.stage:
        attempts.append(Attempt(notes.stage, min(notes.since, ended), ended, 0.0, kept=False))
    names = store.list(f"runs/{entry.run}/checkpoints") if entry.run else []
    saved = max((int(match[1]) for match in map(_CHECKPOINT.search, names) if match), default=0)
    lines, events = training_lines(store, entry.run, saved)
    entry = entry.model_copy(
        update={
            "name": ledger.name_of(ended, entry.recipe, "failed"),
            "state": "failed",
            "ended": ended,
            "error": ChildKilledError.__name__,
            "cause": f"the run's process was killed, or its machine stopped; last sign of life: {moment(sign)}",
        }
    )
    spent = time_spent(entry.seconds, entry.waiting, attempts, lines, events, notes.around)
    if not notes.stage:
        spent["lost"] = spent.get("lost", 0.0) + spent.pop("unattributed", 0.0)
    return entry.model_copy(update={"spent": {kind: took for kind, took in spent.items() if took}})
