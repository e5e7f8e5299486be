"""Edited metadata make no other image; near-duplicates are found by hashes, and told from images that look alike."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from drawn_images import as_folders, drawn, encoded, opened
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms

from podline.base.errors import SourceError
from podline.data.fitting import fitted, shown_size
from podline.data.identity import IDENTITY_BYTES, identified, identities_of
from podline.data.images import near
from podline.data.images.hashing import BITS, hashes
from podline.data.images.near import DISTANCE, close, nearest
from podline.data.pictures import picture_of
from podline.data.sources.source import Source

pytestmark = pytest.mark.usefixtures("parsed_here")

Pixels = npt.NDArray[np.uint8]

SHAPE = (64, 64, 3)
CHANGES: dict[str, Callable[[Pixels], Pixels]] = {
    "compressed": lambda picture: np.asarray(
        cv2.imdecode(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 75])[1], cv2.IMREAD_COLOR), np.uint8
    ),
    "half as large": lambda picture: np.asarray(
        cv2.resize(picture, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA), np.uint8
    ),
    "brighter": lambda picture: np.clip(picture * 1.1, 0, 255).astype(np.uint8),
    "blurred": lambda picture: np.asarray(cv2.GaussianBlur(picture, (0, 0), 1.5), np.uint8),
}


def near_of(test: list[Pixels], train: list[Pixels]) -> list[tuple[int, int]]:
    """Pairs among pictures, fitted into a letterbox."""
    pictures = test + train
    images = np.stack([fitted(np.ascontiguousarray(one), SHAPE, "letterbox") for one in pictures])
    boxes = np.array([shown_size(one.shape[0], one.shape[1], SHAPE, "letterbox") for one in pictures])
    rows = np.arange(len(pictures))
    hashed = hashes(images.__getitem__, boxes)
    found = nearest(images.__getitem__, boxes, hashed, rows[: len(test)], rows[len(test) :])
    return list(zip(found.test.tolist(), (found.train - len(test)).tolist(), strict=True))


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_picture_finds_its_original(change: str) -> None:
    pictures = [drawn(number, (90 + 7 * number % 80, 120)) for number in range(40)]
    changed = [CHANGES[change](picture) for picture in reversed(pictures)]
    assert near_of(changed, pictures) == [(number, 39 - number) for number in range(40)]


def test_other_pictures_are_not_near_whatever_bars_they_have() -> None:
    pictures = [drawn(number, (30, 120)) for number in range(400)]
    assert near_of(pictures[:100], pictures[100:]) == []


def test_what_has_no_contrast_or_is_thin_is_in_no_pair() -> None:
    sky = np.full((64, 64, 3), 200, np.uint8)
    sky[:32] += 3
    thin = drawn(1, (6, 64))
    assert near_of([sky, thin], [sky, thin]) == []


def test_the_same_shapes_in_another_colour_are_not_near() -> None:
    grey = np.repeat(drawn(1, (64, 64))[..., :1] // 2, 3, axis=2)
    red = grey.copy()
    red[..., 0] = np.minimum(grey[..., 0] + 80, 255)
    assert near_of([red], [grey]) == []
    assert near_of([grey], [grey]) == [(0, 0)]


def test_a_hash_does_not_depend_on_other_images() -> None:
    images = np.stack([drawn(number, (48, 48)) for number in range(9)])
    boxes = np.array([(48, 48), (48, 30), (31, 48)] * 3)
    together = hashes(images.__getitem__, boxes)
    for at in range(9):
        assert hashes(images[at : at + 1].__getitem__, boxes[at : at + 1]) == together[at : at + 1]


hash_lists = st.lists(st.integers(0, 2**BITS - 1), max_size=60)


@pytest.mark.parametrize("few", [0, 10**9])
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    test=hash_lists,
    train=hash_lists,
    flips=st.lists(st.lists(st.integers(0, BITS - 1), max_size=11), max_size=40),
    distance=st.integers(0, 11),
)
def test_close_hashes_are_those_of_brute_force(
    monkeypatch: pytest.MonkeyPatch, few: int, test: list[int], train: list[int], flips: list[list[int]], distance: int
) -> None:
    for name, value in {"_FEW_PAIRS": few, "_TEST_BLOCK": 3, "_TRAIN_BLOCK": 7, "_BAND_BLOCK": 5}.items():
        monkeypatch.setattr(near, name, value)
    for number, bits in enumerate(flips):  # random hashes are far apart
        if test:
            changed = test[number % len(test)]
            for bit in bits:
                changed ^= 1 << bit
            train.append(changed)
    ones, others = np.array(test, np.uint64), np.array(train, np.uint64)
    found = close(ones, others, distance)
    expected = []
    for one in range(len(test)):
        nearest = sorted(((test[one] ^ other).bit_count(), at) for at, other in enumerate(train))
        expected += [(one, at, far) for far, at in nearest if far <= distance][:8]
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected


def leaky(folder: Path, near: int, count: int = 40) -> Path:
    """Given splits, of which some test images are training images compressed anew."""
    for number in range(count):
        name = "dog" if number % 2 else "cat"
        again = number if number < near else count + number
        as_folders(folder / "train", {name: {f"{number}.png": encoded(drawn(number, (40, 40)))}})
        as_folders(folder / "test", {name: {f"{count + number}.jpg": encoded(drawn(again, (40, 40)), "JPEG")}})
    return folder


def source_of(folder: Path, **values: float) -> Source:
    return opened(folder, side=32, **values)


def test_a_source_counts_and_names_them(tmp_path: Path) -> None:
    source = source_of(leaky(tmp_path / "raw", near=4))
    keys = [(pair.image.key, pair.repeated.key) for pair in source.near]
    classes = ("cat", "dog", "cat", "dog")
    assert sorted(keys, key=lambda pair: pair[1][-5]) == [
        (f"test/{name}/{40 + at}.jpg", f"train/{name}/{at}.png") for at, name in enumerate(classes)
    ]
    assert all(0 <= distance <= DISTANCE for _, _, distance in source.near)
    assert source.counted == {"test images that nearly repeat a training image": 4}
    notes = source.notes()
    assert notes[-1].startswith("4 of the 40 test images nearly repeat a training image (test/")
    assert source.sizes == {"train": 40, "test": 40}


def test_above_a_share_they_are_refused_by_a_setting_that_decodes_nothing_again(tmp_path: Path) -> None:
    source = source_of(leaky(tmp_path / "raw", near=5))
    said = r"5 of the 40 test images .*, 12\.5% vs 10\.0% at most \(test/.* and train/.*, for one\).*near_share=0\.13"
    with pytest.raises(SourceError, match=said):
        source.notes()
    kept = sorted(tmp_path.glob("work/*/*.arrow"))
    allowed = source_of(tmp_path / "raw", near_share=0.13)
    assert allowed.near == source.near
    allowed.notes()
    assert sorted(tmp_path.glob("work/*/*.arrow")) == kept
    assert allowed.settings.converter() == source.settings.converter()
    assert "near_share" not in source.settings.model_dump()
    few = source_of(leaky(tmp_path / "few", near=2, count=4))
    assert len(few.near) == 2
    few.notes()  # two are let pass in however small a split


PIXELS = drawn(1, (40, 48))


def identity_of(data: bytes) -> bytes:
    return identified(data).identity


def segment(marker: int, content: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def exif(orientation: int) -> bytes:
    found = Image.Exif()
    found[0x0112] = orientation
    return found.tobytes()


ICC = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
ADOBE = {transform: segment(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([transform])) for transform in (0, 1)}
METADATA = [segment(0xFE, b"a comment"), segment(0xE1, exif(1)), segment(0xE2, b"ICC_PROFILE\0\1\1" + ICC)]


def jpegs() -> Iterator[bytes]:
    """JPEG files, of which each differs from the others by something that decoders heed."""
    plain = encoded(PIXELS, "JPEG")
    without_jfif = plain[:2] + plain[2 + 2 + int.from_bytes(plain[4:6]) :]
    progressive = io.BytesIO()
    Image.fromarray(PIXELS).save(progressive, "JPEG", progressive=True)
    cmyk = io.BytesIO()
    Image.fromarray(PIXELS).convert("CMYK").save(cmyk, "JPEG")
    yield from (plain, encoded(PIXELS, "JPEG", 6), encoded(drawn(2, (40, 48)), "JPEG"), progressive.getvalue())
    yield without_jfif[:2] + ADOBE[0] + without_jfif[2:]
    yield cmyk.getvalue()


def pngs() -> Iterator[bytes]:
    grey, marked = Image.fromarray(PIXELS).convert("L"), io.BytesIO()
    grey.save(marked, "PNG", transparency=100)
    plain = encoded(np.asarray(grey))
    yield from (plain, marked.getvalue(), plain[:33] + chunk(b"eXIf", exif(6)[6:]) + plain[33:])


def edited_jpegs(data: bytes) -> Iterator[bytes]:
    places = [2, data.index(b"\xff\xdb"), data.index(b"\xff\xda")]
    yield from (data[:place] + extra + data[place:] for extra in METADATA[::2] for place in places)
    yield data[:2] + METADATA[1] + data[2:]
    yield data + b"trailing \xff\xd8 bytes"
    if b"Adobe" not in data:
        yield data[:2] + ADOBE[1] + data[2:]


def edited_pngs(data: bytes) -> Iterator[bytes]:
    for kind, content in ((b"tEXt", b"Title\0Cat"), (b"iCCP", b"x\0\0" + zlib.compress(ICC)), (b"gAMA", b"\0\0\1\0")):
        yield data[:33] + chunk(kind, content) + data[33:]
    place = data.index(b"IDAT") - 4
    length = int.from_bytes(data[place : place + 4])
    idat, end = data[place + 8 : place + 8 + length], place + 12 + length
    yield data[:place] + b"".join(chunk(b"IDAT", idat[at : at + 50]) for at in range(0, length, 50)) + data[end:]
    yield data[:end] + chunk(b"tIME", b"\x07\xea\1\1\1\1\1") + data[end:]


def test_metadata_change_no_identity_and_all_that_changes_pixels_does() -> None:
    kinds = [(data, list(edited_jpegs(data))) for data in jpegs()] + [
        (data, list(edited_pngs(data))) for data in pngs()
    ]
    for data, edited in kinds:
        for other in edited:
            np.testing.assert_array_equal(picture_of(other).pixels, picture_of(data).pixels)
            assert identified(other) == identified(data), other[:80]
    found = [identity_of(data) for data, _ in kinds]
    assert len(set(found)) == len(kinds)
    assert {len(one) for one in found} == {IDENTITY_BYTES}


@pytest.mark.parametrize("kind", ["WEBP", "GIF", "BMP", "TIFF"])
def test_other_formats_are_identified_by_their_bytes(kind: str) -> None:
    data = encoded(PIXELS, kind)
    assert identity_of(data) != identity_of(data + b"\0")


def test_every_prefix_of_a_file_has_an_identity_of_its_own() -> None:
    for data in (encoded(PIXELS, "JPEG"), encoded(PIXELS)):
        prefixes = [data[:length] for length in range(0, len(data) - 12, 7)]
        assert len({identity_of(one) for one in [*prefixes, data]}) == len(prefixes) + 1


def test_arrays_are_identified_by_shape_type_and_values() -> None:
    values = np.arange(24, dtype=np.uint8)
    arrays = [values.reshape(2, 3, 4, 1), values.reshape(2, 4, 3, 1), values.view(np.int8).reshape(2, 3, 4, 1)]
    arrays.append(arrays[0] + np.uint8(1))
    every = [one for array in arrays for one in identities_of(array).tolist()]
    assert len(set(every)) == len(every) == 8
    assert identities_of(arrays[0][::-1]).tolist() == every[1::-1]
    assert identities_of(arrays[0][:0]).tolist() == []
