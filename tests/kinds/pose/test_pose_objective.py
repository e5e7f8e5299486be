"""What a pose network is trained for, and what is measured of its stages, without a training."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from small_poses import POSE, RECIPE, SIDE, drawn, publish_poses

from podline.documents.skeleton import COCO
from podline.kinds.pose.objective import PoseObjective
from podline.kinds.pose.settings import PoseTargetSettings
from podline.kinds.pose.stage_measures import stage_figures, stage_losses, stage_sums, sum_names
from podline.kinds.pose.targets import PoseTargets, pose_targets
from podline.recipes.kind_table import facts_named

STAGES = ("stage1_paf", "stage2_paf", "stage3_heatmap")
OBJECTIVE, TARGETS = PoseObjective(POSE, COCO), facts_named(RECIPE.kind).targets


def perfect(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {stage: batch["pafs" if stage.endswith("paf") else "heatmaps"] for stage in STAGES}


def test_perfect_answers_have_no_loss_and_find_every_joint_and_losses_are_means():
    columns = drawn(4, 3)
    batch = OBJECTIVE.with_targets({name: tf.constant(columns[name]) for name in OBJECTIVE.fields})
    terms = OBJECTIVE.terms(batch, perfect(batch))
    assert list(terms) == list(STAGES)
    assert all(np.count_nonzero(term) == 0 and term.shape == (4,) for term in terms.values())
    measures = OBJECTIVE.measures(batch, perfect(batch))
    assert set(measures) == set(OBJECTIVE.measured)
    sums = {name: float(np.sum(value)) for name, value in measures.items()}
    assert OBJECTIVE.headline(sums, 4) == {"joints found": 1.0}
    figures = OBJECTIVE.figures(sums, 4)["measures"]
    assert list(figures) == sorted(figures)
    assert figures["stage2_paf/loss"] == 0
    assert figures["stage3_heatmap/magnitude"] == pytest.approx(1)
    half = {stage: 0.5 * answer for stage, answer in perfect(batch).items()}
    sums = {name: float(np.sum(value)) for name, value in OBJECTIVE.measures(batch, half).items()}
    for stage, term in OBJECTIVE.terms(batch, half).items():
        assert OBJECTIVE.figures(sums, 4)["measures"][f"{stage}/loss"] == pytest.approx(float(np.mean(term)))


@pytest.mark.parametrize(
    ("joint", "words"),
    [
        ((np.nan, 3, 1), "has joint 2 of person 1 at (nan, 3) with visibility 1"),
        ((3, SIDE, 2), f"at (3, {SIDE}) with visibility 2, expected coordinates in an image of {SIDE} pixels"),
        ((3, 3, 7), "with visibility 7"),
    ],
)
def test_a_joint_that_cannot_be_is_refused_with_its_place(tmp_path, joint, words):
    manifest = publish_poses(tmp_path)
    columns = drawn(5, 0)
    assert TARGETS.check(columns, manifest) is None
    columns["keypoints"][3, 1, 2] = joint
    found = TARGETS.check(columns, manifest)
    assert found is not None
    assert found[0] == 3
    assert words in found[1]


CELLS = 4


def random_maps(channels: int, seed: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).normal(size=(2, CELLS, CELLS, channels)), tf.float32)


WEIGHTS = np.random.default_rng(0).choice([0.0, 0.5, 1.0], (2, CELLS, CELLS, 1)).astype(np.float32)


def random_case() -> tuple[PoseTargets, dict[str, tf.Tensor]]:
    """Targets, and the outputs of three stages."""
    channels = {"stage2_paf": 40, "stage1_paf": 40, "stage3_heatmap": 18}
    answers = {name: random_maps(wide, place) for place, (name, wide) in enumerate(channels.items())}
    return PoseTargets(tf.abs(random_maps(18, 3)), random_maps(40, 4), tf.constant(WEIGHTS)), answers


@pytest.mark.parametrize("emphasis", [0.0, 3.0])
def test_losses_are_the_definition(emphasis):
    targets, answers = random_case()
    losses = stage_losses(answers, targets, emphasis)
    assert list(losses) == list(STAGES)
    for name, loss in losses.items():
        target = targets.pafs if name.endswith("paf") else targets.heatmaps
        for example in range(2):
            weights = WEIGHTS[example, ..., 0].astype(float)
            wanted = np.asarray(target)[example].astype(float)
            # Both channels of a field's vector count by its length.
            strength = np.repeat(np.hypot(wanted[..., ::2], wanted[..., 1::2]), 2, -1) if "paf" in name else wanted
            squares = (np.asarray(answers[name])[example] - wanted) ** 2
            squares = (squares * (1 + emphasis * strength)).sum(axis=-1)
            # sums of up to 640 float32 squares
            assert float(loss[example]) == pytest.approx((squares * weights).sum() / weights.sum(), rel=1e-5)


def test_what_is_ignored_has_no_influence_and_no_gradient():
    targets, answers = random_case()
    ignored = WEIGHTS == 0
    changed = {name: tf.where(ignored, 1e6, answer) for name, answer in answers.items()}
    for name, loss in stage_losses(answers, targets).items():
        assert np.asarray(loss).tolist() == np.asarray(stage_losses(changed, targets)[name]).tolist()
    answer = answers["stage3_heatmap"]
    for given in (targets, targets._replace(weights=tf.zeros_like(targets.weights))):
        ignored = np.broadcast_to(np.asarray(given.weights) == 0, answer.shape)
        with tf.GradientTape() as tape:
            tape.watch(answer)
            loss = tf.reduce_sum(stage_losses({"stage3_heatmap": answer}, given)["stage3_heatmap"])
        gradient = np.asarray(tape.gradient(loss, answer))
        assert not gradient[ignored].any()
        assert gradient[~ignored].all()
        assert loss == 0 or not ignored.all()


LARGE, ROWS = 128, 16


def targets(ignored=0):
    keypoints = np.zeros((2, 2, 18, 3), np.float32)
    keypoints[0, 0, COCO.index["right_hip"]] = 35.5, 35.5, 2
    keypoints[0, 0, COCO.index["right_knee"]] = 35.5, 83.5, 2
    keypoints[1, 0, COCO.index["right_hip"]] = 91.5, 19.5, 2
    keypoints[1, 1, COCO.index["left_wrist"]] = 43.5, 99.5, 1
    mask = np.full((2, ROWS, ROWS), ignored, np.uint8)
    return pose_targets(keypoints, mask, LARGE, PoseTargetSettings(joint_sigma=8, limb_sigma=8), COCO)


def measured(heatmaps, pafs, drawn):
    answers = {"stage1_paf": pafs, "stage2_heatmap": heatmaps}
    sums = stage_sums({name: tf.convert_to_tensor(answer) for name, answer in answers.items()}, drawn)
    assert tuple(sums) == sum_names(tuple(answers))
    assert {tuple(value.shape) for value in sums.values()} == {(2,)}
    return stage_figures({name: float(tf.reduce_sum(value)) for name, value in sums.items()}, tuple(answers), COCO)


def test_a_constant_is_a_collapse_however_strong():
    drawn = targets()
    found = measured(tf.fill(drawn.heatmaps.shape, 0.1), tf.fill(drawn.pafs.shape, -0.2), drawn)
    assert min(found["stage2_heatmap/magnitude"], found["stage1_paf/magnitude"]) > 1
    assert found["stage2_heatmap/variation"] == pytest.approx(0, abs=1e-4)
    assert found["stage1_paf/variation"] == pytest.approx(0, abs=1e-4)
    healthy = measured(0.1 + 0.5 * drawn.heatmaps, 0.5 * drawn.pafs, drawn)
    for stage in ("stage1_paf", "stage2_heatmap"):
        assert healthy[f"{stage}/variation"] == pytest.approx(0.5, rel=1e-3)
    nothing_counts = targets(ignored=255)
    assert set(measured(nothing_counts.heatmaps, nothing_counts.pafs, nothing_counts).values()) == {0}, "and not nan"


def ramp(drawn):
    return np.broadcast_to(np.linspace(0.5, 2, ROWS, dtype=np.float32)[None, None, :, None], drawn.heatmaps.shape)


@pytest.mark.parametrize(
    ("heatmaps", "recall", "islands"),
    [
        (lambda drawn: tf.roll(drawn.heatmaps, 1, axis=2), None, 1),  # a cell away
        (lambda drawn: tf.roll(drawn.heatmaps, 3, axis=2), None, 0),
        (lambda drawn: drawn.heatmaps * [[[[1.0]]], [[[0.0]]]], None, 1 / 2),  # two of four joints
        (ramp, 1, 0),  # a blur without a peak
    ],
)
def test_islands_are_found_near_by_alone(heatmaps, recall, islands):
    drawn = targets()
    found = measured(heatmaps(drawn), -drawn.pafs, drawn)
    assert found["stage2_heatmap/island_recall"] == pytest.approx(islands)
    assert recall is None or found["stage2_heatmap/recall"] == recall
    assert found["stage1_paf/magnitude"] == pytest.approx(1)
    assert found["stage1_paf/recall"] == found["stage1_paf/island_recall"] == 0, "a field points the wrong way"
