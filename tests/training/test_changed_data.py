"""A model is never trained or judged on other bytes than the manifest names, and what was is not kept."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_dataset import FINGERPRINT, publish_dataset, small_recipe

from podline.base.errors import ArtifactError
from podline.base.progress import Reporter, silent
from podline.data.tfrecord import seal
from podline.documents.any_evaluation import EVALUATION
from podline.documents.manifest import dataset_folder, read_manifest
from podline.evaluation.evaluate import evaluate
from podline.stages.from_recipe import evaluation_spec, training_spec
from podline.stages.specs import EvaluateSpec, TrainResult, TrainSpec
from podline.stages.table import EVALUATE, TRAIN
from podline.store.opening import open_store
from podline.training.train import train

STEPS = {"duration": {"steps": 60}, "evaluate_every": {"steps": 60}, "checkpoint_steps": 8, "summary_steps": 4}
RECIPE = small_recipe(deterministic=True, **STEPS)
FOLDER = dataset_folder("sample", FINGERPRINT)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainResult]:
    """A run that nothing disturbed, and its store."""
    root = tmp_path_factory.mktemp("unbroken")
    publish_dataset(root)
    return root, train(spec_of(root), silent())


def spec_of(root: Path) -> TrainSpec:
    return training_spec(open_store(root), RECIPE, FINGERPRINT, "auto")


def relabel(root: Path, split: str) -> None:
    """Gives every example of a split another label, with the right checksum for its record."""
    manifest = read_manifest(open_store(root), FOLDER)
    place = 12 + manifest.field("label").offset
    for shard in manifest.split(split).shards:
        path = root / FOLDER / shard.file
        frames = np.fromfile(path, np.uint8).reshape(shard.records, -1)
        frames[:, place] = (frames[:, place] + 1) % 3
        seal(frames)
        with path.open("r+b") as file:  # a file that a training has mapped must not be cut for a moment
            file.write(frames.tobytes())


def once(unit: str, step: int, act: Callable[[], None]) -> Reporter:
    """Act when so many steps or examples are done."""
    done: list[int] = []

    def hear(event: dict) -> None:
        if event["event"] == "progress" and event["unit"] == unit and event["done"] >= step and not done:
            done.append(event["done"])
            act()

    return Reporter("train", hear)


def test_what_was_learned_from_other_labels_is_not_kept(root: Path, unbroken: tuple[Path, TrainResult]) -> None:
    """The data are put back before the next checkpoint: their content is right at both ends."""
    shutil.copytree(root / FOLDER, root / "kept")
    spec = spec_of(root)
    with pytest.raises(ArtifactError, match=r"was changed while it was read; .* goes on from the last saved state"):
        train(spec, once("steps", 18, lambda: relabel(root, "train")))
    checkpoints = sorted(path.name for path in (root / spec.folder / "checkpoints").glob("*.json"))
    assert checkpoints[-1] == "step-00000016.json"
    assert TRAIN.find(spec, silent()) is None
    assert not (root / spec.folder / "model").exists()
    with pytest.raises(ArtifactError, match="has sha256"):
        train(spec, silent())
    shutil.copytree(root / "kept", root / FOLDER, dirs_exist_ok=True)
    result = train(spec, silent())
    assert result.resumed_from == (16,)
    assert result.weights_sha256 == unbroken[1].weights_sha256


@pytest.fixture
def trained(unbroken: tuple[Path, TrainResult], tmp_path: Path) -> EvaluateSpec:
    """A finished run in a store of its own."""
    shutil.copytree(unbroken[0], tmp_path, dirs_exist_ok=True)
    return evaluation_spec(spec_of(tmp_path), unbroken[1])


@pytest.mark.parametrize("split", ["train", "test"])
def test_nothing_is_judged_by_other_labels(trained: EvaluateSpec, split: str) -> None:
    root = Path(trained.root)
    relabel(root, split)
    with pytest.raises(ArtifactError, match=r"00000-of-\d+ has sha256 \w+… vs \w+… in the manifest"):
        evaluate(trained, silent())
    assert not (root / trained.folder / EVALUATION).exists()


def test_what_was_judged_by_labels_that_were_changed_meanwhile_is_not_published(trained: EvaluateSpec) -> None:
    root = Path(trained.root)
    with pytest.raises(ArtifactError, match="was changed while it was read"):
        evaluate(trained, once("answers", 0, lambda: relabel(root, "test")))
    assert not (root / trained.folder / EVALUATION).exists()
    assert EVALUATE.find(trained, silent()) is None
