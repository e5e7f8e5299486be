"""Files of pixels read by position and from end to end."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from podline.data import rows
from podline.data.rows import RowBlock, SourceSplit
from podline.errors import SourceError

SIZE, COUNT, OFFSET = 12, 40, 2
TABLE = np.random.default_rng(0).integers(0, 256, (COUNT, OFFSET + SIZE), np.uint8)


@pytest.fixture
def block(tmp_path: Path) -> RowBlock:
    """Rows of three planes, with two bytes before each."""
    (tmp_path / "raw").write_bytes(TABLE.tobytes())
    return RowBlock("raw", str(tmp_path / "raw"), COUNT, OFFSET, OFFSET + SIZE, 3)


@pytest.mark.parametrize("scanned_bytes", [1, 4 * SIZE, 7 * SIZE + 3, 10**6])
def test_a_scan_gives_every_row_in_order(block: RowBlock, monkeypatch: pytest.MonkeyPatch, scanned_bytes: int) -> None:
    monkeypatch.setattr(rows, "_SCANNED_BYTES", scanned_bytes)
    assert (np.concatenate([rows.copy() for rows in block.scan(SIZE)]) == TABLE[:, OFFSET:]).all()


def test_images_come_in_the_order_asked_for_with_their_channels_last(block: RowBlock) -> None:
    split = SourceSplit("train", (2, 2, 3), (block,), {"label": np.arange(COUNT, dtype=np.uint8)})
    found = split.read(np.array([39, 7, 7, 0]))
    planes = TABLE[[39, 7, 7, 0], OFFSET:].reshape(4, 3, 2, 2)
    assert (found["image"] == planes.transpose(0, 2, 3, 1)).all()
    assert found["label"].tolist() == [39, 7, 7, 0]


def test_rows_without_anything_between_them(tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(bytes(7) + TABLE.tobytes())
    block = RowBlock("raw", str(tmp_path / "raw"), COUNT, 7)
    assert (block.read(np.array([5, 1]), OFFSET + SIZE) == TABLE[[5, 1]]).all()
    assert (np.concatenate([rows.copy() for rows in block.scan(OFFSET + SIZE)]) == TABLE).all()


@pytest.mark.parametrize("problem", ["was cut short while it was converted", "cannot be read: No such file"])
def test_a_file_that_changed_is_named(block: RowBlock, problem: str) -> None:
    if "short" in problem:
        os.truncate(block.path, 20 * (OFFSET + SIZE))
    else:
        Path(block.path).unlink()
    with pytest.raises(SourceError, match=f"raw {problem}"):
        list(block.scan(SIZE))
    with pytest.raises(SourceError, match=f"raw {problem}"):
        block.read(np.array([30]), SIZE)
