"""A picture of many nights: the metric with its interval, speed, waiting, data; from the ledger's table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from podline.reporting.drawing import ACCENT, INK, MUTED, SECOND, png
from podline.reporting.figures import METRIC_NAMES, duration, short_count

_WIDTH, _HEIGHT = 7.6, 2.2
_LEAST_MARGIN = pd.Timedelta(hours=12)
_WAITS = {
    "waiting_start": "to begin",
    "waiting_turn": "for a turn at the TPU",
    "waiting_tpu": "for the TPU",
    "waiting_repairs": "for repairs",
    "waiting_retries": "between attempts",
}


class _Panel(NamedTuple):
    title: str
    draw: Callable[[Axes, Any], None]
    columns: Sequence[str]


def picture(frame: pd.DataFrame) -> bytes:
    """Charts over time, one above the other, on white paper, as a PNG file; those with nothing to show are left out.

    Args:
        frame: of :func:`podline.reporting.ledger.load`, best of one recipe; of at least one run.
    """
    panels = [panel for panel in _PANELS if bool(frame[list(panel.columns)].notna().to_numpy().any())]

    def draw(figure: Figure) -> None:
        grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)
        for axes, panel in zip(grid[:, 0], panels, strict=True):
            _draw(axes, frame, panel)

    return png(draw, _WIDTH, _HEIGHT * max(1, len(panels)))


def _draw(axes: Axes, frame: Any, panel: _Panel) -> None:
    panel.draw(axes, frame)
    first, last = frame["ended"].min(), frame["ended"].max()
    margin = max(0.03 * (last - first), _LEAST_MARGIN)
    axes.set_xlim(first - margin, last + margin)
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.set_title(panel.title, loc="left", fontsize=10, color=INK)


def _metric(axes: Axes, frame: Any) -> None:
    """The metric that counts of each recipe, each night's with its interval."""
    judged = frame[frame["value"].notna()]
    recipes = list(judged.groupby("recipe", observed=True))
    for place, (recipe, nights) in enumerate(recipes):
        colour = (ACCENT, SECOND)[place % 2]
        below, above = nights["value"] - nights["low"], nights["high"] - nights["value"]
        axes.errorbar(
            nights["ended"].to_numpy(),
            nights["value"].to_numpy(),
            yerr=[below.clip(lower=0).to_numpy(), above.clip(lower=0).to_numpy()],
            color=colour,
            marker="os^D"[place % 4],
            markersize=4,
            elinewidth=1,
            capsize=2,
            label=str(recipe),
        )
    measures = [METRIC_NAMES[measure] for measure in judged["measure"].dropna().unique()]
    axes.set_ylabel(", ".join(measures))
    if measures == [METRIC_NAMES["top1"]]:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{100 * value:.4g} %"))
    if len(recipes) > 1:
        axes.legend(loc="best")


def _rate(axes: Axes, frame: Any) -> None:
    nights = frame[frame["examples_per_second"].notna()]
    axes.plot(nights["ended"].to_numpy(), nights["examples_per_second"].to_numpy(), color=ACCENT, marker="o", ms=4)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("examples/s")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: short_count(value)))


def _waits(axes: Axes, frame: Any) -> None:
    """What each run waited for, one upon the other."""
    at = frame["ended"].to_numpy()
    foot: Any = pd.Series(0.0, index=frame.index)
    for place, (column, words) in enumerate(_WAITS.items()):
        seconds = frame[column].fillna(0.0)
        if not seconds.any():
            continue
        colour = (ACCENT, SECOND, MUTED, INK, ACCENT)[place]
        head = foot + seconds
        axes.vlines(at, foot.to_numpy(), head.to_numpy(), color=colour, linewidth=5, label=words)
        foot = head
    axes.set_ylim(bottom=0)
    axes.set_ylabel("waited")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: duration(value)))
    if foot.any():
        axes.legend(loc="best")


def _records(axes: Axes, frame: Any) -> None:
    for column, colour, words in (("train_records", ACCENT, "train"), ("test_records", SECOND, "test")):
        nights = frame[frame[column].notna()]
        records = nights[column].astype("float64").to_numpy()
        axes.plot(nights["ended"].to_numpy(), records, color=colour, marker="o", ms=4, label=words)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("examples")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: short_count(value)))
    axes.legend(loc="best")


_PANELS = (
    _Panel("The metric that counts, with its 95 % interval", _metric, ("value",)),
    _Panel("Training speed", _rate, ("examples_per_second",)),
    _Panel("Waiting", _waits, ("waiting",)),
    _Panel("Data", _records, ("train_records", "test_records")),
)
