"""What people are judged by is what the source says, to the last digit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from coco_files import CocoFiles, open_coco

from podline.base.errors import ArtifactError
from podline.data.people.truth import read_truth, truth_name
from podline.data.sources.source import Source
from podline.documents import skeleton
from podline.documents.manifest import FileInfo, Manifest, SplitInfo
from podline.documents.shard_table import ShardTable
from podline.store.folder import FolderStore

pytestmark = pytest.mark.usefixtures("parsed_here")
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


def test_a_truth_that_changed_is_refused(tmp_path: Path) -> None:
    source = open_coco(CocoFiles().write(tmp_path / "raw"), tmp_path / "work", max_people=2)
    truths = source.publish_truths(FolderStore(tmp_path), "d")
    path = tmp_path / "d" / truth_name("train")
    path.write_bytes(path.read_bytes().replace(b"500.0", b"500.1", 1))
    with pytest.raises(ArtifactError, match=r"truth-train\.json has sha256 .* vs .* convert the data again"):
        read_truth(FolderStore(tmp_path), "d", manifest_of(source, truths), "train")
    with pytest.raises(ArtifactError, match="no truth to judge people by"):
        read_truth(FolderStore(tmp_path), "d", manifest_of(source, {}), "train")
