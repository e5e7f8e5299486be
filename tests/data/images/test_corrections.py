"""Reviews correct a conversion: other labels and dropped images, counted, with a fingerprint of their own."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from drawn_images import CLASSES, as_folders, images, opened, reasons, records
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.data.identity import identified
from podline.data.versions.fingerprint import effective
from podline.data.versions.fingerprint import fingerprint as fingerprint_of
from podline.documents.corrections import Correction, publish_review
from podline.documents.manifest import read_manifest
from podline.recipes import datasets
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store

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
    assert source.counted == {
        "turned as EXIF says": 1,
        "relabelled by a review": 1,
        "dropped by a review": 1,
    }
    assert source.notes()[-1].startswith("1 correction of reviews match no image")
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


def test_a_label_is_corrected_by_the_name_of_its_image(tmp_path: Path, podline) -> None:
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
        (["--label", CLASSES[1], "--drop"], "got no --label and no --drop, or both"),
    ):
        said = podline("data", "correct", "images.pets", "--record", told[0], *options, "--root", store.uri)
        assert (said.code, words in said.err) == (2, True)
    published = podline("data", "correct", "sample", "--record", "test[1]", "--drop", "--root", store.uri)
    assert "the labels of a published data set do not change" in published.err
