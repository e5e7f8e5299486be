"""COCO through the whole conversion: the same bytes from folders and zip files, by any number of workers."""

from __future__ import annotations

import io
from pathlib import Path

import cv2
import numpy as np
import pytest
from coco_files import HEIGHT, KEYPOINTS, WIDTH, CocoFiles, jpeg
from PIL import Image

from beam_jobs import steps
from beam_jobs.conversion import convert
from podline.data import coco_records
from podline.data.coco_letterbox import LetterBox
from podline.data.coco_truth import read_truth
from podline.data.keypoints import INDEX, to_coco
from podline.data.manifest import Manifest, SplitInfo, read_manifest
from podline.data.reader import SplitReader
from podline.data.validation import check_dataset, validate
from podline.errors import ArtifactError, SourceError
from podline.progress import silent
from podline.stages import CONVERT, ConvertSpec, ValidateSpec, manifest_sha256
from podline.storage import open_store

SIDE = 64


def spec_of(root: Path, source: Path, **settings: object) -> ConvertSpec:
    given = {"root": str(root), "dataset": "coco", "source": str(source), "side": SIDE, "max_people": 3}
    return ConvertSpec.model_validate({**given, "shard_bytes": 60_000, **settings})


def contents(spec: ConvertSpec) -> dict[str, bytes]:
    store = open_store(spec.root)
    return {name: store.read_bytes(name) for name in store.list("datasets") if "/stages/" not in name}


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    CocoFiles("val", 4, 101).write(tmp_path / "raw")
    files = CocoFiles("train", 12)
    files.files["000000000004.jpg"] = b""
    return files.write(tmp_path / "raw")


def test_records_hold_what_was_annotated(tmp_path: Path, raw: Path) -> None:
    spec = spec_of(tmp_path / "root", raw)
    result = convert(spec, silent())
    assert (result.read, result.written, result.quarantined, result.splits) == (16, 15, 1, {"train": 11, "test": 4})
    store = open_store(spec.root)
    manifest = read_manifest(store, result.folder)
    assert manifest.split("train").class_counts == (0, 0, 11)
    found = SplitReader(store.local(result.folder), manifest, "train").gather(np.arange(11))
    assert sorted(found["image_id"].ravel().tolist()) == [1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12]
    box = LetterBox(WIDTH, HEIGHT, SIDE)
    for place, number in enumerate(found["image_id"].ravel().tolist()):
        pixels = cv2.cvtColor(cv2.imdecode(np.frombuffer(jpeg(number), np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
        assert (found["image"][place] == box.place(pixels)).all()
        assert found["annotation_ids"][place].tolist() == [100 * number, 0, 0]
    pose = found["keypoints"][0, 0]
    back = to_coco(pose)
    given = np.reshape(KEYPOINTS, (17, 3))
    assert np.abs(box.joints_to_image(back[:, :2]) - given[:, :2]).max() < 1 / 64  # half a step of 1/64, and rounding
    assert (back[:, 2] == given[:, 2]).all()
    assert pose[INDEX["neck"], 2] == 1
    assert not found["keypoints"][:, 1:].any()
    assert found["size"][0].tolist() == [WIDTH, HEIGHT]
    assert found["people"].tolist() == [1] * 11
    assert not found["ignored"].any()
    validate(
        ValidateSpec(
            root=spec.root,
            dataset="coco",
            fingerprint=result.fingerprint,
            manifest_sha256=manifest_sha256(store, result.folder),
        ),
        silent(),
    )
    assert CONVERT.find(spec, silent()) == result.model_copy(update={"reused": True})
    truth = read_truth(store, result.folder, manifest, "train")
    assert sorted(image["id"] for image in truth["images"]) == sorted(found["image_id"].ravel().tolist())


def test_a_truth_is_verified_like_a_shard(tmp_path: Path, raw: Path) -> None:
    spec = spec_of(tmp_path / "root", raw)
    result = convert(spec, silent())
    store = open_store(spec.root)
    manifest = read_manifest(store, result.folder)
    before = contents(spec)
    store.local(f"{result.folder}/truth-test.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"truth-test\.json has sha256"):
        check_dataset(store, result.folder, manifest, silent())
    assert CONVERT.find(spec, silent()) is None
    again = convert(spec, silent())
    assert again.shards_reused == result.shards_written
    assert contents(spec) == before
    other = manifest.model_copy(update={"splits": (manifest.split("train"), swapped(manifest))})
    with pytest.raises(ArtifactError, match=r"split 'test': image 1 is in truth-test\.json, but not in the records"):
        check_dataset(store, result.folder, other, silent())


def swapped(manifest: Manifest) -> SplitInfo:
    """The test split, to be judged by the images of the training split (its shards are as they were)."""
    return manifest.split("test").model_copy(update={"truth": manifest.split("train").truth})


def test_the_same_bytes_however_it_is_done(tmp_path: Path, raw: Path) -> None:
    one = spec_of(tmp_path / "one", raw)
    convert(one, silent())
    two = spec_of(tmp_path / "two", raw, workers=2)
    convert(two, silent())
    assert len(contents(one)) > 8
    assert contents(one) == contents(two)


def test_zip_files_give_the_bytes_of_folders(tmp_path: Path) -> None:
    specs = [spec_of(tmp_path / f"root{zipped}", tmp_path / f"raw{zipped}") for zipped in (0, 1)]
    for zipped, spec in enumerate(specs):
        for split, first in (("train", 1), ("val", 101)):
            CocoFiles(split, 3, first).write(tmp_path / f"raw{zipped}", zipped=bool(zipped))
        convert(spec, silent())
    assert contents(specs[0]) == contents(specs[1])


def test_a_conversion_that_broke_off_goes_on(tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = spec_of(tmp_path / "whole", raw)
    shards = convert(whole, silent()).shards_written
    spec, calls, write = spec_of(tmp_path / "root", raw), [], steps.write_shard

    def deadly(*args: object) -> object:
        calls.append(args)
        if len(calls) == 2:
            raise SourceError("broken off")
        return write(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(steps, "write_shard", deadly)
        with pytest.raises(SourceError, match="broken off"):
            convert(spec, silent())
    again = convert(spec, silent())
    assert (again.shards_written, again.shards_reused) == (shards - 1, 1)
    assert contents(spec) == contents(whole)


def test_an_image_that_only_fails_to_decode_is_named(
    tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coco_records.cv2, "imdecode", lambda *_: None)
    with pytest.raises(SourceError, match=r"\.jpg \(image \d+\) in .* decodes to nothing vs 48×32 pixels.*remove it"):
        convert(spec_of(tmp_path / "root", raw), silent())
    left = [Path(name).name for name in contents(spec_of(tmp_path / "root", raw))]
    assert left == ["truth-test.json", "truth-train.json"]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turned_pixels_are_those_of_opencv(tmp_path: Path, orientation: int) -> None:
    stream, tags = io.BytesIO(), Image.Exif()
    tags[0x0112] = orientation
    Image.open(io.BytesIO(jpeg(3))).save(stream, "JPEG", exif=tags)
    data = np.frombuffer(stream.getvalue(), np.uint8)
    stored = cv2.imdecode(data, cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
    assert (coco_records.turned(stored, orientation) == cv2.imdecode(data, cv2.IMREAD_COLOR_RGB)).all()


def test_the_real_data(tmp_path: Path, real_data: Path) -> None:
    spec = spec_of(tmp_path / "root", real_data / "coco", max_people=20)
    result = convert(spec, silent())
    assert (result.read, result.written, result.quarantined) == (80, 80, 0)
    store = open_store(spec.root)
    manifest = read_manifest(store, result.folder)
    assert sum(split.class_counts[2] for split in manifest.splits) == 28
    people = 0
    for name in ("train", "test"):
        reader = SplitReader(store.local(result.folder), manifest, name)
        people += int(reader.gather(np.arange(len(reader)), ["people"])["people"].sum())
    assert people == 86
