"""Shows the progress of stages on standard error: bars on a terminal, lines in a log file.

On a terminal each stage has a progress bar, which becomes a line with the duration. Elsewhere a stage writes a few
plain lines, about one per tenth of the work, at least 5 and at most 60 seconds apart.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from podline.base.errors import PrunedError, from_json
from podline.base.figures import duration
from podline.base.plain import plain
from podline.base.progress import ErrorEvent, Event, Listener
from podline.stages.progress_words import StagePace, amount, metrics

_NAME_WIDTH = 8
_LINE_SHARE = 0.1
_LINE_SECONDS = (5.0, 60.0)


@contextlib.contextmanager
def shown() -> Iterator[Listener]:
    """Yield a listener that shows events on standard error: as bars on a terminal, else as lines."""
    console = Console(stderr=True, highlight=False)
    # Rich takes a notebook for a terminal, but a notebook would keep each state of a bar.
    if console.is_terminal and not console.is_jupyter:
        bars = _Bars(console)
        with bars.progress:
            yield bars.listen
    else:
        yield Lines(lambda line: print(line, file=sys.stderr, flush=True)).listen  # noqa: T201 (this is the terminal)


def outcome(result: Mapping[str, Any], seconds: float) -> str:
    """Describe the result of a finished stage.

    Args:
        result: the stage's result as JSON.
        seconds: the stage's duration in this run, including the search for an earlier result.
    """
    if not result.get("reused"):
        return duration(seconds)
    took = f", made in {duration(result['seconds'])}" if result.get("seconds") else ""
    return f"re-used: found and verified in {duration(seconds)}{took}"


def _failure(event: ErrorEvent) -> str:
    return "ended early by the search" if isinstance(from_json(event["error"]), PrunedError) else "failed"


class Lines:
    """Shows events as plain lines."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._started: dict[str, float] = {}
        self._pace = StagePace(clock)
        self._last = (0.0, 0.0)

    def listen(self, event: Event) -> None:
        """Write a log, progress, result or error event as a line; omit progress too soon after the last line."""
        stage = event["stage"]
        if event["event"] == "start" and stage not in self._started:
            self._started[stage] = self._clock()
            self._pace, self._last = StagePace(self._clock), (0.0, self._clock())
        elif event["event"] == "progress":
            left = self._pace.left(event)
            if self._is_news(event["done"] / max(event["total"], 1)):
                self._say(stage, "  ".join(part for part in (amount(event), metrics(event["metrics"]), left) if part))
        elif event["event"] == "log":
            self._say(stage, ("warning: " if event["level"] == "warning" else "") + event["message"])
        elif event["event"] == "result" and stage in self._started:
            self._say(stage, f"✓ {outcome(event['result'], self._clock() - self._started.pop(stage))}")
        elif event["event"] == "error" and stage in self._started:
            del self._started[stage]
            self._say(stage, f"✗ {_failure(event)}")

    def _is_news(self, share: float) -> bool:
        (last_share, last_time), now = self._last, self._clock()
        often, seldom = _LINE_SECONDS
        waited = now - last_time
        if waited < often or (abs(share - last_share) < _LINE_SHARE and waited < seldom):
            return False
        self._last = (share, now)
        return True

    def _say(self, stage: str, text: str) -> None:
        self._write(plain(f"{stage:{_NAME_WIDTH}} {text}"))


class _Bars:
    def __init__(self, console: Console) -> None:
        self._console = console
        self.progress = Progress(
            TextColumn("  {task.description}", style="bold"),
            BarColumn(bar_width=28, style="grey37", complete_style="cyan", finished_style="cyan", pulse_style="cyan"),
            TextColumn("{task.fields[amount]}"),
            TextColumn("{task.fields[metrics]}", style="cyan"),
            TextColumn("{task.fields[left]}", style="dim"),
            console=console,
            transient=True,
            refresh_per_second=5,
        )
        self._bars: dict[str, tuple[TaskID, float, StagePace]] = {}

    def listen(self, event: Event) -> None:
        """Create, update or finish a bar."""
        stage = event["stage"]
        if event["event"] == "start" and stage not in self._bars:
            bar = self.progress.add_task(f"{stage:{_NAME_WIDTH}}", total=None, amount="starting", metrics="", left="")
            self._bars[stage] = (bar, time.monotonic(), StagePace())
        elif event["event"] == "progress" and stage in self._bars:
            bar, _, pace = self._bars[stage]
            self.progress.update(
                bar,
                completed=event["done"],
                total=event["total"] or None,
                amount=amount(event),
                metrics=metrics(event["metrics"]),
                left=pace.left(event),
            )
        elif event["event"] == "log":
            warning = event["level"] == "warning"
            self._line(" ", stage, event["message"], "yellow" if warning else "dim")
        elif event["event"] == "result" and stage in self._bars:
            self._line("✓", stage, outcome(event["result"], time.monotonic() - self._removed(stage)), "green")
        elif event["event"] == "error" and stage in self._bars:
            self._removed(stage)
            self._line("✗", stage, _failure(event), "red")

    def _removed(self, stage: str) -> float:
        """Remove a stage's bar; return the time at which the stage started."""
        bar, started, _ = self._bars.pop(stage)
        self.progress.remove_task(bar)
        return started

    def _line(self, mark: str, stage: str, text: str, style: str) -> None:
        line = Text.assemble((f"{mark} ", style), (f"{stage:{_NAME_WIDTH}} ", "bold" if mark != " " else "dim"))
        self._console.print(line.append(plain(text), style if mark == " " else ""), soft_wrap=True)
