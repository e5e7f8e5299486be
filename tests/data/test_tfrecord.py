"""TFRecord frames as arrays, byte for byte what the format says."""

from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c
import numpy as np
import pytest

from podline.data.tfrecord import empty_frames, header, map_frames, masked, payload_crcs, payloads, seal, stored_crcs
from podline.errors import ArtifactError, StoreError


def test_mask_is_that_of_the_format() -> None:
    # RFC 3720, B.4: CRC-32C of 32 zero bytes is 8a9136aa; rotated right by 15 bits, plus a282ead8.
    crc = google_crc32c.value(bytes(32))
    assert crc == 0x8A9136AA
    assert masked(np.array([crc], np.uint32))[0] == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_a_frame_is_length_crc_payload_crc() -> None:
    frames = empty_frames(2, b"abc")
    payloads(frames)[1] = np.frombuffer(b"xyz", np.uint8)
    seal(frames)
    for frame, payload in zip(frames, (b"abc", b"xyz"), strict=True):
        raw = frame.tobytes()
        assert raw[:12] == header(3)
        assert struct.unpack("<Q", raw[:8]) == (3,)
        assert raw[12:15] == payload
    assert (payload_crcs(frames) == stored_crcs(frames)).all()
    assert stored_crcs(frames)[0] != stored_crcs(frames)[1]


def test_a_mapped_file_is_its_frames(tmp_path: Path) -> None:
    frames = empty_frames(3, b"abcd")
    seal(frames)
    (tmp_path / "shard").write_bytes(frames.tobytes())
    mapped = map_frames(tmp_path / "shard", 4, 3)
    assert mapped.tobytes() == frames.tobytes()
    with pytest.raises(ValueError, match="read-only"):
        mapped[0, 0] = 1


@pytest.mark.parametrize("size", [0, 59, 61, 80])
def test_a_file_of_another_size_is_refused_with_both_sizes(tmp_path: Path, size: int) -> None:
    (tmp_path / "shard").write_bytes(bytes(size))
    with pytest.raises(ArtifactError, match=rf"shard has {size} bytes vs 60 for 3 records of 20"):
        map_frames(tmp_path / "shard", 4, 3)


def test_a_file_that_is_gone_or_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="shard is gone"):
        map_frames(tmp_path / "shard", 4, 3)
    with pytest.raises(StoreError, match=f"cannot read {tmp_path}"):
        map_frames(tmp_path, 4, 3)
