"""Draws charts of a pose network's report as SVG text; see :mod:`podline.base.drawing.drawing`."""

# pyright: standard
from __future__ import annotations

from collections.abc import Sequence

from podline.base import figures
from podline.base.drawing.drawing import ACCENT, MUTED, chart
from podline.base.drawing.svg import Svg
from podline.kinds.pose.figures import JointFigures
from podline.report.charts import words_on_the_left


def joints(entries: Sequence[JointFigures]) -> Svg:
    """Draw bars by joint: the shares of its labels in detected people, and of its labels predicted closely."""
    shares = [joint.close / joint.labelled if joint.labelled else 0.0 for joint in entries]
    found = [joint.in_found / joint.labelled if joint.labelled else 0.0 for joint in entries]
    names = [joint.joint.replace("_", " ") for joint in entries]
    alt = "Share of each joint’s labels that are predicted closely: " + ", ".join(
        f"{name} {figures.percent(share)}" for name, share in zip(names, shares, strict=True)
    )
    with chart("joints", f"{alt}.", height=0.6 + 0.22 * len(names)) as drawing:
        (axes,) = drawing.axes()
        places = range(len(names))
        axes.barh(places, found, 0.62, color=MUTED, alpha=0.35, linewidth=0, label="in instances found")
        axes.barh(places, shares, 0.62, color=ACCENT, linewidth=0, label="and close")
        axes.set_yticks(places, names)
        words_on_the_left(axes)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of the labelled joints")
        drawing.figure.legend(loc="outside upper right", ncols=2)
    return drawing.svg
