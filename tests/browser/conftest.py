"""What the tests in a real browser share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from standing_prefect import PROJECT


@pytest.fixture
def screenshots(request: pytest.FixtureRequest) -> Path:
    """The folder of this test's pictures; TEST_OUTPUT says where all of them go."""
    folder = Path(os.environ.get("TEST_OUTPUT", PROJECT / "test-output")) / request.node.name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    return folder
