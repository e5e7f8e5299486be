"""Files with long runs of zeros: the same bytes, less room."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podline.data.holes import write_with_holes

BLOCK = 4096
RUNS = st.lists(st.tuples(st.booleans(), st.integers(0, 7 * BLOCK)), max_size=5)


def data(runs: list[tuple[bool, int]]) -> bytes:
    return b"".join((b"\0" if empty else b"\x01\0\xff") * length for empty, length in runs)


def write(path: Path, pieces: list[bytes]) -> None:
    with path.open("wb") as stream:
        for piece in pieces:
            write_with_holes(stream, memoryview(piece))
        stream.truncate()


@given(st.lists(RUNS, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_with_holes_has_the_bytes_that_were_written(
    tmp_path: Path, pieces: list[list[tuple[bool, int]]]
) -> None:
    path, content = tmp_path / "file", list(map(data, pieces))
    write(path, content)
    assert path.read_bytes() == b"".join(content)


def test_long_runs_of_zeros_take_no_room(tmp_path: Path) -> None:
    plain, whole = tmp_path / "plain", tmp_path / "whole"
    with plain.open("wb") as stream:
        stream.truncate(64 * BLOCK)
    if plain.stat().st_blocks:
        pytest.skip("the file system of the temporary folder keeps no holes")
    content = np.ones(400 * BLOCK, np.uint8)
    content[10 * BLOCK + 5 : 110 * BLOCK] = 0
    content[-100 * BLOCK :] = 0
    write(whole, [content[: 33 * BLOCK + 7].tobytes(), content[33 * BLOCK + 7 :].tobytes()])
    assert whole.stat().st_size == 400 * BLOCK
    assert whole.read_bytes() == content.tobytes()
    room = whole.stat().st_blocks * 512 // BLOCK
    assert 200 < room < 215  # 201, and some that the end of a piece divides
