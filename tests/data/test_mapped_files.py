"""Files in one range of addresses: bytes out of any of them, and errors that name one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from podline.data.mapped_files import MappedFiles
from podline.errors import ArtifactError, StoreError


def written(folder: Path, sizes: list[int]) -> dict[Path, bytes]:
    random, files = np.random.default_rng(0), {}
    for number, size in enumerate(sizes):
        files[folder / str(number)] = random.bytes(size)
        (folder / str(number)).write_bytes(files[folder / str(number)])
    return files


def test_bytes_come_out_of_any_file(tmp_path: Path) -> None:
    contents = written(tmp_path, [10_000, 1, 0, 4096, 4097])
    mapped = MappedFiles({path: len(data) for path, data in contents.items()})
    for start, data in zip(mapped.starts.tolist(), contents.values(), strict=True):
        assert mapped.data[start : start + len(data)].tobytes() == data
    first, *_, last = contents.values()
    starts = np.array([mapped.starts[4] + 4090, 0, 3, 9_993])
    expected = [last[4090:4097], first[:7], first[3:10], first[9_993:]]
    assert [row.tobytes() for row in mapped.take(starts, 7)] == expected
    with pytest.raises(ValueError, match="read-only"):
        mapped.data[0] = 1


def test_no_files_and_empty_files_have_no_bytes(tmp_path: Path) -> None:
    for files in ({}, dict.fromkeys(written(tmp_path, [0, 0]), 0)):
        assert MappedFiles(files).take(np.empty(0, np.int64), 7).shape == (0, 7)


@pytest.mark.parametrize("size", [0, 59, 61, 80])
def test_a_file_of_another_size_is_refused_with_both_sizes(tmp_path: Path, size: int) -> None:
    (path,) = written(tmp_path, [size])
    with pytest.raises(ArtifactError, match=rf"{path} has {size} bytes vs 60 in the manifest"):
        MappedFiles({path: 60})


def test_a_file_that_is_gone_or_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="shard is gone"):
        MappedFiles({tmp_path / "shard": 60})
    with pytest.raises(StoreError, match=f"cannot read {tmp_path}"):
        MappedFiles({tmp_path: 60})


def test_files_are_unmapped_with_the_last_array_that_shows_them(tmp_path: Path) -> None:
    (path,) = written(tmp_path, [5_000])
    mapped = MappedFiles({path: 5_000})
    part = mapped.data[100:200]
    maps = Path("/proc/self/maps")
    del mapped
    assert str(path) in maps.read_text()
    assert part.tobytes() == path.read_bytes()[100:200]
    del part
    assert str(path) not in maps.read_text()
