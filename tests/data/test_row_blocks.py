"""Files of pixels read by position and from end to end."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from podline.data import rows
from podline.data.rows import RowBlock, SourceSplit
from podline.errors import SourceError

SIZE, COUNT, OFFSET = 12, 40, 7


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (COUNT, SIZE), np.uint8)


@pytest.fixture
def block(tmp_path: Path, images: np.ndarray) -> RowBlock:
    (tmp_path / "raw").write_bytes(bytes(OFFSET) + images.tobytes())
    return RowBlock("raw", str(tmp_path / "raw"), COUNT, OFFSET)


@pytest.mark.parametrize("scanned_bytes", [1, 4 * SIZE, 7 * SIZE + 3, 10**6])
def test_a_scan_gives_every_image_in_order(
    block: RowBlock, images: np.ndarray, monkeypatch: pytest.MonkeyPatch, scanned_bytes: int
) -> None:
    monkeypatch.setattr(rows, "_SCANNED_BYTES", scanned_bytes)
    assert (np.concatenate([rows.copy() for rows in block.scan(SIZE)]) == images).all()


def test_records_come_in_the_order_asked_for(block: RowBlock, images: np.ndarray) -> None:
    split = SourceSplit("train", (2, 2, 3), (block,), {"label": np.arange(COUNT, dtype=np.uint8)})
    found = split.read(np.array([7, 7, 0]))
    assert (found["image"].reshape(3, SIZE) == images[[7, 7, 0]]).all()
    assert found["label"].tolist() == [7, 7, 0]


@pytest.mark.parametrize("damage", ["short", "gone"])
def test_a_file_that_changed_is_named(tmp_path: Path, block: RowBlock, damage: str) -> None:
    if damage == "short":
        os.truncate(block.path, OFFSET + 20 * SIZE)
    else:
        (tmp_path / "raw").unlink()
    problem = "was cut short while it was converted" if damage == "short" else "cannot be read: No such file"
    with pytest.raises(SourceError, match=f"raw {problem}"):
        list(block.scan(SIZE))
    with pytest.raises(SourceError, match=f"raw {problem}"):
        block.read(np.array([30]), SIZE)


def test_rows_of_planes_become_images_of_channels(tmp_path: Path) -> None:
    table = np.random.default_rng(0).integers(0, 256, (COUNT, 2 + SIZE), np.uint8)
    (tmp_path / "raw").write_bytes(table.tobytes())
    block = RowBlock("raw", str(tmp_path / "raw"), COUNT, offset=2, stride=2 + SIZE, planes=3)
    expected = table[[COUNT - 1, 5], 2:].reshape(2, 3, 4).transpose(0, 2, 1).reshape(2, SIZE)
    assert (block.read(np.array([COUNT - 1, 5]), SIZE) == expected).all()
    assert (np.concatenate([rows.copy() for rows in block.scan(SIZE)]) == table[:, 2:]).all()
