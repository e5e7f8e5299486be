"""Validation finds every kind of damage and says where it is."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from raw_cifar import convert_spec, converted_manifest, write_raw_cifar
from small_dataset import validation_of

from podline.base.errors import ArtifactError
from podline.base.progress import silent
from podline.data.images import deciding
from podline.data.versions.validation import validate
from podline.documents.manifest import MANIFEST, Manifest, dataset_folder
from podline.stages.specs import ValidateSpec
from podline.stages.table import VALIDATE
from podline.store import digests
from podline.store.contract import Store
from podline.store.opening import open_store

FRAME = 3126
LABEL = 12 + 3109


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    folder = tmp_path_factory.mktemp("converted")
    return folder / "root", converted_manifest(convert_spec(folder / "root", write_raw_cifar(folder / "raw")))


@pytest.fixture
def manifest(converted: tuple[Path, Manifest]) -> Manifest:
    return converted[1]


@pytest.fixture
def store(tmp_path: Path, converted: tuple[Path, Manifest]) -> Store:
    """A copy that a test may damage."""
    return open_store(shutil.copytree(converted[0], tmp_path / "root"))


def folder_of(store: Store, manifest: Manifest) -> Path:
    return store.local(dataset_folder("cifar10", manifest.fingerprint))


def spec_of(store: Store, manifest: Manifest, *, deep: bool = True) -> ValidateSpec:
    return validation_of(store.root, "cifar10", manifest.fingerprint, deep=deep)


@pytest.mark.parametrize("deep", [False, True])
def test_a_sound_data_set(store: Store, manifest: Manifest, monkeypatch: pytest.MonkeyPatch, deep: bool) -> None:
    if not deep:  # only files are compared
        monkeypatch.delattr("podline.data.versions.validation.open_split")
    spec = spec_of(store, manifest, deep=deep)
    result = validate(spec, silent())
    assert (result.records, result.shards, result.duplicates_within) == (120, 6, 0 if deep else None)
    assert VALIDATE.find(spec, silent()) == result.model_copy(update={"reused": True})


@pytest.mark.parametrize("deep", [False, True])
def test_a_flipped_bit_is_found_at_every_byte_of_a_record(store: Store, manifest: Manifest, deep: bool) -> None:
    spec, path = (
        spec_of(store, manifest, deep=deep),
        folder_of(store, manifest) / manifest.split("train").shards[3].file,
    )
    sound = path.read_bytes()
    for byte in (0, 7, 8, 11, 12, 14, 33, 34, 3105, 3106, LABEL, 3122, 3125):
        data = bytearray(sound)
        data[17 * FRAME + byte] ^= 1 << byte % 8
        path.write_bytes(data)
        with pytest.raises(ArtifactError, match=rf"00003-of-00005: record 17, at byte {17 * FRAME}, ") as error:
            validate(spec, silent())
        assert "run `podline convert` again" in str(error.value)
        assert "\n" not in str(error.value)


def test_sound_records_that_are_not_those_of_the_manifest(store: Store, manifest: Manifest) -> None:
    path = folder_of(store, manifest) / manifest.split("train").shards[1].file
    data = path.read_bytes()
    path.write_bytes(data[FRAME : 2 * FRAME] + data[:FRAME] + data[2 * FRAME :])
    expected = manifest.split("train").shards[1].sha256
    for deep in (False, True):
        with pytest.raises(ArtifactError, match=f"sha256 {digests.of_file(path)[:12]}… vs {expected[:12]}… in the"):
            validate(spec_of(store, manifest, deep=deep), silent())


@pytest.mark.parametrize(("field", "value"), [("class_counts", (12,) * 10), ("std", (0.0, 0.0, 0.0))])
def test_a_manifest_that_says_something_else(store: Store, manifest: Manifest, field: str, value: tuple) -> None:
    train, test = manifest.splits
    wrong = manifest.model_copy(update={"splits": (train.model_copy(update={field: value}), test)})
    store.publish_bytes(f"{dataset_folder('cifar10', manifest.fingerprint)}/{MANIFEST}", wrong.to_bytes(), replace=True)
    with pytest.raises(ArtifactError, match=rf"split 'train': .* vs {re.escape(str(value))} in the manifest"):
        validate(spec_of(store, wrong), silent())


def convert_with_twins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *twins: tuple[str, int, str, int]
) -> tuple[Store, Manifest]:
    """A data set in whose raw files some images were copied over others: (to file, to row, from file, from row).

    The conversion overlooks them.
    """
    monkeypatch.setattr(deciding, "_equal", lambda _images: [])
    raw = write_raw_cifar(tmp_path / "twins")
    for to_file, to_row, from_file, from_row in twins:
        rows = np.fromfile(raw / from_file, np.uint8).reshape(-1, 3073)
        target = np.memmap(raw / to_file, np.uint8, "r+").reshape(-1, 3073)
        target[to_row, 1:] = rows[from_row, 1:]
        target.base.flush()
    store = open_store(tmp_path / "twin-root")
    return store, converted_manifest(convert_spec(store.root, raw))


def test_an_image_in_two_splits_is_an_error_that_names_both_records(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store, manifest = convert_with_twins(monkeypatch, tmp_path, ("test_batch.bin", 3, "data_batch_2.bin", 5))
    with pytest.raises(ArtifactError, match="the same image is in two splits, record ") as error:
        validate(spec_of(store, manifest), silent())
    found = re.findall(r"record (\d+) of (\S+?)[,:]? ", str(error.value))
    images = []
    for record, file in found:
        start = int(record) * FRAME + 12 + 22
        images.append((folder_of(store, manifest) / file).read_bytes()[start : start + 3072])
    assert len(images) == 2
    assert images[0] == images[1]
    assert ("-train." in found[0][1], "-test." in found[1][1]) == (True, True)


def test_images_that_a_split_has_twice_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store, manifest = convert_with_twins(
        monkeypatch,
        tmp_path,
        ("data_batch_1.bin", 0, "data_batch_2.bin", 5),
        ("data_batch_3.bin", 1, "data_batch_2.bin", 5),
        ("test_batch.bin", 0, "test_batch.bin", 1),
    )
    assert validate(spec_of(store, manifest), silent()).duplicates_within == 5
