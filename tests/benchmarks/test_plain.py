"""The plain side does the same work: the files that it writes hold what ours hold, and so do its batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import conversion, plain, records


@pytest.fixture
def both_files(tmp_path: Path) -> tuple[Path, Path]:
    columns = records.drawn(50)
    ours, other = tmp_path / "ours.tfrecord", tmp_path / "plain.tfrecord"
    records.write_chunks(ours, records.cifar_layout(), columns)
    plain.write_shard(other, columns["image"], columns["label"])
    return ours, other


def test_both_writers_write_the_same_examples(both_files: tuple[Path, Path]) -> None:
    ours, other = (
        [tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(file))]
        for file in both_files
    )
    assert ours == other
    assert len(ours) == 50


def test_plain_batches_hold_every_example_once_in_another_order(both_files: tuple[Path, Path]) -> None:
    batches = list(plain.shuffled_batches(both_files[:1], (32, 32, 3), 10).as_numpy_iterator())
    assert [images.shape for images, _ in batches] == [(10, 32, 32, 3)] * 5
    shown = np.concatenate([images for images, _ in batches])
    drawn = records.drawn(50)["image"]
    assert not np.array_equal(shown, drawn)
    assert sorted(image.tobytes() for image in shown) == sorted(image.tobytes() for image in drawn)


def test_the_plain_conversion_reads_every_row_as_an_image_of_interleaved_channels(tmp_path: Path) -> None:
    conversion.make_raw_files(str(tmp_path / "raw"), 13)
    files = sorted((tmp_path / "raw").glob("*.bin"))
    rows = np.concatenate([np.fromfile(file, np.uint8).reshape(-1, 3073) for file in files])
    (tmp_path / "target").mkdir()
    assert plain.convert(files, tmp_path / "target") == 13
    written = [str(tmp_path / "target" / f"{file.stem}.tfrecord") for file in files]
    examples = [tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(written)]
    assert [example.features.feature["label"].int64_list.value[0] for example in examples] == rows[:, 0].tolist()
    for example, row in zip(examples, rows, strict=True):
        [image] = example.features.feature["image"].bytes_list.value
        planes = row[1:].reshape(3, 32, 32)
        assert np.array_equal(np.frombuffer(image, np.uint8).reshape(32, 32, 3), np.stack(list(planes), axis=-1))
