"""TFRecord frames as arrays, byte for byte what the format says."""

from __future__ import annotations

import struct

import numpy as np

from podline.data.tfrecord import framed, header, masked_crc, masked_crcs, payloads, seal


def test_mask_is_that_of_the_format() -> None:
    # RFC 3720, B.4: CRC-32C of 32 zero bytes is 8a9136aa; rotated right by 15 bits, plus a282ead8.
    crc = 0x8A9136AA
    assert masked_crc(bytes(32)) == struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def test_a_frame_is_length_crc_payload_crc() -> None:
    frames = np.tile(np.frombuffer(framed(b"abc"), np.uint8), (2, 1))
    payloads(frames)[1] = np.frombuffer(b"xyz", np.uint8)
    seal(frames)
    for frame, payload in zip(frames, (b"abc", b"xyz"), strict=True):
        raw = frame.tobytes()
        assert raw[:12] == header(3)
        assert struct.unpack("<Q", raw[:8]) == (3,)
        assert raw[12:15] == payload
        assert raw == framed(payload)
    crcs = masked_crcs(payloads(frames))
    assert crcs.tobytes() == frames[:, -4:].tobytes()
    assert crcs[0] != crcs[1]
