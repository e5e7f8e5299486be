"""What the tests of flows share."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_flow_stages import FLOW_STAGES

from podline.progress import Listener, Reporter
from podline.stages.specs import Result, Spec
from podline.stages.table import STAGES, stage_of


@pytest.fixture
def stages_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run stages in this process: children of their own are what tests/supervision and the first test are about."""

    def run_here(spec: Spec, listener: Listener, *_limits: object) -> Result:
        stage = stage_of(spec)
        reporter = Reporter(stage.name, listener)
        return stage.find(spec, reporter) or stage.run(spec, reporter)

    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "support")
    monkeypatch.setattr("podline.supervision.running.run_stage", run_here)


@pytest.fixture
def small_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put small stages in place of the real ones, in this process and in those that it starts."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent / "support"))
    for name, stage in FLOW_STAGES.items():
        monkeypatch.setitem(STAGES, name, stage)
