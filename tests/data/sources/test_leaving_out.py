"""What is left out of a source: images in two splits or with two labels, and how much may be left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from coco_files import CocoFiles, open_coco

from podline.beam_jobs.conversion import convert
from podline.data.rows import RowBlock, SourceSplit
from podline.data.sources.duplicates import contradiction_lines, image_crcs, same_images
from podline.data.sources.left_out import LeftOut, refuse_left_out
from podline.data.sources.source import Source
from podline.datasets.fingerprint import find_converted
from podline.errors import SourceError
from podline.progress import silent
from podline.stages.specs import ConvertSpec

pytestmark = pytest.mark.usefixtures("parsed_here")


def split_of(folder: Path, name: str, *batches: np.ndarray) -> SourceSplit:
    """A split whose labels are positions."""
    blocks = []
    for number, rows in enumerate(batches):
        path = folder / f"{name}_{number}"
        rows.tofile(path)
        blocks.append(RowBlock(path.name, str(path), len(rows)))
    labels = np.arange(sum(map(len, batches))).astype(np.uint8)
    return SourceSplit(name, (2, 2, 1), tuple(blocks), {"label": labels})


def numbered(*numbers: int) -> np.ndarray:
    """Images that are equal where their numbers are."""
    return np.array([[n % 256, n // 256, 0, 0] for n in numbers], np.uint8).reshape(-1, 4)


def source_of(*splits: SourceSplit) -> Source:
    return Source("tiny", tuple(f"class {number}" for number in range(256)), (), splits)


def test_splits_that_are_apart_if_only_by_a_bit_stay_as_they_are(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (200, 4), np.uint8)
    nearly = images[:1].copy()
    nearly[0, 3] ^= 1
    train = split_of(tmp_path, "train", nearly, numbered(2, 2))
    source = source_of(train, split_of(tmp_path, "test", images))
    assert source.looked_at()[0] is source


def test_shared_images_are_kept_out_of_training(tmp_path: Path) -> None:
    train = split_of(tmp_path, "train", numbered(*range(100)), numbered(900, 5, 400, 900))
    test = split_of(tmp_path, "test", numbered(*range(1000, 1150)), numbered(*range(800, 950)), numbered(900))
    source, remarks = source_of(train, test).looked_at()
    assert [record.model_dump() for record in source.quarantined] == [
        {"split": "train", "record": "train_1[0]", "reason": "the same image as test_1[100] of the test split"},
        {"split": "train", "record": "train_1[3]", "reason": "the same image as test_1[100] of the test split"},
    ]
    assert "train" in remarks.contradicting  # of what is left: 5 is there twice
    apart = source.splits[0]
    assert (len(apart), len(source.splits[1])) == (102, 301)
    assert apart.read(np.arange(102))["label"].tolist() == [*range(100), 101, 102]
    assert [apart.record_name(index) for index in (99, 100, 101)] == ["train_0[99]", "train_1[1]", "train_1[2]"]
    assert source.looked_at()[0] is source, "nothing is left to quarantine"


def test_records_quarantined_before_stay_out(tmp_path: Path) -> None:
    train = replace(split_of(tmp_path, "train", numbered(7, 1, 2, 3)), kept=np.array([1, 2, 3]))
    test = split_of(tmp_path, "test", numbered(2, *range(100, 200)))
    source, _ = source_of(train, test).looked_at()
    assert [record.record for record in source.quarantined] == ["train_0[2]"]
    assert source.splits[0].kept is not None
    assert source.splits[0].kept.tolist() == [1, 3]


def test_one_in_a_hundred_is_the_limit(tmp_path: Path) -> None:
    test = split_of(tmp_path, "test", numbered(*range(300)))
    at_limit = split_of(tmp_path, "train", numbered(1000, 10, 20, 20, 30))
    source, remarks = source_of(at_limit, test).looked_at()
    assert len(source.quarantined) == 4
    assert remarks.contradicting == {}, "what is quarantined contradicts nothing"
    beyond = split_of(tmp_path, "train", numbered(1000, 10, 20, 30, 40))
    told = (
        r"tiny: 4 of the 300 test images are training images as well \(train_0\[1\] and test_0\[10\] are the first\)"
        r" vs 1% at most.*the score would not hold for new images"
    )
    with pytest.raises(SourceError, match=told):
        source_of(beyond, test).looked_at()


def test_an_image_with_two_labels_is_counted_where_it_is_rare_and_refused_where_it_is_not(tmp_path: Path) -> None:
    train = split_of(tmp_path, "train", numbered(*range(400)), numbered(7, 7, 9))
    test = split_of(tmp_path, "test", numbered(*range(1000, 1100)), numbered(1000))
    alike = replace(train, targets={"label": np.zeros(403, np.uint8)})
    assert source_of(alike, test).looked_at()[1].contradicting == {"test": 2}
    told = (
        r"tiny: 5 of the 403 records of the train split have the image of another one and another label "
        r"\(train_0\[7\] is class 7 and train_1\[0\] is class 144, for one\) vs 1% at most"
    )
    with pytest.raises(SourceError, match=told):
        source_of(train, test).looked_at()
    assert contradiction_lines({"test": 2, "train": 1})[1] == (
        "labelled in two ways: 1 record of the train split with the image of another one in it"
    )


def test_groups_of_equal_images_in_order_of_which_only_candidates_are_read() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3000, 64), np.uint8)[:, 8:56]
    images[2999] = images[5]
    images[[1000, 70]] = images[2000]
    asked: list[int] = []

    def read(positions: np.ndarray) -> np.ndarray:
        asked.extend(positions.tolist())
        return images[positions]

    assert same_images(image_crcs(images), read) == [[5, 2999], [70, 1000, 2000]]
    assert sorted(set(asked)) == [5, 70, 1000, 2000, 2999]
    asked.clear()
    assert same_images(np.zeros(3000, np.uint32), read)[0] == [5, 2999], "an equal checksum is not enough"


def refusal(folder: Path, allowed: float = 0.1) -> str:
    """What is said of a folder of which more is left out than is allowed; nothing where it is not."""
    source = open_coco(folder, folder / "work", max_people=2)
    try:
        refuse_left_out("coco", source.left_out, allowed)
    except SourceError as error:
        return str(error)
    return ""


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
    assert "10 of 10 instances of person_keypoints_train2017.json are left out, 100.0% vs 10.0%" in message
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
        "coco: 5 of 40 records of person_keypoints_train2017.json are left out, 12.5% vs 10.0% at most: "
        "4 as train2017 has no such file, 1 as the file is not a JPEG"
    )
    assert message.endswith("correct the source, or give --allow-left-out 0.13")
    (tmp_path / "limit" / "val2017" / "000000000101.jpg").unlink()
    assert "1 of 2 records of person_keypoints_val2017.json" in refusal(tmp_path / "limit")
    spec = ConvertSpec(root=str(tmp_path / "root"), dataset="coco", source=str(tmp_path / "beyond"), side=64)
    allowed = spec.model_copy(update={"allow_left_out": 0.13})
    assert allowed.digest() == spec.digest()
    assert not convert(allowed, silent()).reused
    assert find_converted(allowed, silent()) is not None
    assert find_converted(spec, silent()) is None
    with pytest.raises(SourceError, match=r"5 of 40 records of .* 12\.5% vs 10\.0% at most"):
        convert(spec, silent())


def test_reasons_that_differ_in_a_place_alone_are_counted_together() -> None:
    part = LeftOut("records of the train split", 100)
    for number in range(11):
        part.add(f"the same image as test_batch[{number}] of the test split")
    with pytest.raises(SourceError, match=r"11 as the same image as test_batch\[0\] of the test split;"):
        refuse_left_out("tiny", [part], 0.1)
