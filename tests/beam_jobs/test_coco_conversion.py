"""COCO through the whole conversion: the same bytes from folders and zip files, by any number of workers."""

from __future__ import annotations

import itertools
from pathlib import Path

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
from podline.documents.manifest import Manifest, SplitInfo, read_manifest
from podline.documents.skeleton import COCO
from podline.stages.specs import ConvertSpec
from podline.stages.table import CONVERT
from podline.store.opening import open_store

SIDE = 64


def spec_of(root: Path | str, source: Path, **settings: object) -> ConvertSpec:
    given = {"root": str(root), "dataset": "coco", "source": str(source), "side": SIDE, "max_people": 3}
    return ConvertSpec.model_validate({**given, "shard_bytes": 60_000, **settings})


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    CocoFiles("val", 4, 101).write(tmp_path / "raw")
    files = CocoFiles("train", 12)
    files.files["000000000004.jpg"] = b""
    return files.write(tmp_path / "raw")


@pytest.mark.usefixtures("parsed_here")
def test_records_hold_what_was_annotated(tmp_path: Path, raw: Path) -> None:
    spec = spec_of(tmp_path / "root", raw)
    result = convert(spec, silent())
    assert (result.read, result.written, result.quarantined, result.splits) == (16, 15, 1, {"train": 11, "test": 4})
    store = open_store(spec.root)
    manifest = read_manifest(store, result.folder)
    assert (manifest.kind, manifest.class_names, manifest.split("train").class_counts) == ("pose", (), ())
    assert (manifest.skeleton, "label" in {field.name for field in manifest.fields}) == (COCO, False)
    found = SplitReader(store.local(result.folder).joinpath, manifest, "train").gather(np.arange(11))
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


@pytest.mark.usefixtures("parsed_here")
def test_a_truth_is_verified_like_a_shard(tmp_path: Path, raw: Path) -> None:
    spec = spec_of(tmp_path / "root", raw)
    result = convert(spec, silent())
    store = open_store(spec.root)
    manifest = read_manifest(store, result.folder)
    before = contents(spec)
    store.local(f"{result.folder}/truth-test.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"truth-test\.json has sha256"):
        check_records(store, result.folder, manifest, silent())
    assert CONVERT.find(spec, silent()) is None
    again = convert(spec, silent())
    assert again.shards_reused == result.shards_written
    assert contents(spec) == before
    other = manifest.model_copy(update={"splits": (manifest.split("train"), swapped(manifest))})
    with pytest.raises(ArtifactError, match=r"split 'test': image 1 is in truth-test\.json, but not in the records"):
        check_records(store, result.folder, other, silent())


def swapped(manifest: Manifest) -> SplitInfo:
    """The test split, to be judged by the images of the training split (its shards are as they were)."""
    return manifest.split("test").model_copy(update={"truth": manifest.split("train").truth})


@pytest.mark.usefixtures("parsed_here")
def test_what_is_damaged_in_jpeg_files_is_named(tmp_path: Path, raw: Path) -> None:
    spec = spec_of(tmp_path / "root", raw, keep_jpeg=True)
    result = convert(spec, silent())
    store = open_store(spec.root)
    manifest, folder = read_manifest(store, result.folder), store.local(result.folder)
    file, _, byte = SplitReader(folder.joinpath, manifest, "train").locate(1)
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: byte + 900] + b"?" + content[byte + 901 :])
    said = rf"{file}: record 1, at byte {byte}, has the masked CRC-32C"
    with pytest.raises(ArtifactError, match=said):
        check_files(store, manifest, silent())
    with pytest.raises(ArtifactError, match=said):
        SplitReader(folder.joinpath, manifest, "train").gather(np.array([1]))
    for damaged in (content[:-1], content + b"more"):
        (folder / file).write_bytes(damaged)
        with pytest.raises(ArtifactError, match=rf"{file} has {len(damaged)} bytes vs {len(content)} in the manifest"):
            SplitReader(folder.joinpath, manifest, "train")
    (folder / file).unlink()
    with pytest.raises(ArtifactError, match=rf"{file} is gone"):
        SplitReader(folder.joinpath, manifest, "train")


@pytest.mark.usefixtures("parsed_here")
def test_an_index_says_where_records_begin_and_is_written_again_when_it_is_damaged(tmp_path: Path, raw: Path) -> None:
    spec = spec_of(tmp_path / "root", raw, keep_jpeg=True)
    result = convert(spec, silent())
    store = open_store(spec.root)
    manifest, folder = read_manifest(store, result.folder), store.local(result.folder)
    shard = manifest.split("train").shards[0]
    assert shard.index
    index, data = folder / shard.index.file, (folder / shard.file).read_bytes()
    starts, content = np.load(index), index.read_bytes()
    for start, end in itertools.pairwise(starts.tolist()):
        assert data[start : start + 12] == header(end - start - 16)
    assert (len(starts), starts[-1]) == (shard.records + 1, len(data))
    for damage in (index.unlink, lambda: index.write_bytes(content[:-1] + b"?")):
        damage()
        for look in (check_files, lambda _store, manifest, _reporter: SplitReader(folder.joinpath, manifest, "train")):
            with pytest.raises(ArtifactError, match=rf"{index.name} (is gone|has .*sha256).*convert"):
                look(store, manifest, silent())
        again = convert(spec, silent())
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
