"""Real images, a champion that is really trained: its features tell new images from held-out old ones."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import cv2
import keras
import numpy as np
import pytest

from podline.data.reader import open_split
from podline.documents import champions
from podline.documents.manifest import dataset_folder, read_manifest
from podline.documents.versions import versions
from podline.evaluation import changed_data
from podline.evaluation.data_changes import changes
from podline.evaluation.looks import EVERY, Classifier
from podline.progress import silent
from podline.stages.data_changes import DataChangesSpec
from podline.store.opening import open_store

CLASSES = {3: "cat", 8: "ship"}
NAME = "images.own"


@pytest.fixture
def images(real_data: Path) -> dict[str, np.ndarray]:
    """Images of CIFAR-10 by class, RGB."""
    batch = real_data / "cifar10" / "cifar-10-batches-py" / "data_batch_1"
    if not batch.exists():
        pytest.skip(f"no {batch}; set PODLINE_REAL_DATA")
    found = pickle.loads(batch.read_bytes(), encoding="bytes")
    pixels = found[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return {name: pixels[np.array(found[b"labels"]) == label] for label, name in CLASSES.items()}


def add(folder: Path, name: str, images: np.ndarray, first: int) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(images, start=first):
        assert cv2.imwrite(str(folder / name / f"{number}.png"), image[..., ::-1])


@pytest.mark.usefixtures("stages_here", "parsed_here", "few_layers")
def test_the_champion_s_features_are_those_of_new_and_held_out_images(
    images: dict[str, np.ndarray], tmp_path: Path, podline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, source = open_store(tmp_path / "root"), tmp_path / "own"
    at, convert = ("--root", store.uri), ("convert", "images", "--source", source, "--set", "conversion.side=32")
    convert += ("--set", "conversion.test_share=0.4")
    for name, some in images.items():
        add(source, name, some[:300], 0)
    assert podline(*convert, *at).code == 0
    trained = podline("train", NAME, "--epochs", "3", "--set", "model.width=0.25", *at)
    assert trained.code == 0, trained.err
    [run] = {name.split("/")[1] for name in store.list("runs")}
    assert podline("evaluate", run, *at).code in (0, 7)
    promoted = podline("models", "promote", run, *at)
    assert promoted.code == 0, promoted.err
    add(source, "cat", 255 - images["cat"][300:360], 1000)
    add(source, "ship", images["ship"][300:360], 1000)
    assert podline(*convert, *at).code == 0
    then, now = (version.fingerprint for version in versions(store, NAME))
    later = champions.Candidate(f"{NAME}-later", "w" * 64, NAME, now)
    champions.crown(store, NAME, later, champions.champion(store, NAME), "promoted")

    known = list[tuple[str, np.ndarray]]()

    def hooked(sample: Any, group: str, features: Any) -> Classifier:
        known.append((group, features))
        return Classifier(sample, group, features)

    monkeypatch.setattr(changed_data, "Classifier", hooked)
    spec = DataChangesSpec(root=store.uri, dataset=NAME, before=then, after=now)
    told = changes(spec, silent()).looks
    before = read_manifest(store, dataset_folder(NAME, then))
    tested = open_split(store, before.folder, before, "test")
    held_out = tested.gather(np.arange(len(tested)))["image"]
    assert f"another on those of {run} and {len(held_out)} held-out images" in told[-1]
    [cats] = [line for line in told if line.startswith("new images of class cat differ")]
    assert "error of a classifier on the champion's features" in cats
    assert not [line for line in told if "of class ship differ" in line]

    model = keras.models.load_model(str(store.local(f"runs/{run}/model/model.keras")), compile=False)
    [last] = [layer for layer in model.layers if isinstance(layer, keras.layers.Dense)]
    inner = keras.Model(model.inputs[0], last.input)
    new = np.concatenate([255 - images["cat"][300:360], images["ship"][300:360]])
    expected = np.asarray(inner(np.concatenate([new, held_out]), training=False))
    _, asked = [features for group, features in known if group == EVERY]
    assert asked.shape == expected.shape
    order = [np.lexsort(np.round(each[:, :4], 3).T) for each in (asked, expected)]
    # Batches of another size sum in another order.
    np.testing.assert_allclose(asked[order[0]], expected[order[1]], atol=1e-3)
