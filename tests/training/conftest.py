"""What tests of training share."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_dataset import publish_dataset


@pytest.fixture(autouse=True)
def _all_the_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is told after every part, however fast: a run dies at the very step that a test names."""
    monkeypatch.setattr("podline.training.loop._NEWS_SECONDS", -1.0)


@pytest.fixture(scope="module", autouse=True)
def _few_layers(few_layers: None) -> None:
    """Most of a small training's time goes into tracing its network."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with the small data set in it."""
    publish_dataset(tmp_path)
    return tmp_path
