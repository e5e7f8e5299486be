"""Damaged sources of every layout: they are read, or refused in one line; nothing else comes out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from drawn_images import as_parquet, as_table, as_webdataset, images, items

from podline.errors import SourceError

LAYOUTS: dict[str, Callable[..., Path]] = {
    "csv": as_table,
    "jsonl": lambda *given: as_table(*given, kind="jsonl"),
    "parquet table": lambda *given: as_table(*given, kind="parquet"),
    "webdataset": as_webdataset,
    "compressed webdataset": lambda *given: as_webdataset(*given, name="part.tar.gz"),
    "parquet": as_parquet,
}
TIMES = 60


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_damaged_source_is_read_or_refused(tmp_path: Path, layout: str) -> None:
    folder = LAYOUTS[layout](tmp_path / "raw", images(12))
    (file,) = (path for path in folder.iterdir() if path.is_file())
    whole, rng = file.read_bytes(), np.random.default_rng(0)
    assert len(items(str(folder), tmp_path)) == 12
    ends = 0
    for number in range(TIMES):
        data = bytearray(whole)
        if number % 4 == 0:
            del data[rng.integers(len(data)) :]
        # What a format says of itself stands at its beginning, at its end, or anywhere.
        first, last = [(0, len(data)), (0, 2000), (len(data) - 2000, len(data))][number % 3]
        for place in rng.integers(max(0, first), max(1, min(last, len(data))), 1 + number % 5):
            if data:
                data[min(place, len(data) - 1)] = rng.integers(256)
        file.write_bytes(data)
        with contextlib.suppress(SourceError):
            ends += len(items(str(folder), tmp_path)) > 0
    assert ends < TIMES
