"""Detects stages of a pose network that have a constant output, or that copy the previous stage.

The loss does not show either fault: nearly all of a target is zero, and a copy is as good as its original.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podline.training.findings import Finding

# Limits: variation of a stage's output relative to the targets, and difference from the previous stage's output.
COLLAPSED_VARIATION, COPIED_CHANGE = 0.05, 0.01


def stage_faults(measures: Mapping[str, float]) -> Iterable[Finding]:
    """Yield the faults of stages, by their measures, ``<stage>/<name>``."""
    for name, value in measures.items():
        stage, _, measure = name.partition("/")
        yield from _of_stage(stage, measure, value)


def _of_stage(stage: str, measure: str, value: float) -> Iterable[Finding]:
    if measure == "variation" and value < COLLAPSED_VARIATION:
        yield Finding(
            "collapsed_stage",
            stage,
            {"variation": value},
            f"{stage} has collapsed: its outputs vary over an image {value:.1%} as much as the targets",
            "its output is constant, since nearly all of a target is zero: begin again with a longer warm-up "
            "or a lower learning rate; if that does not help, give wider targets (task.targets), or a wider stage "
            "(task.model.stage_width)",
        )
    if measure == "change" and value < COPIED_CHANGE:
        yield Finding(
            "copied_stage",
            stage,
            {"change": value},
            f"{stage} copies the stage before it: their outputs differ by {value:.1%}",
            "it costs time and adds nothing: train with one stage fewer of its kind (task.model.paf_stages, "
            "task.model.heatmap_stages), or make it deeper or wider (stage_depth, stage_width)",
        )
