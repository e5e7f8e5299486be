"""What tests of training share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _all_the_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is told after every part, however fast: a run dies at the very step that a test names."""
    monkeypatch.setattr("podline.training.loop._NEWS_SECONDS", -1.0)
