"""What all tests share: the real data, where it is present."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data, named by PODLINE_REAL_DATA; a test that needs it skips where it is absent."""
    folder = Path(os.environ.get("PODLINE_REAL_DATA", PROJECT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set PODLINE_REAL_DATA to a folder with cifar10/ and mnist/")
    return folder
