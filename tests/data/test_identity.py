"""Edited metadata make no other image, and images of one identity have the same pixels."""

from __future__ import annotations

import io
import itertools
import struct
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from drawn_images import drawn, encoded
from PIL import Image, ImageCms

from podline.data.identity import IDENTITY_BYTES, identified, identities_of
from podline.data.pictures import picture_of

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
    assert identity_of(data) == identity_of(bytes(data)) != identity_of(data + b"\0")


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
    assert all(one != other for one, other in itertools.pairwise(every))
