"""COCO through the whole conversion: the same bytes from folders and zip files, by any number of workers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import pytest
from coco_files import HEIGHT, KEYPOINTS, WIDTH, CocoFiles, jpeg, open_coco, people_in
from raw_cifar import contents
from small_dataset import validation_of

from podline.base.errors import ArtifactError
from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.data.fitting import fitted
from podline.data.keypoints import to_annotated
from podline.data.letterbox import LetterBox
from podline.data.people.records import annotations_of
from podline.data.people.truth import read_truth
from podline.data.reader import SplitReader
from podline.data.tfrecord import header
from podline.data.versions.validation import check_files, check_records, validate
from podline.documents.manifest import Manifest, read_manifest
from podline.documents.skeleton import COCO
from podline.stages.specs import ConvertResult, ConvertSpec
from podline.stages.table import CONVERT
from podline.store.contract import Store
from podline.store.opening import open_store

SIDE = 64


class Made(NamedTuple):
    spec: ConvertSpec
    result: ConvertResult
    store: Store
    manifest: Manifest

    @property
    def folder(self) -> Path:
        return self.store.local(self.result.folder)

    def reader(self) -> SplitReader:
        return SplitReader(self.folder.joinpath, self.manifest, "train")

    def again(self) -> ConvertResult:
        return convert(self.spec, silent())


@pytest.fixture
def made(tmp_path: Path, request: pytest.FixtureRequest, parsed_here: None) -> Made:
    CocoFiles("val", 4, 101).write(tmp_path / "raw")
    files = CocoFiles("train", 12)
    files.files["000000000004.jpg"] = b""
    given = {"root": str(tmp_path / "root"), "dataset": "coco", "source": str(files.write(tmp_path / "raw"))}
    given |= {"side": SIDE, "max_people": 3, "shard_bytes": 60_000, "keep_jpeg": hasattr(request, "param")}
    spec = ConvertSpec.model_validate(given)
    result, store = convert(spec, silent()), open_store(spec.root)
    return Made(spec, result, store, read_manifest(store, result.folder))


of_jpeg_files = pytest.mark.parametrize("made", ["jpeg"], indirect=True)


def test_records_hold_what_was_annotated(made: Made) -> None:
    spec, result, store, manifest = made
    assert (result.read, result.written, result.quarantined, result.splits) == (16, 15, 1, {"train": 11, "test": 4})
    assert (manifest.kind, manifest.class_names, manifest.split("train").class_counts) == ("pose", (), ())
    assert (manifest.skeleton, "label" in {field.name for field in manifest.fields}) == (COCO, False)
    found = made.reader().gather(np.arange(11))
    assert sorted(found["image_id"].ravel().tolist()) == [1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12]
    box = LetterBox(WIDTH, HEIGHT, SIDE)
    for place, number in enumerate(found["image_id"].ravel().tolist()):
        pixels = cv2.cvtColor(cv2.imdecode(np.frombuffer(jpeg(number), np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
        assert (found["image"][place] == fitted(pixels, (SIDE, SIDE, 3), "letterbox")).all()
        assert found["annotation_ids"][place].tolist() == [100 * number, 0, 0]
    pose = found["keypoints"][0, 0]
    back = to_annotated(pose, COCO)
    given = np.reshape(KEYPOINTS, (17, 3))
    assert np.abs(box.joints_to_image(back[:, :2]) - given[:, :2]).max() < 1 / 64  # half a step of 1/64, and rounding
    assert (back[:, 2] == given[:, 2]).all()
    assert pose[COCO.index["neck"], 2] == 1
    assert not found["keypoints"][:, 1:].any()
    assert found["size"][0].tolist() == [WIDTH, HEIGHT]
    assert found["people"].tolist() == [1] * 11
    assert not found["ignored"].any()
    validate(validation_of(spec.root, "coco", result.fingerprint), silent())
    assert CONVERT.find(spec, silent()) == result.model_copy(update={"reused": True})
    truth = read_truth(store, result.folder, manifest, "train")
    assert sorted(image["id"] for image in truth["images"]) == sorted(found["image_id"].ravel().tolist())


def test_a_truth_is_verified_like_a_shard(made: Made) -> None:
    spec, result, store, manifest = made
    before = contents(spec)
    store.local(f"{result.folder}/truth-test.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"truth-test\.json has 2 bytes vs"):
        check_records(store, result.folder, manifest, silent())
    assert CONVERT.find(spec, silent()) is None
    assert made.again().shards_reused == result.shards_written
    assert contents(spec) == before
    # The test split, judged by the images of the training split.
    swapped = manifest.split("test").model_copy(update={"truth": manifest.split("train").truth})
    other = manifest.model_copy(update={"splits": (manifest.split("train"), swapped)})
    with pytest.raises(ArtifactError, match=r"split 'test': image 1 is in truth-test\.json, but not in the records"):
        check_records(store, result.folder, other, silent())


@of_jpeg_files
def test_damages_of_jpeg_files_are_named(made: Made) -> None:
    _, _, store, manifest = made
    file, _, byte = made.reader().locate(1)
    path = made.folder / file
    content = path.read_bytes()
    path.write_bytes(content[: byte + 900] + b"?" + content[byte + 901 :])
    for look in (lambda: check_files(store, manifest, silent()), lambda: made.reader().gather(np.array([1]))):
        with pytest.raises(ArtifactError, match=rf"{file}: record 1, at byte {byte}, has the masked CRC-32C"):
            look()


@of_jpeg_files
def test_an_index_says_where_records_begin_and_is_written_again_when_it_is_damaged(made: Made) -> None:
    shard = made.manifest.split("train").shards[0]
    assert shard.index
    index, data = made.folder / shard.index.file, (made.folder / shard.file).read_bytes()
    starts, content = np.load(index), index.read_bytes()
    for start, end in itertools.pairwise(starts.tolist()):
        assert data[start : start + 12] == header(end - start - 16)
    assert (len(starts), starts[-1]) == (shard.records + 1, len(data))
    for damage in (index.unlink, lambda: index.write_bytes(content[:-1] + b"?")):
        damage()
        for look in (lambda: check_files(made.store, made.manifest, silent()), made.reader):
            with pytest.raises(ArtifactError, match=rf"{index.name} (is gone|has .*sha256).*convert"):
                look()
        again = made.again()
        assert (again.shards_written, again.shards_reused) == (1, 1)
        assert index.read_bytes() == content


def test_no_joint_of_a_converted_person_changes_sides(tmp_path: Path) -> None:
    files = CocoFiles(images=17)
    for joint, annotation in zip(range(17), files.annotations, strict=True):
        annotation["keypoints"] = [
            value for place in range(17) for value in ((20, 10, 2) if place == joint else (0, 0, 0))
        ]
        annotation["num_keypoints"] = 1
    found = open_coco(files.write(tmp_path), tmp_path / "work", side=SIDE, max_people=3)
    for image in [image for split in people_in(found).values() for image in split]:
        columns = annotations_of([image], found.settings, COCO)
        [place] = np.flatnonzero(columns["keypoints"][0, 0, :, 2])
        assert COCO.joints[place] == COCO.annotated[image.id - 1]
