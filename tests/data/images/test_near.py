"""Near-duplicates are found by their hashes, and told from images that only look alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from drawn_images import KINDS, as_folders, drawn, encoded, opened
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podline.base.errors import SourceError
from podline.data.fitting import fitted, shown_size
from podline.data.images import near
from podline.data.images.hashing import BITS, hashes
from podline.data.images.near import DISTANCE, close, nearest
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
    flips=st.lists(st.lists(st.integers(0, BITS - 1), max_size=11), max_size=20),
    distance=st.integers(0, 11),
)
def test_close_hashes_are_those_of_brute_force(
    monkeypatch: pytest.MonkeyPatch, few: int, test: list[int], train: list[int], flips: list[list[int]], distance: int
) -> None:
    monkeypatch.setattr(near, "_FEW_PAIRS", few)
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


def test_many_hashes_are_compared_in_blocks() -> None:
    random = np.random.default_rng(0)
    train = random.integers(0, 2**BITS, 10_000, np.uint64)
    test = train[random.integers(0, 10_000, 100)] ^ (np.uint64(1) << random.integers(0, BITS, 100, np.uint64))
    found = close(test, train, 16)
    far = np.bitwise_count(test[:, np.newaxis] ^ train)
    assert 100 < (far <= 16).sum() < 800
    assert sorted(zip(found.test, found.train, strict=True)) == sorted(zip(*np.nonzero(far <= 16), strict=True))
    others = np.full(50_000, 5, np.uint64)
    others[::3] = random.integers(0, 2**BITS, 16_667, np.uint64)
    expected = [place for place in range(50_000) if place % 3][:8]
    found = close(np.full(600, 5, np.uint64), others)  # equal ones
    assert np.array_equal(found.test, np.repeat(np.arange(600), 8))
    assert np.array_equal(found.train, expected * 600)
    assert not found.distance.any()


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


def test_splits_made_by_a_hash_are_no_exception(tmp_path: Path) -> None:
    twice = {
        name: {f"{number}.{kind}": encoded(drawn(number, (40, 40)), kind) for number in numbers for kind in KINDS[:2]}
        for name, numbers in (("cat", range(20)), ("dog", range(20, 40)))
    }
    folder = as_folders(tmp_path / "raw", twice)
    (folder / "cat" / "notes.png").write_text("is no image, and has no pixels")
    source = source_of(folder, test_share=0.3)
    assert source.near
    assert {(pair.image.split, pair.repeated.split) for pair in source.near} == {("test", "train")}
    with pytest.raises(SourceError, match="nearly repeat a training image"):
        source.notes()
