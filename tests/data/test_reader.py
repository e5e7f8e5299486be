"""Reading by position, against the raw files and against TensorFlow's own reader."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from raw_cifar import convert_plainly, convert_spec, write_raw_cifar

from podline.data.reader import SplitReader
from podline.documents.manifest import Manifest, dataset_folder
from podline.errors import ArtifactError
from podline.store.opening import open_store


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return convert_plainly(convert_spec(tmp_path / "root", write_raw_cifar(tmp_path / "raw")))


@pytest.fixture
def folder(tmp_path: Path, manifest: Manifest) -> Path:
    return open_store(tmp_path / "root").local(dataset_folder("cifar10", manifest.fingerprint))


@pytest.fixture
def reader(folder: Path, manifest: Manifest) -> SplitReader:
    return SplitReader(folder.joinpath, manifest, "train")


def every(folder: Path, manifest: Manifest, split: str) -> dict[str, np.ndarray]:
    """All examples of a split, by plain slicing of its files."""
    files = [folder / shard.file for shard in manifest.split(split).shards]
    frames = np.concatenate([np.fromfile(file, np.uint8).reshape(-1, manifest.record_length + 16) for file in files])
    image, label = manifest.field("image").offset + 12, manifest.field("label").offset + 12
    images = frames[:, image : image + 3072].reshape(-1, 32, 32, 3)
    return {"image": images, "label": frames[:, label].astype(np.int64)}


def test_batches_hold_the_examples_asked_for(folder: Path, manifest: Manifest, reader: SplitReader) -> None:
    whole = every(folder, manifest, "train")
    assert len(manifest.split("train").shards) == 5
    assert len(reader) == 100
    for indices in ([99, 0, 0, 57], list(range(100)), list(range(100))[::-1], [20], [19, 20, 21]):
        batch = reader.gather(np.array(indices))
        assert batch["image"].shape == (len(indices), 32, 32, 3)
        assert (batch["image"].dtype, batch["label"].dtype) == (np.uint8, np.int64)
        assert (batch["image"] == whole["image"][indices]).all()
        assert (batch["label"] == whole["label"][indices]).all()


def test_an_empty_batch(reader: SplitReader) -> None:
    batch = reader.gather(np.empty(0, np.int64))
    assert (batch["image"].shape, batch["label"].shape) == ((0, 32, 32, 3), (0,))


def test_fields(reader: SplitReader) -> None:
    assert list(reader.gather(np.array([1]), ["label"])) == ["label"]


@pytest.mark.parametrize("indices", [[-1], [100], [0, 5, 100]])
def test_a_position_outside_the_split_is_an_error(reader: SplitReader, indices: list[int]) -> None:
    with pytest.raises(IndexError, match="vs 100 examples"):
        reader.gather(np.array(indices))


def test_locate_leads_to_the_bytes(folder: Path, reader: SplitReader) -> None:
    batch = reader.gather(np.arange(100))
    for index in (0, 19, 20, 57, 99):
        file, record, byte = reader.locate(index)
        raw = (folder / file).read_bytes()[byte:]
        assert byte == record * 3126
        assert raw[12 + 22 : 12 + 22 + 3072] == batch["image"][index].tobytes()


def test_threads_may_share_a_reader(reader: SplitReader) -> None:
    whole = reader.gather(np.arange(100))
    batches = [np.random.default_rng(seed).permutation(100)[:32] for seed in range(64)]
    with ThreadPoolExecutor(8) as pool:
        for indices, batch in zip(batches, pool.map(reader.gather, batches), strict=True):
            assert (batch["image"] == whole["image"][indices]).all()


def test_a_shard_or_split_that_is_not_there_is_named(folder: Path, manifest: Manifest) -> None:
    (folder / manifest.split("test").shards[0].file).unlink()
    with pytest.raises(ArtifactError, match=r"cifar10-test\.tfrecord-00000-of-00001 is gone"):
        SplitReader(folder.joinpath, manifest, "test")
    with pytest.raises(ArtifactError, match="has no split 'validation'; it has train, test"):
        SplitReader(folder.joinpath, manifest, "validation")


def test_tensorflow_s_reader_gives_the_same_examples(folder: Path, manifest: Manifest) -> None:
    import tensorflow as tf  # noqa: PLC0415

    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    for split in ("train", "test"):
        reader = SplitReader(folder.joinpath, manifest, split)
        files = [str(folder / shard.file) for shard in manifest.split(split).shards]
        dataset = tf.data.TFRecordDataset(files).map(lambda record: tf.io.parse_single_example(record, features))
        count = 0
        for index, example in enumerate(dataset):
            ours = reader.gather(np.array([index]))
            theirs = tf.reshape(tf.io.decode_raw(example["image"], tf.uint8), manifest.image_shape).numpy()
            assert (theirs == ours["image"][0]).all()
            assert example["label"].numpy() == ours["label"][0]
            count += 1
        assert count == len(reader)
