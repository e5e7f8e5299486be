from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps

from podline.data.picture_sandbox import read_picture_file
from podline.data.pictures import PictureError, picture_of
from podline.errors import SourceError

PIXELS = cv2.blur(np.random.default_rng(0).integers(0, 256, (30, 50, 3), np.uint8), (9, 9))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_every_kind_is_turned_as_pillow_turns_it(kind, orientation):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    stream = io.BytesIO()
    Image.fromarray(PIXELS).save(stream, kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {}))
    picture = picture_of(stream.getvalue())
    shown = ImageOps.exif_transpose(Image.open(stream)).convert("RGB")
    assert picture.turned == (orientation != 1)
    assert np.abs(picture.pixels.astype(int) - np.asarray(shown)).mean() < 1


MODES = {
    "JPEG": ("L", "RGB", "CMYK"),
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA"),
    "WEBP": ("L", "RGB", "RGBA"),
    "TIFF": ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK"),
    "GIF": ("1", "L", "P", "RGB", "RGBA"),
    "BMP": ("1", "L", "P", "RGB", "RGBA"),
}


@pytest.mark.parametrize(("kind", "mode"), [(kind, mode) for kind, modes in MODES.items() for mode in modes])
def test_every_mode_is_what_pillow_makes_of_it_over_white(kind, mode):
    pixels = np.dstack([PIXELS, PIXELS[..., :1]])
    stream = io.BytesIO()
    Image.fromarray(pixels, "RGBA").convert(mode).save(stream, kind)
    image = Image.open(stream).convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    expected = np.asarray(Image.alpha_composite(white, image).convert("RGB"))
    assert np.abs(picture_of(stream.getvalue()).pixels.astype(int) - expected).mean() < 1


@pytest.mark.parametrize(("pixel", "colour"), [([5], 5), ([9, 8, 7], (9, 8, 7))])
def test_one_colour_of_a_png_may_stand_for_what_is_transparent(pixel, colour):
    stream = io.BytesIO()
    pixels = np.full((4, 6, len(pixel)), pixel, np.uint8).squeeze()
    Image.fromarray(pixels).save(stream, "PNG", transparency=colour)
    assert picture_of(stream.getvalue()).pixels.min() == 255


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("kind", [".png", ".tiff"])
def test_of_sixteen_bits_the_upper_eight_are_taken(kind, channels):
    pixels = np.tile(np.array([[[0], [255], [256], [65_279], [65_280], [65_535]]], np.uint16), (1, 1, channels))
    pixels[..., 3:] = 65_535
    _, data = cv2.imencode(kind, pixels)
    assert picture_of(data.tobytes()).pixels[0, :, 0].tolist() == [0, 0, 1, 254, 255, 255]


def test_of_several_frames_it_is_the_first():
    frames = [Image.fromarray(np.full((4, 6), value, np.uint8)) for value in (200, 10)]
    stream = io.BytesIO()
    frames[0].save(stream, "GIF", save_all=True, append_images=frames[1:])
    assert picture_of(stream.getvalue()).pixels.tolist() == np.full((4, 6, 3), 200).tolist()


def floats():
    stream = io.BytesIO()
    Image.fromarray(np.ones((4, 6), np.float32)).save(stream, "TIFF")
    return stream.getvalue()


def bomb(width):
    header = struct.pack(">IIBBBBB", width, width, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    return b"\x89PNG\r\n\x1a\n" + chunk + b"\0\0\0\0IEND\xaeB`\x82"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("note.jpg", lambda _data: b"hello", "is not a JPEG, PNG, WebP, BMP, TIFF or GIF"),
        ("empty.jpg", lambda _data: b"", "is not a JPEG, PNG, WebP, BMP, TIFF or GIF"),
        ("floats.tiff", lambda _data: floats(), "holds floating-point numbers"),
        ("half.jpg", lambda data: data[: len(data) // 2], "is truncated"),
        ("half.png", lambda data: data[: len(data) // 2], "is truncated"),
        ("bomb.png", lambda _data: bomb(100_000), "too many pixels vs 48,000,000 at most"),
        ("odd.png", lambda _data: bomb(10), "is damaged: OSError: cannot load this image"),
    ],
)
def test_what_is_no_picture_is_named(name, change, message):
    data = cv2.imencode(Path(name).suffix, PIXELS)[1].tobytes()
    with pytest.raises(PictureError, match=message) as caught:
        picture_of(change(data))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there():
    with pytest.raises(SourceError, match=r"gone\.jpg cannot be read: No such file"):
        read_picture_file(Path("gone.jpg"))


@pytest.mark.parametrize("mode", ["P", "RGBA", "I;16", "L"])
def test_a_large_picture_is_the_same_strip_by_strip(mode, monkeypatch):
    picture = Image.fromarray(np.dstack([PIXELS, PIXELS[..., :1]]), "RGBA")
    pixels = PIXELS[..., 0].astype(np.uint16) * 257
    picture = Image.fromarray(pixels) if mode == "I;16" else picture.convert(mode)
    stream = io.BytesIO()
    picture.save(stream, "PNG", **({"transparency": 3} if mode == "P" else {}))
    whole = picture_of(stream.getvalue()).pixels
    monkeypatch.setattr("podline.data.pictures._STRIP_PIXELS", 350)
    assert np.array_equal(picture_of(stream.getvalue()).pixels, whole)
