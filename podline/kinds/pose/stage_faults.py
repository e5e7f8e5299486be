"""Detects stages of a pose network that have a constant output.

The loss does not show a constant output, since nearly all of a target is zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podline.training.findings import Finding

COLLAPSED_VARIATION = 0.05
"""The least variation of a stage's output relative to the targets."""


def stage_faults(measures: Mapping[str, float]) -> Iterable[Finding]:
    """Yield a finding for each stage with a constant output.

    Args:
        measures: the measures of all stages by ``<stage>/<name>``.
    """
    for name, value in measures.items():
        stage, _, measure = name.partition("/")
        if measure == "variation" and value < COLLAPSED_VARIATION:
            yield Finding(
                "collapsed_stage",
                stage,
                {"variation": value},
                f"{stage} has collapsed: over an image, its outputs vary only {value:.1%} as much as the targets",
                "its output is constant, since nearly all of a target is zero: begin again with a longer warm-up "
                "or a lower learning rate; if that does not help, give wider targets (task.targets), or a wider stage "
                "(task.model.stage_width)",
            )
