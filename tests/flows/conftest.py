"""What the tests of flows share."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_flow_stages import FLOW_STAGES

from podline.stages.table import STAGES


@pytest.fixture
def small_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put small stages in place of the real ones, in this process and in those that it starts."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent / "support"))
    for name, stage in FLOW_STAGES.items():
        monkeypatch.setitem(STAGES, name, stage)
