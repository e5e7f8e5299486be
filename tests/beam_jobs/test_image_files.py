"""Images of one's own whose records hold their files: every pixel is that of a record with pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from converted_images import converted
from drawn_images import as_folders, as_parquet, drawn, encoded, images

from podline.data.images import decoded
from podline.data.reader import open_split
from podline.datasets.validation import check_files, check_records
from podline.documents.manifest import Manifest
from podline.errors import SettingsError, SourceError
from podline.progress import silent
from podline.store.opening import open_store

pytestmark = pytest.mark.usefixtures("parsed_here")


def gathered(tmp_path: Path, manifest: Manifest, split: str) -> dict[str, np.ndarray]:
    reader = open_split(open_store(tmp_path / "root"), manifest.folder, manifest, split)
    return reader.gather(np.random.default_rng(0).permutation(len(reader)))


@pytest.mark.parametrize(("fit", "channels"), [pytest.param("letterbox", 3, marks=pytest.mark.slow), ("crop", 1)])
def test_the_pixels_are_those_of_records_with_pixels(tmp_path: Path, fit: str, channels: int) -> None:
    source = as_parquet(tmp_path / "raw", images())
    settings = {"side": 24, "fit": fit, "channels": channels, "test_share": 0.3}
    plain = converted(tmp_path / "root", source, **settings)
    kept = converted(tmp_path / "root", source, **settings, keep_files=True, shard_bytes=20_000)
    assert kept.fingerprint != plain.fingerprint
    image = kept.field("image")
    assert (image.encoding, image.fit, image.shape) == ("file", fit, (24, 24, channels))
    for ours, theirs in zip(kept.splits, plain.splits, strict=True):
        for name in ("records", "class_counts", "mean", "std"):
            assert getattr(ours, name) == getattr(theirs, name)
        found, expected = (gathered(tmp_path, manifest, ours.name) for manifest in (kept, plain))
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)
    assert len(kept.split("train").shards) > 1
    store = open_store(tmp_path / "root")
    check_files(store, kept, silent())
    assert check_records(store, kept.folder, kept, silent()) == 0


def test_records_hold_the_files_as_they_were(tmp_path: Path) -> None:
    import tensorflow as tf  # noqa: PLC0415 (ten seconds that only this test needs)

    classes = images(24)
    manifest = converted(tmp_path / "root", as_folders(tmp_path / "raw", classes), keep_files=True, test_share=0.3)
    folder = tmp_path / "root" / manifest.folder
    records = tf.data.TFRecordDataset([str(folder / shard.file) for split in manifest.splits for shard in split.shards])
    feature = {"image": tf.io.FixedLenFeature((), tf.string)}
    found = [tf.io.parse_single_example(record, feature)["image"].numpy() for record in records]
    assert sorted(found) == sorted(data for files in classes.values() for data in files.values())


def test_an_image_that_is_left_out_leaves_no_gap(tmp_path: Path) -> None:
    classes = images(30)
    classes["cat"]["000.broken.png"] = encoded(drawn(99))[:-30]
    source = as_folders(tmp_path / "raw", classes)
    plain, kept = (converted(tmp_path / "root", source, keep_files=keep, test_share=0.3) for keep in (False, True))
    assert len(kept.quarantined) == 1
    np.testing.assert_array_equal(*(gathered(tmp_path, manifest, "train")["image"] for manifest in (kept, plain)))


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = as_folders(tmp_path / "raw", images(30))
    path = source / "cat" / "000.png"
    really = decoded._copy_files

    def change(*args: Any) -> None:
        path.write_bytes(encoded(drawn(99)))
        really(*args)

    monkeypatch.setattr(decoded, "_copy_files", change)
    with pytest.raises(SourceError, match=rf"{path} was changed while it was read"):
        converted(tmp_path / "root", source, keep_files=True)


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


def test_records_hold_files_of_one_kind(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"keep_files=true vs keep_jpeg=true: .*leave one of them out"):
        converted(tmp_path / "root", as_folders(tmp_path / "raw", images(30)), keep_files=True, keep_jpeg=True)
