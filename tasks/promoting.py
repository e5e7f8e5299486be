"""Shows on a flow run what its promotion came to."""

from __future__ import annotations

from prefect.logging import get_run_logger

from podline.stages.promotion import PromoteResult
from podline.tasks.runs.this_run import add_tags

REFUSED = "not-promoted"
"""The tag of a run whose model is refused as champion."""
UNDECIDED = "undecided"
"""The tag of a run whose model is neither shown to be worse than the champion nor not to be."""


def outcome(promoted: PromoteResult | None) -> str:
    """The outcome in a line, for the table of key figures, which has no room for more than one reason."""
    if promoted is None:
        return "not asked for"
    return "; ".join(filter(None, (promoted.headline, promoted.reason, *promoted.notes)))


def tell_verdict(promoted: PromoteResult | None) -> None:
    """Has what speaks against a model seen on a run that went well: a tag, and a warning at the end of its log."""
    if promoted is None:
        return
    if not promoted.promoted:
        add_tags(UNDECIDED if promoted.verdict == "undecided" else REFUSED)
    if not promoted.promoted:
        get_run_logger().warning(outcome(promoted))
