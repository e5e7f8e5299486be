"""Pictures of strangers become pixels: decoded in sandboxes, fitted, summed, and part of the fingerprint."""

from __future__ import annotations

import io
import itertools
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from drawn_images import as_folders, images, opened
from PIL import ExifTags, Image, ImageOps
from small_dataset import publish_dataset, small_recipe
from tiff_files import EXTRA, LARGEST, PHOTOMETRIC, deep_png, tiff

from podline.base.errors import SourceError
from podline.contract.kind import kind_named
from podline.data import picture_sandbox, pictures
from podline.data.decoders import pixels_digest
from podline.data.fitting import fitted
from podline.data.images.settings import ImagesSettings
from podline.data.people.settings import CocoSettings
from podline.data.picture_sandbox import PictureFile, PictureSandbox, read_picture_file
from podline.data.pictures import Form, PictureError, picture_of
from podline.data.pixels import add_up, pixel_sums
from podline.kinds.by_example.predicting import AnswerReader
from podline.recipes.datasets import ConverterSettings


def saved(image: Image.Image, kind: str, orientation: int = 1, **options: Any) -> bytes:
    exif, stream = Image.Exif(), io.BytesIO()
    exif[ExifTags.Base.Orientation] = orientation
    image.save(stream, kind, **options, **({"exif": exif} if orientation > 1 else {}))
    return stream.getvalue()


PIXELS = cv2.blur(np.random.default_rng(0).integers(0, 256, (30, 50, 3), np.uint8), (9, 9))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_every_kind_is_turned_as_pillow_turns_it(kind, orientation):
    data = saved(Image.fromarray(PIXELS), kind, orientation, **({"lossless": True} if kind == "WEBP" else {}))
    picture = picture_of(data)
    shown = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
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
    data = saved(Image.fromarray(np.dstack([PIXELS, PIXELS[..., :1]]), "RGBA").convert(mode), kind)
    image = Image.open(io.BytesIO(data)).convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    expected = np.asarray(Image.alpha_composite(white, image).convert("RGB"))
    assert np.abs(picture_of(data).pixels.astype(int) - expected).mean() < 1


@pytest.mark.parametrize(("pixel", "colour"), [([5], 5), ([9, 8, 7], (9, 8, 7))])
def test_one_colour_of_a_png_may_stand_for_what_is_transparent(pixel, colour):
    pixels = np.full((4, 6, len(pixel)), pixel, np.uint8).squeeze()
    assert picture_of(saved(Image.fromarray(pixels), "PNG", transparency=colour)).pixels.min() == 255


def test_of_several_frames_it_is_the_first():
    first, second = (Image.fromarray(np.full((4, 6), value, np.uint8)) for value in (200, 10))
    assert (picture_of(saved(first, "GIF", save_all=True, append_images=[second])).pixels == 200).all()


GREY = np.linspace(0, 65_535, 24 * 16).astype(np.uint16).reshape(16, 24)
COLOURS = np.dstack([GREY, GREY[::-1], GREY[:, ::-1]])
OPAQUE = np.full((16, 24, 1), 65_535, np.uint16)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (tiff(GREY), GREY),
        (tiff(GREY, big_endian=True), GREY),
        (tiff(GREY, tags={PHOTOMETRIC: [0]}), 65_535 - GREY),
        (tiff((GREY >> 8).astype(np.uint8), tags={PHOTOMETRIC: [0]}), 65_535 - (GREY >> 8 << 8)),
        (tiff((COLOURS >> 8).astype(np.uint8), planes=True), COLOURS),
        (tiff(np.dstack([COLOURS, OPAQUE]), tags={EXTRA: [2]}), COLOURS),
        (tiff(np.dstack([COLOURS, GREY]), tags={EXTRA: [0]}), COLOURS),  # a fourth channel of no known meaning
        (tiff(GREY >> 4, tags={LARGEST: [4095]}), GREY),
        (tiff(GREY, tags={LARGEST: [40_000]}), GREY),  # a statistic
        (deep_png(GREY, clear=(int(GREY[3, 4]),)), np.where(GREY[3, 4] == GREY, 65_535, GREY)),
        (
            deep_png(COLOURS, clear=tuple(COLOURS[3, 4].tolist())),
            np.where((COLOURS[3, 4] == COLOURS).all(axis=-1, keepdims=True), 65_535, COLOURS),
        ),
        (deep_png(np.dstack([COLOURS, 0 * OPAQUE])), 0 * COLOURS + 65_535),
    ],
)
def test_deep_pictures_are_what_their_values_say(data: bytes, expected: np.ndarray) -> None:
    expected = expected if expected.ndim == 3 else expected[..., np.newaxis]
    pixels = picture_of(data).pixels.astype(int)
    assert np.abs(pixels - (expected >> 8)).max() <= 1


NUMBERS: list[tuple[object, bool, dict[int, list[int]], str]] = [
    *((kind, False, {}, "has floating-point samples, expected") for kind in (np.float16, np.float32, np.float64)),
    *((kind, False, {}, "has signed integer samples, expected") for kind in (np.int8, np.int16, np.int32)),
    *((kind, False, {}, r"has samples of \d+ bits, expected") for kind in (np.uint32, np.uint64)),
    (np.uint16, True, {}, "has a separate plane for each 16-bit channel"),
    (np.uint16, False, {PHOTOMETRIC: [6]}, "has 16-bit samples in other colours than grey and RGB"),
]


@pytest.mark.parametrize(("kind", "planes", "tags", "reason"), NUMBERS)
@pytest.mark.parametrize("channels", [1, 3])
def test_numbers_that_are_not_decoded_are_named(
    kind: type, planes: bool, tags: dict[int, list[int]], reason: str, channels: int
) -> None:
    pixels = np.ones((4, 6, channels)).astype(kind)
    if planes and channels == 1:
        pixels, reason = np.ones((4, 6, 2), np.uint16), "has 2 channels of 16 bits"
    with pytest.raises(PictureError, match=reason):
        picture_of(tiff(pixels, planes=planes, tags=tags))


def test_values_of_few_bits_are_told_and_scaled() -> None:
    ten, colours = GREY >> 6, np.dstack([COLOURS >> 6, OPAQUE])
    assert picture_of(deep_png(ten)).marks == picture_of(tiff(ten)).marks == pictures.DARK
    for data, values in ((deep_png(ten), ten), (deep_png(colours), colours[..., :3]), (tiff(ten), ten)):
        picture = picture_of(data, form=Form(white=1023))
        expected = values if values.ndim == 3 else values[..., np.newaxis]
        assert (picture.pixels == expected.astype(int) * 255 // 1023).all()
        assert picture.marks == 0
    assert picture_of(deep_png(GREY)).marks == 0
    assert (picture_of(deep_png(GREY), form=Form(white=1023)).pixels[5:] == 255).all()
    assert picture_of(deep_png(np.dstack([COLOURS, 0 * OPAQUE]))).marks == pictures.CLEAR
    with pytest.raises(PictureError, match=r"has 16-bit values up to 255, .*; set conversion\.white="):
        picture_of(deep_png(GREY >> 8))


@pytest.mark.usefixtures("parsed_here")
def test_splits_that_are_nearly_black_and_pictures_without_a_pixel_are_told(tmp_path: Path) -> None:
    for number in range(24):
        values = np.random.default_rng(number).integers(0, 4096, (16, 16, 3)).astype(np.uint16)
        path = tmp_path / "raw" / ("train" if number < 16 else "test") / f"class {number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(deep_png(values if number != 3 else np.dstack([values, 0 * values[..., :1]])))
    warnings = opened(tmp_path / "raw", side=16).warnings
    assert [line.partition(",")[0] for line in warnings] == [
        "all images of the train split have 16 bits and values below 4",
        "all images of the test split have 16 bits and values below 4",
        "1 image is transparent everywhere",
    ]
    assert len(opened(tmp_path / "raw", side=16, white=4095).warnings) == 1
    bright = np.full((16, 16, 3), 65_535, np.uint16)
    (tmp_path / "raw" / "test" / "class 0" / "bright.png").write_bytes(deep_png(bright))
    assert len(opened(tmp_path / "raw", side=16).warnings) == 2


PHOTO = cv2.GaussianBlur(np.random.default_rng(1).integers(0, 256, (250, 331, 3), np.uint8), (0, 0), 3)
ENCODINGS: list[dict[str, object]] = [
    {"quality": 30},
    {"quality": 98, "subsampling": "4:4:4"},
    {"progressive": True, "optimize": True, "subsampling": "4:2:0"},
    {"restart_marker_blocks": 3, "progressive": True},
    {"restart_marker_rows": 1, "mode": "L"},
    {"mode": "CMYK"},
    {"keep_rgb": True},
]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode as in a sandbox, where libjpeg's warnings are read."""
    monkeypatch.setattr(pictures, "_messages", None)
    pictures.ready_for_many()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_a_jpeg_that_ends_too_early_is_truncated_and_a_whole_one_is_not(encoding: dict[str, Any]) -> None:
    data = saved(Image.fromarray(PHOTO).convert(encoding.pop("mode", "RGB")), "JPEG", **encoding)
    whole = picture_of(data).pixels
    assert np.array_equal(picture_of(data + b"appended").pixels, whole)
    if encoding.get("progressive"):
        with pytest.raises(PictureError, match="its last scans are missing"):
            picture_of(data[: data.rindex(b"\xff\xda")] + b"\xff\xd9")
    first = data.index(b"\xff\xda") + 20
    for share in (0.02, 0.3, 0.5, 0.7, 0.9, 0.98):
        cut = first + int(share * (len(data) - first))
        with pytest.raises(PictureError, match="is truncated"):
            picture_of(data[:cut] + b"\xff\xd9")
        with pytest.raises(PictureError, match="is truncated"):  # decoded at a reduced size
            picture_of(data[:cut] + b"\xff\xd9", form=Form((16, 16, 3)))


@pytest.mark.parametrize("lossless", [True, False])
def test_a_webp_that_ends_in_zeros_is_truncated(lossless: bool) -> None:
    data = saved(Image.fromarray(PHOTO), "WEBP", lossless=lossless)
    picture_of(data)
    for keep in (len(data) // 3, len(data) - 100):
        with pytest.raises(PictureError, match=r"is (truncated|damaged)"):
            picture_of(data[:keep] + bytes(len(data) - keep))


@pytest.mark.parametrize(
    ("size", "shape", "fit", "factor"),
    [
        ((1021, 1531), (64, 64, 3), "letterbox", 8),
        ((1021, 1531), (64, 64, 1), "crop", 4),
        ((1533, 1019), (64, 64, 3), "squeeze", 4),
        ((480, 640), (224, 224, 3), "letterbox", 1),
    ],
)
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_reduced_jpeg_lies_where_the_whole_one_does(size, shape, fit, factor, orientation) -> None:
    """A half of a pixel more at an edge would show as a difference between the two."""
    tall, wide = size
    rows, columns = np.mgrid[:tall, :wide] + 0.5
    ramps = np.dstack([255 * rows / tall, 255 * columns / wide, 127 + 100 * np.sin(12 * columns / wide)])
    image, told = Image.fromarray(ramps.astype(np.uint8)), list[tuple[int, int]]()
    data = saved(image, "JPEG", orientation, quality=98, subsampling="4:4:4")
    whole = picture_of(data)
    found = picture_of(data, lambda *pixels: told.append(pixels), form=Form(shape, fit))
    assert told == [(tall * wide, tall * wide // factor**2)]
    assert found[1:] == whole[1:]
    difference = found.pixels.astype(int) - fitted(whole.pixels, shape, fit)
    assert np.abs(difference).max() <= 4
    assert np.abs(difference.mean(axis=(0, 1))).max() < 0.6


def test_large_photographs_are_taken_and_the_setting_is_named() -> None:
    data = cv2.imencode(".jpg", np.zeros((8000, 8001, 3), np.uint8))[1].tobytes()
    assert picture_of(data, form=Form((64, 64, 3))).width == 8001
    told = "has 8001×8000 pixels vs 48,000,000 at most; if you trust it, raise the setting parse_pixels"
    with pytest.raises(PictureError, match=told):
        picture_of(data)
    with pytest.raises(PictureError, match=told):
        picture_of(cv2.imencode(".png", np.zeros((8000, 8001), np.uint8))[1].tobytes(), form=Form((64, 64, 3)))
    assert picture_of(data, form=Form(most=65_000_000)).height == 8000


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("note.jpg", lambda _data: b"hello", "is not a JPEG, PNG, WebP, BMP, TIFF or GIF"),
        ("half.jpg", lambda data: data[: len(data) // 2], "is truncated"),
        ("bomb.bmp", lambda data: data[:18] + b"\xa0\x86\1\0" * 2 + data[26:], "has more than 178,956,970 pixels"),
        ("odd.png", lambda data: data[:33] + data[-12:], "is damaged: "),
    ],
)
def test_what_is_no_picture_is_named(name, change, message):
    data = cv2.imencode(Path(name).suffix, PIXELS)[1].tobytes()
    with pytest.raises(PictureError, match=message) as caught:
        picture_of(change(data))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mode", ["P", "RGBA", "I;16", "L"])
def test_a_large_picture_is_the_same_strip_by_strip(mode, monkeypatch):
    picture = Image.fromarray(np.dstack([PIXELS, PIXELS[..., :1]]), "RGBA")
    pixels = PIXELS[..., 0].astype(np.uint16) * 257
    picture = Image.fromarray(pixels) if mode == "I;16" else picture.convert(mode)
    data = saved(picture, "PNG", **({"transparency": 3} if mode == "P" else {}))
    whole = picture_of(data).pixels
    monkeypatch.setattr("podline.data.pictures._STRIP_PIXELS", 350)
    assert np.array_equal(picture_of(data).pixels, whole)


def png(pixels: np.ndarray) -> bytes:
    return cv2.imencode(".png", pixels[..., ::-1])[1].tobytes()


def test_pictures_come_in_their_order_from_any_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    files = [PictureFile(str(number), png(np.full((4 + number, 5, 3), number))) for number in range(3)]
    found: list[list[list[int]]] = []
    with PictureSandbox() as sandbox:
        decode = lambda: found.append([[*one.shape[:2], int(one[0, 0, 0])] for one in sandbox.decode(files)])  # noqa: E731
        threads = [threading.Thread(target=decode) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [[[4 + number, 5, number] for number in range(3)]] * 3
    assert not any(tmp_path.iterdir())


def test_small_pictures_of_many_pixels_are_refused_before_they_are_decoded() -> None:
    """Each is a file of less than 100 kB, and three of them are as large as one may be."""
    file = PictureFile("large", png(np.zeros((4000, 4000, 3), np.uint8)))
    assert len(file.data) < 100_000
    with PictureSandbox() as sandbox:
        with pytest.raises(SourceError, match="4 pictures have 64,000,000 pixels vs 48,000,000 at most; send fewer"):
            sandbox.decode([file] * 4)
        [pixels] = sandbox.decode([file])
        assert pixels.shape == (4000, 4000, 3)
        with pytest.raises(SourceError, match="note is not a JPEG"):
            sandbox.decode([PictureFile("note", b"hello")])


def test_a_picture_that_takes_too_much_is_named(in_children: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_sandbox, "_MAKER", "decoding_case:limited_pictures")
    good, hostile = PictureFile("good", png(PIXELS)), PictureFile("hostile", png(PIXELS[:7, :7]))
    with PictureSandbox() as sandbox:
        with pytest.raises(SourceError, match=r"hostile takes more than .* of memory"):
            sandbox.decode([good, hostile])
        assert np.array_equal(sandbox.decode([good]), [PIXELS])


WHITE = np.full((10, 20, 3), 255, np.uint8)


@pytest.mark.parametrize(("fit", "rows"), [("letterbox", slice(2, 6)), ("crop", slice(0, 8)), ("squeeze", slice(0, 8))])
@pytest.mark.parametrize("channels", [1, 3])
def test_where_a_picture_lies_in_its_square(fit: str, rows: slice, channels: int) -> None:
    expected = np.zeros((8, 8, channels), np.uint8)
    expected[rows] = 255
    np.testing.assert_array_equal(fitted(WHITE, (8, 8, channels), fit), expected)
    middle = np.where(np.arange(20)[:, np.newaxis] // 5 % 3, WHITE, 0).astype(np.uint8)  # columns 5 to 14
    assert (fitted(middle, (8, 8, channels), fit) == 255).all() == (fit == "crop")


def test_any_size_fits_without_aliasing() -> None:
    for size in ((1, 1), (1, 40), (40, 1), (3, 300), (300, 3), (8, 8), (7, 9)):
        for fit in ("letterbox", "crop", "squeeze"):
            assert fitted(np.zeros((*size, 3), np.uint8), (8, 8, 3), fit).shape == (8, 8, 3)
    lines = np.zeros((128, 128, 3), np.uint8)
    lines[:, ::2] = 254
    assert np.ptp(fitted(lines, (16, 16, 3), "squeeze")) == 0
    small = cv2.resize(np.array([[[0] * 3, [200] * 3]], np.uint8), (2, 2))
    assert 60 < fitted(small, (8, 8, 3), "squeeze")[0, 3, 0] < 140  # what grows is interpolated


@pytest.mark.usefixtures("parsed_here")
@pytest.mark.parametrize("fit", ["letterbox", "crop", "squeeze"])
def test_prediction_fits_a_picture_as_the_conversion_did(fit: str, tmp_path: Path) -> None:
    raw = as_folders(tmp_path / "raw", images(12))
    cv2.imwrite(str(raw / "cat" / "large.jpg"), cv2.resize(PHOTO, (301, 200)))
    cv2.imwrite(str(raw / "cat" / "deep.png"), COLOURS >> 6)
    source = opened(raw, fit=fit, side=16, white=1023)
    manifest = publish_dataset(tmp_path / "root")
    fields = tuple(
        field.model_copy(update={"shape": (16, 16, 3)}) if field.name == "image" else field for field in manifest.fields
    )
    manifest = manifest.model_copy(update={"converter": {"fit": fit, "white": 1023}, "fields": fields})
    reader = AnswerReader(kind_named("classification"), small_recipe(), manifest)  # type: ignore[arg-type]
    converted = {image.tobytes() for split in source.splits for image in split.read(np.arange(len(split)))["image"]}
    with PictureSandbox() as sandbox:
        files, form = [read_picture_file(path) for path in sorted(raw.rglob("*.*"))], reader.form(reader.manifest)
        assert {pixels.tobytes() for pixels in sandbox.decode(files, form)} == converted
    large = picture_of((raw / "cat" / "large.jpg").read_bytes()).pixels
    assert reader.fed(large).tobytes() not in converted, "a reduced one has other pixels"


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (700, 2, 3, 4), (2, 300, 300, 3), (2, 200, 200, 6)])
def test_sums_are_exact(shape: tuple[int, ...]) -> None:
    images = noise(*shape)
    sums = pixel_sums(images)
    wide = images.astype(np.int64).reshape(-1, shape[-1])
    assert sums.count == len(wide)
    assert sums.sums == tuple(wide.sum(axis=0).tolist())
    assert sums.squares == tuple((wide * wide).sum(axis=0).tolist())
    # float64: NumPy's own rounding is below 1e-12 of the value
    np.testing.assert_allclose(sums.mean, wide.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(sums.std, wide.std(axis=0), rtol=1e-12)


def test_a_count_that_float32_cannot_hold_does_not_round_however_the_work_is_divided() -> None:
    sums = pixel_sums(np.full((1, 4097, 4099, 1), 255, np.uint8))
    assert sums.squares == (4097 * 4099 * 255 * 255,)
    assert sums.std == (0.0,)
    images = noise(20, 3, 3, 4)[..., :3]  # not contiguous
    parts = [pixel_sums(images[start:stop]) for start, stop in itertools.pairwise((0, 1, 8, 20))]
    assert add_up(parts) == add_up(parts[::-1]) == pixel_sums(images)


@pytest.fixture(autouse=True)
def computed_anew() -> Iterator[None]:
    pixels_digest.cache_clear()
    yield
    pixels_digest.cache_clear()


@pytest.mark.parametrize(
    ("settings", "decoder"),
    [(ImagesSettings(), "imdecoded"), (ImagesSettings(), "_pillow_pixels"), (CocoSettings(), "imdecoded")],
)
def test_another_pixel_is_another_data_set(
    monkeypatch: pytest.MonkeyPatch, settings: ConverterSettings, decoder: str
) -> None:
    before = settings.converter()
    pixels_digest.cache_clear()
    decode = getattr(pictures, decoder)

    def other(*given: object) -> object:
        found = decode(*given)
        pixels = np.array(found[0] if isinstance(found, tuple) else found)
        pixels[2, 2] ^= 1
        return (pixels, *found[1:]) if isinstance(found, tuple) else pixels

    monkeypatch.setattr(pictures, decoder, other)
    assert settings.converter() != before


def test_every_image_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[str] = []
    monkeypatch.setattr(pictures.PictureError, "__init__", lambda _, text: failed.append(text))
    pixels_digest()
    assert not failed
