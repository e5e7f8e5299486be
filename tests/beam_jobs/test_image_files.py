"""Images whose records hold JPEG files: the pixels are those that the conversion counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from converted_images import converted
from drawn_images import as_folders, images

from podline.base.progress import silent
from podline.data.reader import open_split
from podline.data.versions.validation import check_records
from podline.documents.manifest import Manifest
from podline.store.opening import open_store

pytestmark = pytest.mark.usefixtures("parsed_here")


def gathered(tmp_path: Path, manifest: Manifest, split: str) -> dict[str, np.ndarray]:
    reader = open_split(open_store(tmp_path / "root"), manifest.folder, manifest, split)
    return reader.gather(np.random.default_rng(0).permutation(len(reader)))


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_files_in_records_are_read_as_the_conversion_saw_them(tmp_path: Path, channels: int) -> None:
    source = as_folders(tmp_path / "raw", images())
    settings = {"side": 48, "channels": channels, "test_share": 0.3}
    plain = converted(tmp_path / "root", source, **settings)
    kept = converted(tmp_path / "root", source, **settings, keep_jpeg=True, shard_bytes=20_000)
    assert kept.fingerprint != plain.fingerprint
    assert kept.field("image").encoding == "file"
    found, expected = (gathered(tmp_path, manifest, "train") for manifest in (kept, plain))
    np.testing.assert_array_equal(found["label"], expected["label"])
    assert 0 < np.abs(found["image"].astype(int) - expected["image"]).mean() < 8
    sizes = [sum(shard.bytes for shard in manifest.split("train").shards) for manifest in (kept, plain)]
    assert sizes[0] < sizes[1] / 2
    pixels = found["image"].reshape(-1, channels).astype(float)
    np.testing.assert_allclose(kept.split("train").mean, pixels.mean(0))
    assert check_records(open_store(tmp_path / "root"), kept.folder, kept, silent()) == 0
