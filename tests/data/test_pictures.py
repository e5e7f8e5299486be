from __future__ import annotations

import struct
import zlib

import cv2
import numpy as np
import pytest

from podline.data.pictures import read_picture
from podline.errors import SourceError

PIXELS = cv2.blur(np.random.default_rng(0).integers(0, 256, (30, 50, 3), np.uint8), (9, 9))


def written(tmp_path, name, pixels):
    path = tmp_path / name
    assert cv2.imwrite(str(path), pixels)
    return path


def test_red_stays_red(tmp_path):
    red = np.zeros((4, 6, 3), np.uint8)
    red[..., 2] = 255  # OpenCV's order
    assert read_picture(written(tmp_path, "red.png", red))[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize(
    ("name", "pixels"),
    [
        ("photo.jpg", PIXELS),
        ("grey.jpg", PIXELS[..., 0]),
        ("grey.png", PIXELS[..., 0]),
        ("deep.png", PIXELS.astype(np.uint16) * 257),
        ("transparent.png", np.dstack([PIXELS, PIXELS[..., :1]])),
    ],
)
def test_every_kind_is_three_channels_of_eight_bits(name, pixels, tmp_path):
    read = read_picture(written(tmp_path, name, pixels))
    assert (read.dtype, read.shape) == (np.uint8, (30, 50, 3))
    expected = np.dstack([pixels] * 3) if pixels.ndim == 2 else PIXELS[..., ::-1]
    assert np.abs(read.astype(int) - expected).mean() < 8


def test_a_picture_is_turned_as_its_exif_says(tmp_path):
    path = written(tmp_path, "phone.jpg", PIXELS)
    data = path.read_bytes()
    tiff = b"II*\0" + struct.pack("<IHHHII", 8, 1, 0x0112, 3, 1, 6) + b"\0\0\0\0"
    segment = b"Exif\0\0" + tiff
    path.write_bytes(data[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + data[2:])
    assert read_picture(path).shape == (50, 30, 3)


def bomb(width):
    header = struct.pack(">IIBBBBB", width, width, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    return b"\x89PNG\r\n\x1a\n" + chunk + b"\0\0\0\0IEND\xaeB`\x82"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("note.jpg", lambda _data: b"hello", "is no JPEG and no PNG"),
        ("empty.jpg", lambda _data: b"", "is no JPEG and no PNG"),
        ("half.jpg", lambda data: data[: len(data) // 2], "is truncated"),
        ("half.png", lambda data: data[: len(data) // 2], "is truncated"),
        ("bomb.png", lambda _data: bomb(100_000), "100000×100000 pixels vs 48,000,000 at most"),
        ("odd.png", lambda _data: bomb(10), "cannot be decoded"),
    ],
)
def test_what_is_no_picture_is_named(name, change, message, tmp_path):
    path = written(tmp_path, name, PIXELS)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(SourceError, match=message) as caught:
        read_picture(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(SourceError, match=r"gone\.jpg cannot be read: No such file"):
        read_picture(tmp_path / "gone.jpg")
