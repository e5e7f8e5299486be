"""What fits into memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from podline.store import page_cache
from podline.store.page_cache import fits_in_memory


def test_half_of_memory_or_of_the_container_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    monkeypatch.setattr(page_cache, "_CONTAINERS_LIMIT", tmp_path / "limit")
    for limit in (None, "max\n", f"{2 * physical}\n"):
        if limit:
            (tmp_path / "limit").write_text(limit)
        assert fits_in_memory(physical // 2)
        assert not fits_in_memory(physical // 2 + 1)
    (tmp_path / "limit").write_text("1000\n")
    assert fits_in_memory(500)
    assert not fits_in_memory(501)
