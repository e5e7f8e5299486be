"""Charts about a pose network, as SVG text; see :mod:`podline.reporting.charts`."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from podline import figures
from podline.documents.metrics_log import StepsLine
from podline.drawing.drawing import ACCENT, MUTED, SECOND, chart
from podline.reporting.charts import COLOURS, steps_axis, verdict, words_on_the_left
from podline.reporting.over_nights import thinned
from podline.reporting.pose_facts import PoseFacts

MEASURES = {
    "loss": "Loss of each stage",
    "magnitude": "Strength of each stage’s answers, as a share of the target’s",
    "recall": "Share of the target’s strong cells with half the strength",
    "island_recall": "Share of joints, and of limbs’ middles, that are met",
    "error": "Mean absolute error of a channel",
    "change": "Change from the stage before, as a share of the answer",
}
"""What is drawn of the stages, with its title."""

# Told apart on light ground and on dark; heatmap stages are dashed.
_COLOURS = (ACCENT, SECOND, *COLOURS[2:])


def charts(facts: PoseFacts) -> dict[str, Markup]:
    """All of them, by name; those of the stages by ``stage_<measure>``, as far as they were measured."""
    drawn = {"verdict": verdict(facts.evaluation, "ap", "on seen images"), "joints": joints(facts)}
    steps = thinned(facts.steps)
    logged = {name.partition("/")[2] for line in steps for name in line.measures}
    return drawn | {f"stage_{name}": stages(steps, name) for name in MEASURES if name in logged}


def joints(facts: PoseFacts) -> Markup:
    """The share of each joint's labelled places where it is close: people that were not found, and those that were."""
    entries, noun = facts.evaluation.joints, facts.manifest.skeleton.noun
    shares = [joint.close / joint.labelled if joint.labelled else 0.0 for joint in entries]
    found = [joint.in_found / joint.labelled if joint.labelled else 0.0 for joint in entries]
    names = [joint.joint.replace("_", " ") for joint in entries]
    alt = "Share of each joint’s labelled places where it is found close: " + ", ".join(
        f"{name} {figures.percent(share)}" for name, share in zip(names, shares, strict=True)
    )
    with chart("joints", f"{alt}.", height=0.6 + 0.22 * len(names)) as drawing:
        (axes,) = drawing.axes()
        places = range(len(names))
        axes.barh(places, found, 0.62, color=MUTED, alpha=0.35, linewidth=0, label=f"in {noun.many} found")
        axes.barh(places, shares, 0.62, color=ACCENT, linewidth=0, label="and close")
        axes.set_yticks(places, names)
        words_on_the_left(axes)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of the labelled joints")
        drawing.figure.legend(loc="outside upper right", ncols=2)
    return drawing.svg


def stages(steps: Sequence[StepsLine], measure: str) -> Markup:
    """One measure of every stage over the training steps."""
    names = sorted({name for line in steps for name in line.measures if name.partition("/")[2] == measure})
    last = {name: next(line.measures[name] for line in reversed(steps) if name in line.measures) for name in names}
    ends = ", ".join(f"{name.partition('/')[0].replace('_', ' ')} {value:.3g}" for name, value in last.items())
    with chart(f"stage-{measure}", f"{MEASURES[measure]}, over training steps; at the end: {ends}.") as drawing:
        (axes,) = drawing.axes()
        for place, name in enumerate(names):
            stage = name.partition("/")[0]
            at = [line for line in steps if name in line.measures]
            axes.plot(
                [line.step for line in at],
                [line.measures[name] for line in at],
                color=_COLOURS[place % len(_COLOURS)],
                linestyle="--" if stage.endswith("heatmap") else "-",
                label=stage.replace("_", " "),
            )
        axes.set_ylim(bottom=0)
        steps_axis(axes)
        axes.legend(loc="best")
    return drawing.svg
