"""A forgotten image is gone from the next version at once, and from every byte of the store afterwards."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from drawn_images import as_folders, drawn, encoded, images

from podline.beam_jobs.conversion import convert
from podline.documents.forgotten import forgotten, publish_forgotten
from podline.documents.manifest import Manifest, read_manifest
from podline.progress import silent
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store

SETTINGS = [{}, {"keep_files": True}, {"keep_jpeg": True}]


def converted(root: Path, source: Path, **settings: Any) -> Manifest:
    given = {"side": 16, "shard_bytes": 20_000, "near_share": 1, **settings}
    spec = ConvertSpec.model_validate({"root": str(root), "dataset": "images", "source": str(source), **given})
    return read_manifest(open_store(str(root)), convert(spec, silent()).folder)


@pytest.mark.parametrize("settings", SETTINGS, ids=["pixels", "files", "jpeg"])
def test_a_conversion_leaves_a_forgotten_image_out_before_it_is_decoded(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    folder, root = as_folders(tmp_path / "raw", images(20)), tmp_path / "root"
    image = encoded(drawn(7_000))
    (folder / "cat" / "mine.png").write_bytes(image)
    sha256 = hashlib.sha256(image).hexdigest()
    publish_forgotten(open_store(str(root)), "images", sha256, "asked by its owner")
    publish_forgotten(open_store(str(root)), "images", sha256, "again")
    assert forgotten(open_store(str(root)), "images") == {sha256: "asked by its owner"}
    manifest = converted(root, folder, **settings)
    reasons = {left.record: left.reason for left in manifest.quarantined}
    assert reasons == {"cat/mine.png": "forgotten: asked by its owner"}
    assert not [path for path in root.rglob("*") if path.is_file() and image in path.read_bytes()]
