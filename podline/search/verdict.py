"""Decides whether the best trial of a search is significantly better than the recipe's own values."""

from __future__ import annotations

from typing import NamedTuple

from podline.base.figures import percent
from podline.base.plurals import plural
from podline.contract.noise import Noise, assumed_spread, scale
from podline.documents.intervals import TAIL
from podline.search.trials import SearchDocument, Trial

# Significance level of the test, for all trials together.
_LEVEL = 0.05


class Verdict(NamedTuple):
    """The result of a search.

    Attributes:
        default: the trial of the recipe's own values.
        best: the trial with the lowest value.
        better: whether ``best`` is significantly better than ``default``; None for losses, which are not tested.
        text: the verdict as text.
    """

    default: Trial
    best: Trial
    better: bool | None
    text: str


def judged(document: SearchDocument) -> Verdict:
    """Return the verdict on a search whose first trial is complete.

    Unless their seeds differ, both trials are evaluated on the same examples, but the variance assumes different ones,
    so the interval is rather too wide. Bonferroni's factor corrects for choosing the best of many trials.
    """
    default, best = document.trials[0], document.complete[0]
    others = len(document.trials) - 1
    name = f"trial {best.number}"
    if best.number == default.number:
        text = f"no better than the default: none of {plural(others, 'other trial')} has a lower {document.spec.metric}"
        return Verdict(default, best, False, text)
    change = (default.value or 0.0) - (best.value or 0.0)
    if document.spec.metric == "loss":
        text = f"the loss of {name} is lower by {change:.4f}; train other seeds to see whether the difference remains"
        return Verdict(default, best, None, text)
    rules, count, kind = document.spec.recipe.promotion, best.examples, document.spec.recipe.kind
    spread = assumed_spread(kind, 0).main if rules.spread == "auto" else rules.spread
    shares = default.value or 0.0, best.value or 0.0
    sampled = sum(float(scale(share, count)) / 4 / count for share in shares)
    noise = Noise(0.0, spread**2 * float(scale(shares[0], count)), 1)
    half = float(noise.limit(sampled, TAIL))
    low, high = change - half, change + half
    better = bool(change > noise.limit(sampled, _LEVEL / others / 2))
    interval = f"{100 * change:.1f} points [{100 * low:.1f}, {100 * high:.1f}]"
    found = f"{name} has an error lower by {interval}, {percent(shares[1])} vs {percent(shares[0])}"
    held_out = f"{plural(others, 'other trial')} on {plural(count, 'held-out example')}"
    noisy = f"not shown to be better than the default: {found}; the best of {held_out} can differ so much by noise"
    return Verdict(default, best, better, f"better than the default: {found}" if better else noisy)
