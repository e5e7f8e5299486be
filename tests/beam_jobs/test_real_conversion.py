"""The real archives, converted and validated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from podline.beam_jobs.conversion import convert
from podline.data.reader import SplitReader
from podline.datasets.validation import validate
from podline.documents.manifest import read_manifest
from podline.progress import silent
from podline.stages.completed import manifest_sha256
from podline.stages.specs import ConvertSpec, ValidateSpec
from podline.store.opening import open_store


def test_mnist(tmp_path: Path, real_data: Path) -> None:
    spec = ConvertSpec(root=str(tmp_path), dataset="mnist", source=str(real_data / "mnist"))
    result = convert(spec, silent())
    manifest = read_manifest(open_store(tmp_path), result.folder)
    assert (result.read, result.written, result.quarantined) == (70_000, 70_000, 0)
    assert result.splits == {"train": 60_000, "test": 10_000}
    train = manifest.split("train")
    assert len(train.shards) == 10
    # The class counts of http://yann.lecun.com/exdb/mnist, and the moments that everybody normalises with.
    assert train.class_counts == (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
    assert train.mean[0] / 255 == pytest.approx(0.1307, abs=5e-5)
    assert train.std[0] / 255 == pytest.approx(0.3081, abs=5e-5)
    checked = validate(
        ValidateSpec(
            root=spec.root,
            dataset="mnist",
            fingerprint=result.fingerprint,
            manifest_sha256=manifest_sha256(open_store(tmp_path), result.folder),
        ),
        silent(),
    )
    assert (checked.records, checked.shards, checked.duplicates_within) == (70_000, len(train.shards) + 8, None)


def test_cifar10(tmp_path: Path, real_data: Path) -> None:
    spec = ConvertSpec(root=str(tmp_path), dataset="cifar10", source=str(real_data / "cifar10"))
    result = convert(spec, silent())
    store = open_store(tmp_path)
    manifest = read_manifest(store, result.folder)
    assert result.splits == {"train": 8_068, "test": 1_017}
    assert result.read == result.written == 9_085
    reader = SplitReader(store.local(result.folder).joinpath, manifest, "train")
    images = reader.gather(np.arange(len(reader)), ["image"])["image"]
    # float64 sums of 8 million bytes against whole numbers
    np.testing.assert_allclose(images.mean((0, 1, 2)), manifest.split("train").mean, rtol=1e-10)
    np.testing.assert_allclose(images.std((0, 1, 2)), manifest.split("train").std, rtol=1e-10)
