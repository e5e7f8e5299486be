"""What the tests of whole nights share; Prefect is imported for those alone who ask for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_server: None) -> Any:
    """Makes nights: ``with night(script, machine=…) as it``."""
    from nights import Nights  # noqa: PLC0415

    return Nights(tmp_path, monkeypatch)
