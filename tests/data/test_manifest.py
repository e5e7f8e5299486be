"""A manifest is what was published, in its own folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from raw_cifar import convert_spec, write_raw_cifar
from small_dataset import FINGERPRINT

from podline.beam_jobs.conversion import convert
from podline.documents.manifest import MANIFEST, Manifest, dataset_folder, manifest_digest, read_manifest
from podline.errors import ArtifactError
from podline.progress import silent
from podline.recipes.registry import get
from podline.stages.from_recipe import training_spec
from podline.stages.specs import TrainSpec
from podline.stages.table import CONVERT
from podline.store.digests import KEY
from podline.store.folder import FolderStore

FOLDER = dataset_folder("sample", FINGERPRINT)
NAME = f"{FOLDER}/{MANIFEST}"


def brighten(store: FolderStore) -> None:
    """Puts other constants of normalisation into the file."""
    document = json.loads(store.read_bytes(NAME))
    document["splits"][0] |= {"mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0]}
    store.local(NAME).write_text(json.dumps(document, indent=2))


def test_mean_and_std_that_were_replaced_are_refused(store: FolderStore, manifest: Manifest) -> None:
    assert read_manifest(store, FOLDER) == manifest
    brighten(store)
    for read in (read_manifest, manifest_digest):
        with pytest.raises(ArtifactError, match=r"manifest\.json was changed since it was written"):
            read(store, FOLDER)


def test_one_without_its_digest_is_refused_and_converted_again(tmp_path: Path) -> None:
    spec = convert_spec(tmp_path / "root", write_raw_cifar(tmp_path / "raw"))
    folder, store = convert(spec, silent()).folder, FolderStore(tmp_path / "root")
    whole = store.read_bytes(f"{folder}/{MANIFEST}")
    document = json.loads(whole)
    del document[KEY]
    store.local(f"{folder}/{MANIFEST}").write_text(json.dumps(document))
    with pytest.raises(ArtifactError, match=KEY):
        read_manifest(store, folder)
    assert CONVERT.find(spec, silent()) is None
    convert(spec, silent())
    assert store.read_bytes(f"{folder}/{MANIFEST}") == whole


def test_a_manifest_of_another_data_set_is_refused(store: FolderStore, manifest: Manifest) -> None:
    other = manifest.model_copy(update={"fingerprint": "f" * 16})
    store.publish_bytes(NAME, other.to_bytes(), replace=True)
    with pytest.raises(ArtifactError, match="was changed"):
        read_manifest(store, FOLDER)


def test_a_stage_refuses_another_manifest_than_its_spec_names(store: FolderStore, manifest: Manifest) -> None:
    digest = manifest_digest(store, FOLDER)
    assert read_manifest(store, FOLDER, digest) == manifest
    store.publish_bytes(NAME, manifest.model_copy(update={"class_names": ("a", "b", "c")}).to_bytes(), replace=True)
    with pytest.raises(
        ArtifactError, match=rf"manifest\.json has the digest \w+… vs {digest[:12]}… in the stage's spec"
    ):
        read_manifest(store, FOLDER, digest)


def test_a_run_s_name_depends_on_the_manifest(store: FolderStore, manifest: Manifest) -> None:
    recipe = get("sample")

    def named() -> TrainSpec:
        return training_spec(store, recipe, FINGERPRINT, "auto")

    spec, without = named(), TrainSpec(root=store.uri, recipe=recipe, fingerprint=FINGERPRINT)
    assert spec.manifest_digest == json.loads(store.read_bytes(NAME))[KEY]
    assert spec.run != without.run
    store.publish_bytes(NAME, manifest.model_copy(update={"class_names": ("a", "b", "c")}).to_bytes(), replace=True)
    assert named().run not in (spec.run, without.run)
