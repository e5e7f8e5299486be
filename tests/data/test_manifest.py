"""A manifest is what was published, in its own folder; its shards are a table."""

from __future__ import annotations

import json
from typing import Any

import pytest
from small_dataset import FINGERPRINT

from podline.base.errors import ArtifactError, StoreError
from podline.documents.manifest import MANIFEST, FileInfo, Manifest, dataset_folder, manifest_digest, read_manifest
from podline.documents.shard_table import ShardInfo, ShardTable
from podline.recipes.registry import get
from podline.stages.completed import manifest_sha256
from podline.stages.from_recipe import training_spec
from podline.stages.specs import TrainSpec
from podline.store.digests import KEY
from podline.store.folder import FolderStore

FOLDER = dataset_folder("sample", FINGERPRINT)
NAME = f"{FOLDER}/{MANIFEST}"


def replace(store: FolderStore, manifest: Manifest, **changes: Any) -> None:
    store.publish_bytes(NAME, manifest.model_copy(update=changes).to_bytes(), replace=True)


def test_one_that_was_edited_or_has_no_digest_is_refused(store: FolderStore, manifest: Manifest) -> None:
    assert read_manifest(store, FOLDER) == manifest
    document = json.loads(store.read_bytes(NAME))
    document["splits"][0] |= {"mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0]}
    store.local(NAME).write_text(json.dumps(document, indent=2))
    for read in (read_manifest, manifest_digest):
        with pytest.raises(ArtifactError, match=r"manifest\.json was changed since it was written"):
            read(store, FOLDER)
    del document[KEY]
    store.local(NAME).write_text(json.dumps(document))
    with pytest.raises(ArtifactError, match=KEY):
        read_manifest(store, FOLDER)


def test_one_of_another_data_set_or_than_a_stage_was_given_is_refused(store: FolderStore, manifest: Manifest) -> None:
    digest = manifest_digest(store, FOLDER)
    assert read_manifest(store, FOLDER, digest) == manifest
    replace(store, manifest, class_names=("a", "b", "c"))
    with pytest.raises(ArtifactError, match=rf"has the digest \w+…, expected {digest[:12]}… as in the stage's spec"):
        read_manifest(store, FOLDER, digest)
    replace(store, manifest, fingerprint="f" * 16)
    with pytest.raises(ArtifactError, match="was changed"):
        read_manifest(store, FOLDER)


@pytest.mark.parametrize("read", [read_manifest, manifest_digest, manifest_sha256])
def test_one_that_is_gone_is_an_error_with_its_remedy(store: FolderStore, manifest: Manifest, read: Any) -> None:
    assert read(store, FOLDER)
    store.delete(NAME)
    with pytest.raises(StoreError, match=r"manifest\.json does not exist; run `podline convert` first"):
        read(store, FOLDER)


def test_a_run_s_name_depends_on_the_manifest(store: FolderStore, manifest: Manifest) -> None:
    recipe = get("sample")
    first = training_spec(store, recipe, FINGERPRINT, "auto")
    assert first.manifest_digest == json.loads(store.read_bytes(NAME))[KEY]
    replace(store, manifest, class_names=("a", "b", "c"))
    second = training_spec(store, recipe, FINGERPRINT, "auto")
    without = TrainSpec(root=store.uri, recipe=recipe, fingerprint=FINGERPRINT)
    assert len({first.run, second.run, without.run}) == 3


def shard(number: int, *, indexed: bool = False, counts: tuple[int, ...] = ()) -> ShardInfo:
    file = f"x-train.tfrecord-{number:05d}-of-00003"
    index = FileInfo(file=f"{file}.index.npy", bytes=200 + number, sha256="00" * 31 + "01") if indexed else None
    return ShardInfo(
        file=file, bytes=5_000_000_000, sha256="ab" * 31 + "00", records=7, class_counts=counts, index=index
    )


@pytest.mark.parametrize(("indexed", "counts"), [(False, ()), (True, (0, 7))])
def test_a_table_holds_what_was_put_in(indexed: bool, counts: tuple[int, ...]) -> None:
    shards = [shard(number, indexed=indexed, counts=counts) for number in range(3)]
    table = ShardTable.from_json(json.loads(json.dumps(ShardTable.of(shards).to_json())))
    assert [*table] == shards
    assert table[-1] == shards[2]
    assert (sum(table.lengths), table.bytes) == (21, 15_000_000_000)
    assert table == ShardTable.of(shards)
    assert table != ShardTable.of(shards[:2])
    assert [*ShardTable.from_json(ShardTable.of([]).to_json())] == []


def test_shards_that_are_no_table() -> None:
    with pytest.raises(ValueError, match=r"shard 1 is .*-00002-of.*, expected .*-00001-of"):
        ShardTable.of([shard(0), shard(2)])
    with pytest.raises(ValueError, match="the same columns"):
        ShardTable.of([shard(0), shard(1, indexed=True)])


@pytest.mark.parametrize("change", [{"count": 4}, {"table": "AAAA"}, {"table": None}])
def test_a_document_that_is_no_table(change: dict[str, object]) -> None:
    document = ShardTable.of(map(shard, range(3))).to_json()
    with pytest.raises(ValueError, match=r"count=4, expected 3|count=3, expected 0|table of shards|bad char"):
        ShardTable.from_json(document | change)
