"""The chart of a search for a learning rate: loss against rate, with what was read off."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from podline.training.rate_search import Suggestion, smoothed

_INK, _MUTED, _RULE, _CURVE, _CHOSEN, _BLOW_UP = "#1c1c1c", "#6b6b6b", "#dcdcdc", "#1f6feb", "#1a7f37", "#c0392b"
_STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "text.color": _INK,
    "axes.edgecolor": _RULE,
    "axes.labelcolor": _MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _RULE,
    "grid.linewidth": 0.6,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
}


def rate_chart(rates: Sequence[float], losses: Sequence[float], found: Suggestion, title: str) -> bytes:
    """A PNG.

    Args:
        rates: of the steps, rising.
        losses: of the steps.
        found: what was read off.
        title: what was searched, in a line.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.2, 4.2), dpi=144, layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        smooth = smoothed(losses)
        axes.semilogx(rates, losses, color=_CURVE, alpha=0.25, linewidth=0.8)
        axes.semilogx(rates, smooth, color=_CURVE, linewidth=1.8, label="loss, smoothed")
        if found.floor is not None:
            low, high = found.floor
            axes.axvspan(
                low, high, color=_MUTED, alpha=0.12, linewidth=0, label=f"near its lowest, {low:.2g} to {high:.2g}"
            )
        if found.blow_up is not None:
            axes.axvline(
                found.blow_up, color=_BLOW_UP, linestyle="--", linewidth=1.2, label=f"blows up, {found.blow_up:.2g}"
            )
        axes.axvline(found.learning_rate, color=_CHOSEN, linewidth=1.8, label=f"suggested, {found.learning_rate:g}")
        # An explosion at the end would leave nothing to see of what comes before it.
        first, lowest = float(np.mean(smooth[:5])), float(smooth.min())
        axes.set_ylim(min(lowest, *losses), min(max(losses), 2 * first - lowest + 0.1 * abs(first)))
        axes.set_xlabel("learning rate")
        axes.set_ylabel("loss of a step")
        axes.set_title(f"Learning rate: {found.learning_rate:g}", loc="left", fontsize=13, fontweight="bold", pad=22)
        axes.text(0, 1.03, title, transform=axes.transAxes, color=_MUTED)
        axes.legend(frameon=False, loc="best")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    return buffer.getvalue()
