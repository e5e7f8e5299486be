"""COCO is read by every rule of docs/how-to/coco.md, and people are judged by what it says, to the last digit."""

from __future__ import annotations

import io
import json
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_files import HEIGHT, WIDTH, CocoFiles, jpeg, open_coco, people_in, person
from PIL import Image

from podline.base.errors import SourceError
from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.data.headers import PictureError, inspect_jpeg
from podline.data.people.image import chosen
from podline.data.people.truth import read_truth
from podline.data.sources.left_out import LeftOut, refuse_left_out
from podline.data.sources.source import Source
from podline.data.versions.fingerprint import find_converted
from podline.documents import skeleton
from podline.documents.manifest import FileInfo, Manifest, SplitInfo
from podline.documents.shard_table import ShardTable
from podline.stages.specs import ConvertSpec
from podline.store.folder import FolderStore

pytestmark = pytest.mark.usefixtures("parsed_here")


def opened(folder: Path, **settings: Any) -> Source:
    return open_coco(folder, folder.parent / f"{folder.name} work", **settings)


def ids(source: Source) -> dict[str, list[int]]:
    return {name: [image.id for image in images] for name, images in people_in(source).items()}


def both(tmp_path: Path, train: CocoFiles, **options: Any) -> Source:
    """The source of a training split and a plain test split of images 101 and 102."""
    CocoFiles("val", 2, 101).write(tmp_path)
    return opened(train.write(tmp_path), **options)


def left_out(source: Source) -> dict[str, str]:
    assert source.read == sum(source.sizes.values()) + len(source.quarantined)
    return {record.record: record.reason for record in source.quarantined}


def image_of(source: Source, number: int) -> Any:
    return next(image for image in people_in(source)["train"] if image.id == number)


def test_one_split_is_cut_by_content_alone(tmp_path: Path) -> None:
    many, few = CocoFiles(images=60), CocoFiles(images=40)
    whole, part = ids(opened(many.write(tmp_path / "a"))), ids(opened(few.write(tmp_path / "b")))
    assert sorted(whole["train"] + whole["test"]) == list(range(1, 61))
    assert 5 <= len(whole["test"]) <= 20
    assert part["test"] == [number for number in whole["test"] if number <= 40]


def test_zip_files_are_the_same_source_as_folders(tmp_path: Path) -> None:
    for zipped in (False, True):
        for split, first in (("train", 1), ("val", 101)):
            CocoFiles(split, 3, first).write(tmp_path / str(zipped), zipped=zipped)
    folders, zips = opened(tmp_path / "False"), opened(tmp_path / "True")
    assert folders.files == zips.files
    assert ids(folders) == ids(zips) == {"train": [1, 2, 3], "test": [101, 102, 103]}
    assert (folders.read, folders.quarantined, folders.counted) == (6, (), {})
    assert people_in(folders) == people_in(zips)
    for here, packed in zip(folders.splits, zips.splits, strict=True):
        np.testing.assert_array_equal(folders.pixels(here.kept), zips.pixels(packed.kept))


NUMBERS = "annotation {}00: its keypoints"
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"keypoints": [1, 2, 2]}, f"{NUMBERS} have 3 numbers, expected 51"),
    ({"keypoints": [float("nan")] * 51}, f"{NUMBERS} 0 is nan: Input"),
    ({"keypoints": [10**400] * 51}, f"{NUMBERS} 0 is 1000"),
    ({"keypoints": [1, 1, 7] * 17}, "annotation {}00: a keypoint has the visibility 7"),
    ({"bbox": [1, 2, float("nan"), 4]}, "annotation {}00: its bbox 2 is nan: Input should be a finite"),
    ({"bbox": [1, 2, -3, 4]}, "annotation {}00: its bbox 2 is -3: Input should be greater than or"),
    ({"iscrowd": 2}, "annotation {}00: its iscrowd is 2: Input should be less than or equal to 1"),
    (
        {"num_keypoints": 0, "keypoints": [0] * 51, "segmentation": [[math.inf] * 6]},
        "annotation {}00: its segmentation",
    ),
    ({"iscrowd": 1, "segmentation": {"size": [5, 5], "counts": [25]}}, "annotation {}00: run lengths"),
    ({"iscrowd": 1, "segmentation": [7]}, "annotation {}00: its segmentation polygons 0 is 7: Input"),
]


def test_a_person_that_cannot_be_read_leaves_its_image_out(tmp_path: Path) -> None:
    files = CocoFiles(images=len(BROKEN) + 4)
    for number, (changed, _reason) in enumerate(BROKEN, start=2):
        files.annotations[number] |= changed
    found = left_out(both(tmp_path, files))
    for number, (_changed, reason) in enumerate(BROKEN, start=3):
        assert found.pop(f"{number:012}.jpg (image {number})").startswith(reason.format(number)), reason
    assert not found


def exif(orientation: int, width: int = WIDTH, height: int = HEIGHT) -> bytes:
    stream, tags = io.BytesIO(), Image.Exif()
    tags[0x0112] = orientation
    Image.open(io.BytesIO(jpeg(3, width, height))).save(stream, "JPEG", exif=tags)
    return stream.getvalue()


def bomb() -> bytes:
    data = bytearray(jpeg(3))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = b"\xff\xff\xff\xff"
    return bytes(data)


FILES = [
    (None, "is not in the source"),
    (jpeg(3)[:-200], "is truncated"),
    (b"", "is empty"),
    (bomb(), "has 65535×65535 pixels vs 48,000,000 at most"),
    (jpeg(3, 50, 32), "has 50×32 pixels vs 48×32 in the annotations"),
    (jpeg(3).replace(b"\xff\xdb", b"\xff\xfe"), "is damaged: it cannot be decoded"),  # only by its decoder
    (b"", "has more than 128,000,000 bytes"),  # of which the disk holds next to nothing
]


def test_a_file_that_cannot_be_decoded_is_left_out(tmp_path: Path) -> None:
    files = CocoFiles(images=len(FILES) + 3)
    names = [f"{number:012}.jpg" for number in range(3, len(FILES) + 3)]
    files.files |= {name: content or b"" for name, (content, _reason) in zip(names, FILES, strict=True)}
    files.write(tmp_path)
    (tmp_path / "train2017" / names[0]).unlink()
    os.truncate(tmp_path / "train2017" / names[-1], 128_000_001)
    CocoFiles("val", 2, 101).write(tmp_path)
    found = left_out(opened(tmp_path))
    for name, (_content, reason) in zip(names, FILES, strict=True):
        assert reason in found.pop(f"{name} (image {int(name[:-4])})")
    assert not found


def test_every_cut_of_a_jpeg_is_found() -> None:
    data = jpeg(5)
    for length in range(len(data)):
        with pytest.raises(PictureError):
            inspect_jpeg(data[:length])


def test_images_listed_wrongly(tmp_path: Path) -> None:
    files = CocoFiles()
    files.images[0]["width"] = "wide"
    files.images[1]["file_name"] = "elsewhere.jpg"
    files.images[2].pop("width")
    files.images += [dict(files.images[4]), files.images[5] | {"file_name": "000000000007.jpg"}, 17]
    files.images.append(files.images[3] | {"id": 400})
    files.annotations += [person(9000, 9), "nothing", person(9001, 8, category_id=2)]
    source = both(tmp_path, files)
    assert source.counted == {"annotations of other categories": 1, "image files that no entry lists": 3}
    found = left_out(source)
    assert found["annotations[8]"] == "there is no image 9"
    assert found["annotations[9]"] == "there is no image 'nothing'"
    assert "its width is 'wide': Input should be a valid integer" in found["images[0]"]
    assert found["annotations[0]"] == "there is no image 1"
    assert found["elsewhere.jpg (image 2)"] == "is not in the source"
    assert found["images[2]"] == "got one of width and height, expected both or neither"
    assert "its id is also that of 000000000005.jpg" in found["000000000005.jpg (image 5)"]
    assert "its id is also that of 000000000007.jpg" in found["000000000006.jpg (image 6)"]
    assert "its id is also that of 000000000006.jpg" in found["000000000007.jpg (image 6)"]
    assert "its file is also that of 000000000004.jpg (image 400)" in found["000000000004.jpg (image 4)"]
    assert "its file is also that of 000000000004.jpg (image 4)" in found["000000000004.jpg (image 400)"]
    assert found["images[10]"].startswith("Input should be a valid dictionary")


def test_what_is_written_all_the_same_is_counted(tmp_path: Path) -> None:
    files = CocoFiles(images=13)
    crowd = {"iscrowd": 1, "segmentation": {"size": [HEIGHT, WIDTH], "counts": [100, 36, HEIGHT * WIDTH - 136]}}
    nobody = {"num_keypoints": 0, "keypoints": [0] * 51}
    at = files.annotations
    del at[11]  # image 12
    at[0] |= crowd
    at[1] |= nobody
    at[2]["keypoints"] = [WIDTH, 5, 2, -1, 5, 2, *at[2]["keypoints"][6:]]
    at[3] |= {"bbox": [5, 5, 0, 0], "area": 0}
    at[4] |= {"num_keypoints": 3}
    at[5]["keypoints"] = [7, 7, 2, 7, 7, 2] + [0] * 45
    at[5]["num_keypoints"] = 2
    at += [person(7000 + n, 7, area=10.0 * (n + 1)) for n in range(3)]
    at[7]["keypoints"] = [-5, 3, 2] * 17
    for number, name, mode in ((9, "JPEG", "L"), (10, "WEBP", "RGB")):
        stream = io.BytesIO()
        Image.open(io.BytesIO(jpeg(number))).convert(mode).save(stream, name)
        files.files[f"{number:012}.jpg"] = stream.getvalue()
    files.files["000000000011.jpg"] = exif(3)
    files.files["000000000013.jpg"] = exif(6, HEIGHT, WIDTH)
    files.files["unlisted.jpg"] = jpeg(77)
    source = both(tmp_path, files, max_people=2)
    assert left_out(source) == {}
    assert source.counted == {
        "boxes of no size": 1,
        "crowds": 1,
        "image files that no entry lists": 1,
        "images without instances": 1,
        "labelled joints outside the image": 19,
        "left as stored in spite of EXIF": 1,
        "instances beyond the places of a record": 2,
        "instances whose num_keypoints is wrong": 1,
        "instances without a labelled joint": 2,
        "turned as EXIF says": 1,
    }
    (third, _), (fourth, _), (seventh, beyond) = (
        chosen(image_of(source, number), 2, Counter()) for number in (3, 4, 7)
    )
    assert [one.id for one in seventh] == [700, 7002]
    assert [annotation["id"] for annotation in beyond] == [7001, 7000]
    assert not any(third[0].keypoints[:6])
    assert fourth[0].bbox == (5, 3, 33, 17)


def test_splits_never_share_an_image_and_equal_ids_are_not_the_same_image(tmp_path: Path) -> None:
    files = CocoFiles()
    files.images[0]["id"] = 101
    files.annotations[0]["image_id"] = 101
    files.files["000000000002.jpg"] = jpeg(102)
    CocoFiles("val", 100, 101).write(tmp_path)
    source = opened(files.write(tmp_path))
    told = "the same image as one of the test split: 000000000102.jpg (image 102)"
    assert left_out(source) == {"000000000002.jpg (image 2)": told}
    assert ids(source) == {"train": [3, 4, 5, 6, 7, 8, 101], "test": [*range(101, 201)]}


@pytest.mark.parametrize(
    ("of_images", "of_people", "are"),
    [
        (float, str, ([*range(1, 9)], [100 * n for n in range(1, 9)])),
        (lambda n: f"img{n:03}", lambda n: 2**63 + n, ([*range(1, 9)], [*range(1, 9)])),
        (lambda n: n - 1, lambda _: 0, ([*range(8)], [*range(1, 9)])),  # from 0, and anew in each image
    ],
)
def test_ids_are_names_in_any_form(tmp_path: Path, of_images: Any, of_people: Any, are: tuple[list[int], ...]) -> None:
    files = CocoFiles()
    for entry, annotation in zip(files.images, files.annotations, strict=True):
        entry["id"] = annotation["image_id"] = of_images(entry["id"])
        annotation |= {"id": of_people(annotation["id"]), "category_id": "1"}
    source = both(tmp_path, files)
    assert left_out(source) == {}
    images = people_in(source)["train"]
    people = [json.loads(text) for image in images for text in image.annotations]
    assert ([image.id for image in images], [one["id"] for one in people]) == are
    assert [one["image_id"] for one in people] == are[0]
    files.annotations.append(dict(files.annotations[2]))
    [again] = left_out(both(tmp_path / "twice", files)).values()
    assert "occurs twice" in again


def test_near_duplicates_are_searched_where_a_share_of_them_is_refused(tmp_path: Path) -> None:
    test, stream = CocoFiles("val", 40, 101), io.BytesIO()
    Image.open(io.BytesIO(jpeg(3))).save(stream, "JPEG", quality=90)
    test.files["000000000101.jpg"] = stream.getvalue()
    test.write(tmp_path / "raw")
    folder = CocoFiles().write(tmp_path / "raw")
    assert opened(folder).near == ()
    assert not list((tmp_path / "raw work").glob("*/hashes"))
    source = opened(folder, near_share=0)
    assert [(pair.image.key, pair.repeated.key) for pair in source.near] == [
        ("000000000101.jpg (image 101)", "000000000003.jpg (image 3)")
    ]
    assert source.counted["test images that nearly repeat a training image"] == 1


def test_places_that_hold_no_coco(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is empty"):
        opened(tmp_path)
    with pytest.raises(SourceError, match="does not exist"):
        opened(tmp_path / "nowhere")
    folder = CocoFiles().write(tmp_path / "a")
    (folder / "annotations" / "person_keypoints_val2014.json").write_bytes(CocoFiles("val", 2, 201).document())
    CocoFiles("val", 2, 101).write(folder)
    with pytest.raises(SourceError, match="3 files of keypoints; expected one file"):
        opened(folder)
    lost = CocoFiles()
    lost.files = {}
    with pytest.raises(SourceError, match=r"train2017.json: none of its images \(000000000001.jpg, "):
        opened(lost.write(tmp_path / "b"))
    os.truncate(CocoFiles().write(tmp_path / "c", zipped=True) / "train2017.zip", 900)
    with pytest.raises(SourceError, match=r"train2017\.zip cannot be read as a zip file"):
        opened(tmp_path / "c")


CROWD = {"iscrowd": 1, "num_keypoints": 0, "segmentation": {"size": [32, 48], "counts": [100, 36, 1400]}}


def manifest_of(source: Source, truths: dict[str, FileInfo]) -> Manifest:
    none = {"shards": ShardTable.of([]), "class_counts": (), "mean": (), "std": ()}
    splits = [SplitInfo(name=name, records=n, truth=truths.get(name), **none) for name, n in source.sizes.items()]
    return Manifest.model_construct(splits=tuple(splits))


def truths_of(folder: Path, root: Path) -> dict[str, dict[str, Any]]:
    source = open_coco(folder, root / "work", max_people=2)
    manifest = manifest_of(source, source.publish_truths(FolderStore(root), "d"))
    return {split: read_truth(FolderStore(root), "d", manifest, split) for split in source.sizes}


def test_annotations_are_taken_over_as_they_stand(tmp_path: Path) -> None:
    CocoFiles("val", 2, 101).write(tmp_path)
    files = CocoFiles(images=9)
    files.files["000000000004.jpg"] = b""
    # More people than places, a wrong count, a joint outside the image, odd numbers, no area: COCO's judge sees it all.
    files.annotations[1] |= {"bbox": [0.1, 2.25, 36, 1e-3], "area": 1 / 3, "num_keypoints": 2}
    files.annotations[2] |= {"keypoints": [-5.5, 3, 2] * 17, "area": 0}
    files.annotations[4] |= CROWD
    files.annotations += [files.annotations[0] | {"id": 1000 + number, "area": 100.5 + number} for number in range(4)]
    truth = truths_of(files.write(tmp_path), tmp_path / "root")["train"]
    assert [image["id"] for image in truth["images"]] == [1, 2, 3, 5, 6, 7, 8, 9]
    assert truth["images"][0] == files.images[0]
    given = {annotation["id"]: annotation for annotation in files.annotations}
    assert len(truth["annotations"]) == len(given) - 1
    for annotation in truth["annotations"]:
        expected = dict(given[annotation["id"]])
        if not expected["iscrowd"]:
            del expected["segmentation"]
        assert annotation == expected
    assert [annotation["id"] for annotation in truth["annotations"][:5]] == [100, 1000, 1001, 1002, 1003]
    [category] = truth["categories"]
    assert (category["id"], tuple(category["keypoints"])) == (1, skeleton.COCO.annotated)


def test_what_pycocotools_cannot_do_without_is_put_in(tmp_path: Path) -> None:
    files = CocoFiles()
    files.annotations[0] |= CROWD
    for annotation, keys in zip(files.annotations, (["keypoints", "num_keypoints"], ["num_keypoints"]), strict=False):
        for key in keys:
            del annotation[key]
    truths = truths_of(files.write(tmp_path), tmp_path / "root")
    found = {one["id"]: one for truth in truths.values() for one in truth["annotations"]}
    assert (found[100]["keypoints"], found[100]["num_keypoints"]) == ([0] * 51, 0)
    assert found[200]["num_keypoints"] == 17


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
        ({"category_id": 0}, "of another category_id (10)"),
        ({"keypoints": [5, 5, 0] * 17}, "none of the joints is labelled and in the image (10)"),
        ({"keypoints": [0] * 51}, "no instance has a joint that is labelled (10)"),
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
        "is not in the source (4), is not a JPEG"
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
    with pytest.raises(SourceError, match=r"the same image as test_batch\[0\] of the test split \(11\);"):
        refuse_left_out("tiny", [part], 0.1)


def test_the_share_that_an_error_advises_is_accepted() -> None:
    part = LeftOut("records of the train split", 100)
    part.add("is empty", 29)  # 0.29 * 100 is less than 29
    with pytest.raises(SourceError, match=r"give --allow-left-out 0\.29$"):
        refuse_left_out("tiny", [part], 0.28)
    refuse_left_out("tiny", [part], 0.29)
