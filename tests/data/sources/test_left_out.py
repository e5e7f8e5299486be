"""How much of a source may be left out, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from coco_files import CocoFiles, open_coco

from podline.beam_jobs.conversion import convert
from podline.data.rows import RowBlock, SourceSplit
from podline.data.sources.left_out import LeftOut, refuse_left_out
from podline.data.sources.source import Source
from podline.datasets.fingerprint import find_converted
from podline.errors import SourceError
from podline.progress import silent
from podline.stages.specs import ConvertSpec

pytestmark = pytest.mark.usefixtures("parsed_here")


def refusal(folder: Path, allowed: float = 0.1) -> str:
    """What is said of a folder of which more is left out than is allowed; nothing where it is not."""
    source = open_coco(folder, folder / "work", max_people=2)
    try:
        refuse_left_out("coco", source.left_out, allowed)
    except SourceError as error:
        return str(error)
    return ""


def test_images_that_are_not_there_are_counted_by_reason(tmp_path: Path) -> None:
    files = CocoFiles(images=40)
    for number in (3, 4, 5, 6):
        del files.files[f"{number:012}.jpg"]
    files.write(tmp_path / "limit")
    assert refusal(tmp_path / "limit") == ""
    files.files["000000000007.jpg"] = b"no picture"
    message = refusal(files.write(tmp_path / "beyond"))
    assert message.startswith(
        "coco: 5 of 40 records of person_keypoints_train2017.json are left out, 12.5% vs 10.0% at most: "
        "4 as train2017 has no such file, 1 as the file is not a JPEG"
    )
    assert message.endswith("correct the source, or give --allow-left-out 0.13")
    assert refusal(tmp_path / "beyond", 0.13) == ""


def test_a_split_cannot_hide_behind_a_larger_one(tmp_path: Path) -> None:
    CocoFiles("train", 40).write(tmp_path / "raw")
    files = CocoFiles("val", 2, 101)
    del files.files["000000000101.jpg"]
    assert "1 of 2 records of person_keypoints_val2017.json" in refusal(files.write(tmp_path / "raw"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"category_id": 0}, "as of another category_id"),
        ({"keypoints": [1000, 1000, 2] * 17}, "as none of the joints is labelled and in the image"),
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
    assert message.startswith(
        "coco: 10 of 10 instances of person_keypoints_train2017.json are left out, 100.0% vs 10.0%"
    )
    assert reason in message
    assert refusal(tmp_path / "raw", 1) == ""


def test_crowds_unlabelled_people_and_people_beyond_the_places_are_not_left_out(tmp_path: Path) -> None:
    files = CocoFiles(images=4)
    files.annotations[0].update(iscrowd=1)
    files.annotations[1].update(keypoints=[0] * 51, num_keypoints=0)
    files.annotations += [{**files.annotations[2], "id": number} for number in range(900, 905)]
    assert refusal(files.write(tmp_path / "raw")) == ""


def test_the_limit_holds_for_what_was_converted_before_as_well(tmp_path: Path) -> None:
    files = CocoFiles(images=40)
    for number in range(1, 6):
        del files.files[f"{number:012}.jpg"]
    source = files.write(tmp_path / "raw")
    spec = ConvertSpec(root=str(tmp_path / "root"), dataset="coco", source=str(source), side=64)
    allowed = spec.model_copy(update={"allow_left_out": 0.13})
    assert allowed.digest() == spec.digest()
    assert not convert(allowed, silent()).reused
    assert find_converted(allowed, silent()) is not None
    assert find_converted(spec, silent()) is None
    with pytest.raises(SourceError, match=r"5 of 40 records of .* 12\.5% vs 10\.0% at most"):
        convert(spec, silent())


def test_raw_pixels_have_the_limit_too() -> None:
    block = RowBlock("rows", "rows", 90)
    split = SourceSplit("train", (2, 2, 1), (block,), {})
    source = Source("tiny", ("a",), (), (split,))
    assert [(part.read, part.reasons.total()) for part in source.left_out] == [(90, 0)]
    part = LeftOut("records of the train split", 100)
    for number in range(11):
        part.add(f"the same image as test_batch[{number}] of the test split")
    with pytest.raises(SourceError, match=r"11 as the same image as test_batch\[0\] of the test split;"):
        refuse_left_out("tiny", [part], 0.1)
