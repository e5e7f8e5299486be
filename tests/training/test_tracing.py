"""A run whose loss is no number, or explodes, ends with its cause: examples by their place, or the weights."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from small_dataset import FINGERPRINT, publish_dataset, seal, small_recipe

from podline.base.errors import DivergenceError
from podline.base.progress import silent
from podline.data.order import TrainingOrder
from podline.data.reader import SplitReader
from podline.documents.manifest import dataset_folder, read_manifest
from podline.documents.metrics_log import read_events
from podline.kinds.classification import objective
from podline.kinds.classification.objective import cross_entropy
from podline.kinds.classification.settings import ClassificationSettings
from podline.recipes.durations import Duration, Part
from podline.recipes.settings import ExplosionSettings, ModelSettings, ScheduleSettings
from podline.stages.specs import TrainSpec
from podline.store.opening import open_store
from podline.training.divergence import FailedStep, StopOnDivergence
from podline.training.loop import Stretch
from podline.training.train import train
from tests.support.metrics import steps_line

EXAMPLES, POISONED = 800, 437
RESNET = ModelSettings(kind="resnet", width=0.1)
RECIPE = small_recipe(
    batch_size=32,
    duration=Duration(steps=100),
    task=ClassificationSettings(label_smoothing=0.1),
    checkpoint_steps=3,
    summary_steps=4,
    deterministic=True,
)


def failing(root: Path, **values) -> str:
    """Without a preflight, which would look at the labels beforehand."""
    spec = TrainSpec(root=str(root), recipe=RECIPE.changed(**values), fingerprint=FINGERPRINT, preflight=False)
    with pytest.raises(DivergenceError) as caught:
        train(spec, silent())
    return str(caught.value)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    publish_dataset(tmp_path, train=EXAMPLES)
    return tmp_path


def relabel(root: Path, example: int, split: str = "train") -> str:
    """Give an example a label that the manifest does not count; return how an error names it."""
    store, folder = open_store(str(root)), dataset_folder("sample", FINGERPRINT)
    manifest = read_manifest(store, folder)
    name, record, offset = SplitReader(store.local(folder).joinpath, manifest, split).locate(example)
    content = bytearray((root / folder / name).read_bytes())
    content[offset + 12 + manifest.field("label").offset] = 255  # 12 bytes of TFRecord's frame come first
    (root / folder / name).write_bytes(content)
    seal(root)
    split = split.replace("train", "training")
    return f"example {example} of the {split} split: record {record} of {name}, at byte {offset}"


def test_one_label_out_of_range_among_hundreds_is_named_with_its_place(root: Path):
    place = relabel(root, POISONED)
    order = TrainingOrder(EXAMPLES, RECIPE.batch_size, 0)
    step = 1 + next(step for step in range(order.steps_per_epoch) if POISONED in order.batch(step)[1])
    message = failing(root)
    assert message.startswith(f"the loss is nan at step {step}: batch {step} of 25 in epoch 1")
    assert "with the weights after the stretch of this step, 1 of 32 examples has no finite loss:\n" in message
    assert f"\n{place}, label 255\n" in message
    assert "the first fault is in the loss term cross_entropy, which is nan" in message
    assert len(message.splitlines()[-1].split(": ")[1].split(", ")) == 5, "norms of the gradient before"


def test_a_rate_that_is_too_high_is_no_examples_fault(root: Path):
    rate = ScheduleSettings(kind="constant", learning_rate=1000)
    message = failing(root, model=RESNET, schedule=rate, optimizer={"weight_decay": 1e35}, checkpoint_steps=8)
    assert re.match(r"the loss is (nan|inf) at step \d+: batch \d+ of 25 in epoch 1, 32 examples", message)
    assert "no single example is the cause: with the initial weights, as none are saved" in message
    assert "the weights are the cause, or the device's precision: the largest output is " in message
    assert "a lower learning rate" in message
    [folder] = (root / "runs").iterdir()
    assert [event.event for event in read_events(folder / "events.jsonl")] == ["started", "diverged"]
    assert not list((folder / "checkpoints").glob("*"))
    assert not (folder / "model").exists()


def test_a_loss_that_explodes_and_stays_a_number_is_no_examples_fault(root: Path):
    message = failing(
        root,
        schedule=ScheduleSettings(kind="constant", learning_rate=500.0, warmup=Part(steps=90)),
        explosion=ExplosionSettings(factor=3.0),
    )
    assert "the loss has exploded" in message
    assert "no single example is the cause: with the weights after the stretch of this step, their losses" in message
    assert "of layer classifier" in message


def test_a_few_examples_that_hold_most_of_an_exploded_loss_are_named(root: Path, monkeypatch):
    place = relabel(root, POISONED)

    def heavy(labels, logits, smoothing=0.0):
        losses = cross_entropy(tf.minimum(labels, 2), logits, smoothing)
        return tf.where(labels == 255, 1e6 * losses, losses)

    monkeypatch.setattr(objective, "cross_entropy", heavy)
    message = failing(root, explosion=ExplosionSettings(factor=2.0, stretches=1))
    assert f"% of the batch's loss comes from:\n{place}, label 255\n" in message


def test_an_example_that_cannot_be_evaluated_is_named(root: Path):
    place = relabel(root, 17, split="test")
    message = failing(root, duration=Duration(steps=2))
    assert message.startswith("the loss of the test split is nan after step 2\n1 of 40 examples has no finite loss")
    assert f"\n{place}" in message


def stretch(step: int, losses: Sequence[float], norms: Sequence[float] | None = None) -> Stretch:
    series = {"loss": np.array(losses, np.float32), "gradient_norm": np.array(norms or [1.0] * len(losses), np.float32)}
    return Stretch(series, seconds=1.0, waiting=0.0, step=step, last=False)


def hook(**settings: Any) -> tuple[StopOnDivergence, list[FailedStep]]:
    failures: list[FailedStep] = []
    order = TrainingOrder(48, 8, 0)
    explain = lambda failure: failures.append(failure) or "because of a reason"  # noqa: E731
    return StopOnDivergence(order, ExplosionSettings(**settings), explain), failures


@pytest.mark.parametrize("loss", [np.nan, -np.inf])
def test_a_loss_that_is_no_number_ends_the_run_with_its_cause_and_the_norms_before(loss):
    stop, failures = hook()
    stop.after(stretch(9, [1.0, 2.0], [7.0, 8.0]))
    with pytest.raises(DivergenceError) as caught:
        stop.after(stretch(12, [1.0, loss, loss], [9.0, np.nan, 1.0]))
    [failure] = failures
    assert (failure.step, failure.limit) == (10, np.inf)
    assert str(caught.value).splitlines() == [
        f"the loss is {np.float32(loss)} at step 11: batch 5 of 6 in epoch 2, 8 examples",
        "because of a reason",
        "norms of the gradient before it: 7, 8, 9",
    ]


def test_a_gradient_that_is_no_number_is_seen_where_the_loss_still_is_one():
    stop, failures = hook()
    with pytest.raises(DivergenceError, match="the loss is finite, but its gradient's norm is inf at step 2: "):
        stop.after(stretch(3, [1.0, 1.0, np.nan], [1.0, np.inf, 1.0]))
    assert failures[0].step == 1


def explosion(*losses: float, **settings: Any) -> list[FailedStep]:
    """Stretches of two steps each."""
    stop, failures = hook(**settings)
    with contextlib.suppress(DivergenceError):
        for number, loss in enumerate(losses, start=1):
            stop.after(stretch(2 * number, [loss, loss]))
    return failures


def test_a_loss_that_stays_far_above_what_is_usual_has_exploded_where_it_began_to():
    [failure] = explosion(2.0, 1.0, 0.5, 21.0, 30.0, 1e9)
    assert failure.step == 6
    assert failure.limit == 20.0, "ten times the loss of the untrained model"
    assert "the loss has exploded: 1e+09 up to step 12, and for 3 stretches above 20" in failure.what
    [below_zero] = explosion(-1.0, -2.0, -3.0, 9.0, 9.0, 9.0)
    assert (below_zero.step, below_zero.limit) == (6, 8.0)


def test_a_loss_that_is_high_for_a_moment_or_for_a_trained_model_has_not_exploded():
    assert explosion(2.0, *[1e-4] * 50, *[0.1] * 50) == [], "a trained model's loss may be a thousand times as high"
    assert explosion(2.0, 1.0, 30.0, 30.0, 1.0, 30.0, 30.0, 1.0) == [], "it came back"
    assert explosion(0.1, *[5.0 * 1.2**n for n in range(20)], factor=100.0) == []
    assert explosion(-1.0, -2.0, -3.0, 5.0, 5.0, 5.0) == [], "nine times the loss's size is not reached"


def test_a_run_that_goes_on_knows_what_was_usual_before():
    stop, _ = hook(stretches=1)
    for line in (steps_line(2, 2.0), steps_line(4, 1.0)):
        stop.note(line)
    stop.after(stretch(6, [19.0, 19.0]))
    with pytest.raises(DivergenceError, match=r"norms of the gradient before it: 5, 5, 1, 1\b"):
        stop.after(stretch(8, [21.0, 21.0]))
