"""Splits and reasons follow from what images are, not from names or order; reviews correct labels and drop images."""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from drawn_images import CLASSES, Row, as_folders, images, opened, reasons, records, table_of
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from podline.base.errors import SourceError
from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.data.identity import identified
from podline.data.images import deciding
from podline.data.images.deciding import decide
from podline.data.versions.fingerprint import effective
from podline.data.versions.fingerprint import fingerprint as fingerprint_of
from podline.documents.corrections import Correction, publish_review
from podline.documents.manifest import read_manifest
from podline.kinds.classification.records import ClassTargets
from podline.recipes import datasets
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store


def seen(number: int, label: str = "cat", split: str = "", group: str = "", same_as: int | None = None) -> Row:
    """An image; its pixels are those of another one, or its own."""
    identity, pixels = (hashlib.sha256(str(one).encode()).digest()[:16] for one in (number, same_as or number))
    return Row(f"{number}.png", label, split, group, number, identity, pixels)


def decided(
    folder: Path, images: list[Row], given: frozenset[str] = frozenset(), test_share: float = 0.1
) -> dict[str, Any]:
    """Each image's split and reason, by its key."""
    table = table_of(folder, images)
    decide(table, given, test_share, ClassTargets())
    assert list(table.reasons) == sorted(table.reasons)
    return {image.key: (table.split_of(at), str(table.reasons.get(at, ""))) for at, image in enumerate(images)}


def test_neither_order_nor_other_images_change_a_split(tmp_path: Path) -> None:
    every = decided(tmp_path, [seen(number) for number in range(1000)], test_share=0.2)
    assert 150 < sum(split == "test" for split, _ in every.values()) < 250
    some = [seen(number) for number in range(0, 1000, 3)]
    random.Random(0).shuffle(some)
    assert decided(tmp_path, some, test_share=0.2).items() <= every.items()


@pytest.mark.parametrize("test_share", [0.02, 0.98])
def test_a_small_source_has_images_of_both_splits_and_whole_groups(tmp_path: Path, test_share: float) -> None:
    for first in range(0, 500, 10):
        images = [seen(first + at, group=str(first + at // 2) if at < 4 else "") for at in range(6)]
        found = [split for split, _ in decided(tmp_path, images, test_share=test_share).values()]
        assert {*found} == {"train", "test"}
        assert found[0] == found[1]
        assert found[2] == found[3]


def test_an_image_or_a_group_of_several_splits_stays_in_the_later_one(tmp_path: Path) -> None:
    """Of training, validation and test, in this order: nothing that decides or judges is seen before."""
    count = {"train": 300, "val": 300, "test": 300}
    names = [split for split, size in count.items() for _ in range(size)]
    images = [seen(number, split=split) for number, split in enumerate(names)]
    images += [seen(1000, split="train", same_as=300), seen(1001, split="val", same_as=600)]
    images += [seen(1002, split="train", same_as=601)]
    images += [seen(1003 + at, split=split, group="a") for at, split in enumerate(("train", "val"))]
    images += [seen(1005 + at, split=split, group="b") for at, split in enumerate(count)]
    found = decided(tmp_path, images, frozenset(count))
    assert {key: reason for key, (_, reason) in found.items() if reason} == {
        "1000.png": "the same image as one of the validation split: 300.png",
        "1001.png": "the same image as one of the test split: 600.png",
        "1002.png": "the same image as one of the test split: 601.png",
        "1003.png": "is of the group 'a', as images to validate on",
        "1005.png": "is of the group 'b', as images to test on",
        "1006.png": "is of the group 'b', as images to test on",
    }
    assert Counter(split for split, _ in found.values()) == {"train": 304, "validation": 303, "test": 301}


def test_more_shared_images_than_may_be_are_refused_where_splits_are_given(tmp_path: Path) -> None:
    images = [seen(number, split="train" if number % 2 else "test", same_as=number // 2 + 1) for number in range(100)]
    with pytest.raises(SourceError, match=r"50 of the 50 test images .* are also training images vs 1% at most"):
        decided(tmp_path, images, frozenset({"train", "test"}))


def test_many_equal_images_are_compared_in_one_pass(tmp_path: Path) -> None:
    table = table_of(tmp_path, (seen(number, same_as=1 if number < 30_000 else None) for number in range(30_100)))
    started = time.process_time()
    decide(table, frozenset(), 0.5, ClassTargets())
    assert 0 < table.kept("train").sum() < 100
    assert table.kept("test").sum() > 10_000
    assert time.process_time() - started < 10  # 900 million comparisons would take a minute


def simply(images: list[Row], given: bool) -> dict[str, Any]:
    """What is decided of images, by the rules one after the other, with all of them in memory."""
    found: dict[str, list[str]] = {}
    for image in images:
        test = image.split == "test" if given and image.split else int.from_bytes(image.identity[:8]) < 0.3 * 2**64
        if not (given and image.split) and image.label is None:
            test = False
        elif image.group and not (given and image.split):
            test = int(hashlib.sha256(image.group.encode()).hexdigest()[:16], 16) < 0.3 * 2**64
        reason = image.reason or ("" if image.label else "has no class")
        found[image.key] = ["test" if test else "train", reason]

    def kept(split: str = "") -> list[Row]:
        return [one for one in images if not found[one.key][1] and split in ("", found[one.key][0])]

    for image in kept():
        alike = [one for one in images if one.pixels == image.pixels and one.label and not one.reason]
        if other := next((one for one in alike if one.label != image.label), None):
            found[image.key][1] = f"the same image as one of another class: {other.key} is {other.label!r}"
    pixels: dict[bytes, str] = {}
    for image in kept("test"):
        pixels.setdefault(image.pixels, image.key)
    for image in kept("train"):
        if image.pixels in pixels:
            found[image.key][1] = f"the same image as one of the test split: {pixels[image.pixels]}"
    groups = {image.group for image in kept("test")} - {""}
    for image in kept("train"):
        if image.group in groups:
            found[image.key][1] = f"is of the group {image.group!r}, as images to test on"
    trained = {image.label for image in kept("train")}
    for image in kept("test"):
        if image.label not in trained:
            found[image.key][1] = f"is of the class {image.label!r}, which no training image is"
    return {key: tuple(both) for key, both in found.items()}


@pytest.mark.parametrize("number", range(30))
def test_columns_decide_as_images_one_by_one(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, given = random.Random(number), number % 2 == 1
    images = []
    for at in range(chance.randrange(2, 120)):
        image = seen(
            at,
            chance.choice(["cat", "dog", "Åse\udcff"[: 3 + number % 3 // 2], *["cow"] * (at < 9)]),
            chance.choice(["train"] * 9 + ["test"] * (number % 3)) if given and chance.random() < 0.8 else "",
            chance.choice(["", "", "", str(chance.randrange(40))]),
            chance.choice([None] * 15 + [chance.randrange(40)]),
        )
        odd = chance.random()
        images.append(
            image._replace(reason="is damaged") if odd < 0.1 else image._replace(label=None) if odd < 0.2 else image
        )
    splits = frozenset({"train", "test"}) if given else frozenset[str]()
    monkeypatch.setattr(deciding, "MAX_SHARED", 1)
    monkeypatch.setattr(deciding, "problem_of", lambda _name: "")
    assert decided(tmp_path, images, splits, 0.3) == simply(images, given)


pytestmark = pytest.mark.usefixtures("parsed_here")


def test_labels_are_replaced_and_images_dropped(tmp_path: Path) -> None:
    folder = as_folders(tmp_path / "raw", images())
    before, keys = records(uncorrected := opened(folder)), uncorrected.identities()["train"].keys
    first, second, third = (keys[at : at + 1].tobytes().hex() for at in range(3))
    other = next(record[1] for record in before if record[1] != before[0][1])
    source = opened(folder, corrections={first: other, second: "", third: before[2][1], "0" * 64: "cat"})
    expected = [(before[0][0], other, before[0][2]), *before[2:]]
    assert records(source) == expected
    assert [*reasons(source).values()] == ["dropped by a review"]
    assert [*source.counted.items()] == [
        ("dropped by a review", 1),
        ("relabelled by a review", 1),
        ("turned as EXIF says", 1),
    ]
    assert source.notes()[-1].startswith("1 correction from reviews match no image")
    assert source.read == 60
    assert not any(part.reasons for part in source.left_out)


def test_a_review_holds_for_other_settings_edited_metadata_and_equal_pixels(tmp_path: Path) -> None:
    folder = as_folders(tmp_path / "raw", images())
    file, counted = folder / CLASSES[0] / "000.png", {"turned as EXIF says": 1, "relabelled by a review": 1}
    review = {identified(file.read_bytes()).identity.hex(): CLASSES[1]}
    for settings in ({}, {"side": 24, "fit": "crop"}, {"channels": 1}):
        assert opened(folder, corrections=review, **settings).counted == counted
    source = opened(folder)
    keys = [key for found in source.identities().values() for key in found.keys.tolist()]
    at = keys.index(identified(file.read_bytes()).identity.rstrip(b"\0"))
    of_1_0 = {hashlib.sha256(records(source)[at][2]).hexdigest(): CLASSES[1]}
    assert opened(folder, corrections=of_1_0).counted == counted
    title = PngInfo()
    title.add_text("Title", "a cat")
    Image.open(file).save(file, pnginfo=title)
    assert opened(folder, corrections=review).counted == counted
    Image.open(file).save(file.with_suffix(".bmp"))
    source = opened(folder, corrections=review)
    assert "another class" not in "".join(reasons(source).values())
    assert source.counted == {**counted, "relabelled by a review": 2}


def test_a_conversion_takes_what_the_last_review_says(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "root"))
    spec = ConvertSpec(
        root=store.uri, dataset="images.pets", source=".", settings=datasets.settings_of("images.pets", {})
    )
    assert effective(spec, store) == spec
    cat, dog = Correction(decision="relabel", label="cat"), Correction(decision="relabel", label="dog")
    publish_review(store, "images.pets", "ann", {"a": cat, "b": Correction(decision="drop"), "c": cat})
    publish_review(store, "images.pets", "ben", {"a": dog, "c": Correction(decision="keep")})
    publish_review(store, "images.cars", "ben", {"a": cat})
    found = effective(spec, store)
    assert found.settings.model_dump()["corrections"] == {"a": "dog", "b": ""}
    assert fingerprint_of(found, []) != fingerprint_of(spec, [])


def test_a_label_is_corrected_by_the_name_of_its_image(
    tmp_path: Path, podline, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, store = as_folders(tmp_path / "raw", images()), open_store(str(tmp_path / "root"))
    spec = ConvertSpec(
        root=store.uri,
        dataset="images.pets",
        source=str(folder),
        settings=datasets.settings_of("images.pets", {"side": 16}),
    )
    before = convert(spec, silent())
    told = [f"{CLASSES[0]}/{path.name}" for path in sorted((folder / CLASSES[0]).iterdir())[:2]]
    for name, change in zip(told, (["--label", CLASSES[1]], ["--drop"]), strict=True):
        said = podline("data", "correct", "images.pets", "--record", name, *change, "--root", store.uri)
        assert (said.code, name in said.out) == (0, True), said
    after = read_manifest(store, convert(spec, silent()).folder)
    assert after.counted | {"relabelled by a review": 1, "dropped by a review": 1} == after.counted
    was, now = read_manifest(store, before.folder), after
    assert sum(split.records for split in was.splits) - 1 == sum(split.records for split in now.splits)
    for options, words in (
        (["--label", "no class"], "got --label no class, expected a class of images.pets: "),
        (["--label", CLASSES[1], "--drop"], "got neither --label nor --drop, or both"),
    ):
        said = podline("data", "correct", "images.pets", "--record", told[0], *options, "--root", store.uri)
        assert (said.code, words in said.err) == (2, True)
    published = podline("data", "correct", "sample", "--record", "test[1]", "--drop", "--root", store.uri)
    assert "whose labels are fixed" in published.err
    monkeypatch.setattr("getpass.getuser", Mock(side_effect=KeyError("uid not found")))
    said = podline("data", "correct", "images.pets", "--record", told[0], "--drop", "--root", store.uri)
    assert (said.code, "this user has no name" in said.err) == (2, True)
