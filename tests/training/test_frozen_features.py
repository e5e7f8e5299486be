"""Features of frozen layers, computed once for each image and view: the same training, and the same when killed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dying_runs import finished_after, lively_recipe, losses, require_same, specs_of, unbroken
from small_dataset import publish_dataset
from small_poses import POSE, publish_poses
from small_poses import RECIPE as POSES

from podline.contract.kind import kind_of
from podline.data.order import TrainingOrder
from podline.data.reader import SplitReader
from podline.input.pipeline import TrainingInput
from podline.stages.specs import TrainResult, TrainSpec
from podline.training import frozen_features
from podline.training.frozen_features import FrozenFeatures

# 96 examples of 8 × 8 pixels, 12 steps an epoch. Two views in four epochs, and then everything trains.
RECIPE = lively_recipe(
    model={"kind": "resnet", "width": 0.1, "dropout": 0.2},
    duration={"epochs": 5},
    augmentation={"flip": True, "pad": 2, "views": 2},
    trainable_layers=("classifier",),
    phases=({"from_epoch": 4, "changes": {"trainable_layers": [""], "augmentation.views": 0}},),
    evaluate_every={"epochs": 1},
    checkpoint_steps=7,
    summary_steps=5,
)


def spec_of(root: Path, **values: object) -> TrainSpec:
    publish_dataset(root)
    return specs_of(RECIPE)(root, **values)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[TrainSpec, TrainResult, Path], list[int]]:
    """A run, and the number of images of each forward pass of the frozen layers."""
    passes: list[int] = []
    fill = FrozenFeatures._fill

    def counted(self: FrozenFeatures, epoch: int, ids: np.ndarray) -> None:
        passes.append(len(ids))
        fill(self, epoch, ids)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FrozenFeatures, "_fill", counted)
        return unbroken(spec_of(tmp_path_factory.mktemp("undisturbed"))), passes


def test_they_are_computed_once_for_each_view_and_give_the_losses_of_a_training_without_them(
    undisturbed, tmp_path, monkeypatch
):
    assert sum(undisturbed[1]) == 2 * 96
    monkeypatch.setattr(frozen_features, "MOST_BYTES", 0)
    plain = unbroken(spec_of(tmp_path))[2]
    np.testing.assert_allclose(losses(undisturbed[0][2]), losses(plain), rtol=2e-4)


def test_a_run_killed_while_it_uses_them_ends_with_the_same_bits(undisturbed, tmp_path):
    again = spec_of(tmp_path)
    require_same(again, finished_after(again, 9, 50), undisturbed[0])


def test_features_and_moved_people_of_a_pose_network_are_those_of_the_images(tmp_path: Path) -> None:
    """The layers above read several maps, which are stored with half the precision; joints move as in the images."""
    manifest = publish_poses(tmp_path)
    reader = SplitReader((tmp_path / "datasets" / "coco" / manifest.fingerprint).joinpath, manifest, "train")
    order, fields = TrainingOrder(len(reader), 4, seed=3), ("image", "keypoints", "ignored")
    images = TrainingInput(reader, manifest, fields, order=order, augmentation=POSE.augmentation.changed(views=2))
    lite = POSE.model.changed(trunk="efficientnet-lite0", width=1.0)
    poses = POSES.changed(task=POSE.changed(model=lite, targets=POSE.targets.changed(stride=8)))
    network = kind_of(poses).model(poses, manifest)
    for layer in network.layers:
        layer.trainable = layer.name.startswith(("neck", "stage"))
    features = FrozenFeatures.of(network, images)
    assert features is not None
    assert [table.shape[1:].as_list() for table in features.tables] == [[4, 4, 112], [8, 8, 40]], "no expanded maps"
    features.prepare(0, 12)
    for step in (0, 5, 11):
        whole, part = images.batch(step), features.batches.batch(step)
        assert all(np.array_equal(whole[name], part[name]) for name in ("keypoints", "ignored"))
        found, expected = features(part["image"], training=False), network(whole["image"], training=False)
        for name, maps in expected.items():
            np.testing.assert_allclose(found[name], maps, atol=1e-3 * np.abs(maps).max())
