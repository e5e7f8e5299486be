"""A store in a folder, with a small data set in it; and sandboxes without processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from small_dataset import publish_dataset

from podline import entry_points, sandbox
from podline.documents.manifest import Manifest
from podline.sandbox import Limits
from podline.store.folder import FolderStore


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path)


@pytest.fixture
def manifest(store: FolderStore) -> Manifest:
    return publish_dataset(store.root)


class _NoChild:
    """Answers as a child process does, in this process."""

    def __init__(self, maker: str, arguments: Sequence[object]) -> None:
        self._parse = entry_points.load(maker)(*arguments)

    def ask(self, items: Sequence[Any], _limits: Sequence[Limits], _factor: float) -> list[Any]:
        guard: Any = self
        return json.loads(json.dumps([sandbox._guarded(guard, partial(self._parse, item)) for item in items]))

    def out_of_memory(self) -> dict[str, Any]:
        raise AssertionError("a parser needs more memory than there is")

    def end(self) -> None:
        """There is nothing to end."""


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse in this process, where limits and crashes are not the point: to start a child takes half a second."""
    monkeypatch.setattr(sandbox, "_Child", _NoChild)
