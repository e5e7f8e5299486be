"""A flipped bit in a shard or its index never reaches whoever reads the records, whatever the files' times say."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from small_coco import publish_people
from small_dataset import publish_dataset

from podline.data.reader import SplitReader
from podline.documents.manifest import Manifest
from podline.errors import ArtifactError


def people(root: Path) -> Manifest:
    return publish_people(root, train=6, test=3, side=32, keep_files=True)


def read(folder: Path, manifest: Manifest) -> int:
    reader = SplitReader(folder.joinpath, manifest, "train")
    return len(reader.gather(np.arange(len(reader)))["image"])


@pytest.mark.parametrize("publish", [publish_dataset, people])
def test_each_of_100_flipped_bits_is_named(tmp_path: Path, publish) -> None:
    manifest, chance = publish(tmp_path), random.Random(0)
    folder = tmp_path / manifest.folder
    files = [file.file for shard in manifest.split("train").shards for file in shard.files]
    for _ in range(100):
        file = chance.choice(files)
        whole = (folder / file).read_bytes()
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        (folder / file).write_bytes(damaged)
        with pytest.raises(ArtifactError, match=file):
            read(folder, manifest)
        (folder / file).write_bytes(whole)
    assert read(folder, manifest) == manifest.split("train").records
