"""How a flow run tells that its model was refused as champion."""

from __future__ import annotations

from podline.stages.specs import PromoteResult
from podline.tasks.artifacts import outcome


def refused(*refusals: str) -> PromoteResult:
    return PromoteResult(
        run="sample-2",
        recipe="sample",
        promoted=not refusals,
        against="sample-1",
        measure="top1",
        refusals=refusals,
        headline="sample-2 is refused as champion of sample; sample-1 stays",
        promotion_sha256="0" * 64,
    )


def test_the_outcome_is_a_line_that_can_be_read() -> None:
    assert outcome(None) == "not asked for"
    one = refused("accuracy: 29.3 % vs 99.2 %")
    assert outcome(one) == f"{one.headline}; accuracy: 29.3 % vs 99.2 %"
    many = refused("accuracy: 29.3 % vs 99.2 %", "class disc: 35.0 % vs 97.0 %", "class ring: 37.0 % vs 98.0 %")
    assert outcome(many) == f"{many.headline}; accuracy: 29.3 % vs 99.2 %; 2 more in the report"


def test_an_undecided_model_says_what_would_decide() -> None:
    doubt = "not shown to be within the margin: accuracy; 2 more trainings of the reference's recipe would decide"
    headline = "sample-2 is undecided as champion of sample; sample-1 stays"
    undecided = refused("").model_copy(update={"refusals": (), "doubt": doubt, "headline": headline})
    assert undecided.verdict == "undecided"
    assert outcome(undecided) == f"{headline}; {doubt}"
