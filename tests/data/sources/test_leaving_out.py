"""What is left out of a source: images in two splits or with two labels, and how much may be left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import reading_case
from coco_files import CocoFiles, open_coco

from podline.base.errors import SourceError
from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.data.sources.decoded import decoded_source
from podline.data.sources.left_out import LeftOut, refuse_left_out
from podline.data.sources.source import Source
from podline.data.versions.fingerprint import find_converted
from podline.recipes.datasets import DataSet
from podline.recipes.official import remarks
from podline.stages.specs import ConvertSpec

pytestmark = pytest.mark.usefixtures("parsed_here")


CLASSES = [f"class {number}" for number in range(256)]


def numbered(*numbers: int) -> np.ndarray:
    """Images that are equal where their numbers are."""
    return np.array([[n % 256, n // 256, 0, 0] for n in numbers], np.uint8).reshape(-1, 2, 2)


def source_of(folder: Path, train: list[np.ndarray], *test: np.ndarray, label: int | None = None) -> Source:
    """Images of two splits, in files train_0, train_1 …; labels are positions in the split, or all the same."""
    folder.mkdir()
    splits = {"train": train, "test": test}
    for split, files in splits.items():
        first = 0
        for number, images in enumerate(files):
            labels = np.arange(first, first := first + len(images)) % 256
            with (folder / f"{split}_{number}").open("wb") as stream:
                np.savez(stream, images=images, labels=labels if label is None else np.full(len(images), label))
    names = {split: [f"{split}_{number}" for number in range(len(files))] for split, files in splits.items()}
    work = folder.parent / "work"
    return decoded_source(DataSet("tiny", open=""), str(folder), names, CLASSES, reading_case.read, work)


def test_an_image_with_two_labels_is_counted_where_it_is_rare_and_refused_where_it_is_not(tmp_path: Path) -> None:
    train, test = [numbered(*range(400)), numbered(7, 7, 9)], numbered(*range(1000, 1100), 1000)
    assert source_of(tmp_path / "alike", train, test, label=3).contradicting == {}
    rare = source_of(tmp_path / "rare", train[:1], test)
    assert rare.contradicting == {"test": 2}
    assert rare.sizes == {"train": 400, "test": 101}, "they are converted"
    told = (
        r"5 of the 403 records of the train split have the image of another one and another label "
        r"\(train_0\[7\] is 'class 7' and train_1\[0\] is 'class 144', for one\) vs 1% at most"
    )
    with pytest.raises(SourceError, match=told):
        source_of(tmp_path / "many", train, test)
    assert remarks("x", {}, (), None, {"test": 2, "train": 1})[1] == (
        "labelled in two ways: 1 record of the train split with the image of another one in it"
    )


def refusal(folder: Path, allowed: float = 0.1) -> str:
    """What is said of a folder of which more is left out than is allowed; nothing where it is not."""
    source = open_coco(folder, folder.parent / f"{folder.name} work", max_people=2)
    try:
        refuse_left_out("coco", source.left_out, allowed)
    except SourceError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"category_id": 0}, "as of another category_id"),
        ({"keypoints": [5, 5, 0] * 17}, "as none of the joints is labelled and in the image"),
        ({"keypoints": [0] * 51}, "as no instance has a joint that is labelled"),
    ],
)
def test_people_who_are_all_lost_are_not_lost_in_silence(
    tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    files = CocoFiles(images=10)
    for annotation in files.annotations:
        annotation.update(change)
    message = refusal(files.write(tmp_path / "raw"))
    assert "10 of 10 instances are left out, 100.0% vs 10.0%" in message
    assert reason in message
    assert refusal(tmp_path / "raw", 1) == ""


def test_crowds_unlabelled_people_and_people_beyond_the_places_are_not_left_out(tmp_path: Path) -> None:
    files = CocoFiles(images=4)
    files.annotations[0].update(iscrowd=1)
    files.annotations[1].update(keypoints=[0] * 51, num_keypoints=0)
    files.annotations += [{**files.annotations[2], "id": number} for number in range(900, 905)]
    assert refusal(files.write(tmp_path / "raw")) == ""


def test_the_limit_holds_by_split_and_reason_also_for_what_was_converted_before(tmp_path: Path) -> None:
    files, test = CocoFiles(images=40), CocoFiles("val", 2, 101)
    for number in (3, 4, 5, 6):
        del files.files[f"{number:012}.jpg"]
    test.write(tmp_path / "limit")
    assert refusal(files.write(tmp_path / "limit")) == ""
    files.files["000000000007.jpg"] = b"no picture"
    test.write(tmp_path / "beyond")
    message = refusal(files.write(tmp_path / "beyond"))
    assert message.startswith(
        "coco: 5 of 40 images of the train split are left out, 12.5% vs 10.0% at most: "
        "4 as is not in the source, 1 as is not a JPEG"
    )
    assert message.endswith("correct the source, or give --allow-left-out 0.13")
    (tmp_path / "limit" / "val2017" / "000000000101.jpg").unlink()
    assert "1 of 2 images of the test split" in refusal(tmp_path / "limit")
    spec = ConvertSpec(root=str(tmp_path / "root"), dataset="coco", source=str(tmp_path / "beyond"), side=64)
    allowed = spec.model_copy(update={"allow_left_out": 0.13})
    assert allowed.digest() == spec.digest()
    assert not convert(allowed, silent()).reused
    assert find_converted(allowed, silent()) is not None
    assert find_converted(spec, silent()) is None
    with pytest.raises(SourceError, match=r"5 of 40 images of .* 12\.5% vs 10\.0% at most"):
        convert(spec, silent())


def test_reasons_that_differ_in_a_place_alone_are_counted_together() -> None:
    part = LeftOut("records of the train split", 100)
    for number in range(11):
        part.add(f"the same image as test_batch[{number}] of the test split")
    with pytest.raises(SourceError, match=r"11 as the same image as test_batch\[0\] of the test split;"):
        refuse_left_out("tiny", [part], 0.1)
