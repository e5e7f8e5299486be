"""The section of the report that a kind of numbers has."""

from __future__ import annotations

from collections.abc import Iterator

from podline.drawing.drawing import ACCENT, chart
from podline.kinds.by_example.answered import Answered
from podline.reporting.blocks import Block, Chart
from podline.reporting.facts import RunFacts
from podline.reporting.sections import section


@section("Answers and truth")
def scatter(run: RunFacts) -> Iterator[Block]:
    """Show each test example as a dot."""
    said = Answered.read(run.store, run.spec.record_folder)
    ends = [float(said.labels.min()), float(said.labels.max())]
    with chart("scatter", f"Answers over the true numbers of {len(said.labels)} examples.") as drawing:
        (axes,) = drawing.axes()
        axes.scatter(said.labels, said.answers, color=ACCENT, s=8)
        axes.plot(ends, ends, linestyle="--", color=ACCENT)
        axes.set_xlabel("true number")
        axes.set_ylabel("answer")
    yield Chart(drawing.svg, caption="A dot is a test example; on the dashed line the answer is right.")
