"""A store in a folder, with a small data set in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_dataset import publish_dataset

from podline.documents.manifest import Manifest
from podline.store.folder import FolderStore


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path)


@pytest.fixture
def manifest(store: FolderStore) -> Manifest:
    return publish_dataset(store.root)
