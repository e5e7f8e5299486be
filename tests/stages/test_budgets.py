"""Each budget is counted by itself; what is permanent, or no error of ours, has none."""

from __future__ import annotations

from podline.errors import SourceError, TpuGoneError, TpuUnhealthyError, UnexplainedError
from podline.stages.budgets import Budgets, Retry


def test_a_preemption_costs_no_failure() -> None:
    budgets = Budgets()
    assert budgets.after(TpuGoneError("gone")) == Retry(30, 1, 5)
    assert budgets.after(TpuUnhealthyError("ill")) == Retry(300, 1, 3)
    assert budgets.after(TpuGoneError("gone")) == Retry(60, 2, 5)
    assert [budgets.after(UnexplainedError("?")) for _ in range(2)] == [Retry(60, 1, 1), None]


def test_what_cannot_help_is_not_tried() -> None:
    assert Budgets().after(SourceError("bad")) is None
    assert Budgets().after(KeyError("bug")) is None
    assert Budgets().after(None) is None
