"""Runs that fail for one reason each, and what the error says of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from metrics_lines import steps_line
from small_dataset import FINGERPRINT, drawn, publish_dataset, seal, small_recipe

from podline.data.order import TrainingOrder
from podline.data.reader import SplitReader
from podline.documents.manifest import Manifest, dataset_folder, read_manifest
from podline.documents.metrics_log import read_events
from podline.errors import DivergenceError
from podline.kinds.classification import objective
from podline.kinds.classification.objective import cross_entropy
from podline.kinds.classification.settings import ClassificationSettings
from podline.models import build
from podline.progress import Reporter, silent
from podline.recipes.durations import Duration, Part
from podline.recipes.settings import ExplosionSettings, ModelSettings, ScheduleSettings
from podline.stages.specs import TrainSpec
from podline.store.opening import open_store
from podline.training.divergence import Failure, StopOnDivergence
from podline.training.loop import Stretch
from podline.training.tracing import Culprits, find_culprits
from podline.training.train import train

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


def failing(root: Path, reporter: Reporter | None = None, **values) -> str:
    """Without a preflight, which would look at the labels beforehand."""
    spec = TrainSpec(root=str(root), recipe=RECIPE.changed(**values), fingerprint=FINGERPRINT, preflight=False)
    with pytest.raises(DivergenceError) as caught:
        train(spec, reporter or silent())
    return str(caught.value)


def step_of(example: int) -> int:
    """The step, from 1, of the first epoch in which an example is learned from."""
    order = TrainingOrder(EXAMPLES, RECIPE.batch_size, 0)
    return 1 + next(step for step in range(order.steps_per_epoch) if example in order.batch(step)[1])


def opened(root: Path, split: str) -> tuple[SplitReader, Manifest]:
    store, name = open_store(str(root)), dataset_folder("sample", FINGERPRINT)
    manifest = read_manifest(store, name)
    return SplitReader(store.local(name).joinpath, manifest, split), manifest


def place_of(root: Path, example: int) -> str:
    file, record, offset = opened(root, "train")[0].locate(example)
    return f"example {example} of the training split: record {record} of {file}, at byte {offset}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    publish_dataset(tmp_path, train=EXAMPLES)
    return tmp_path


def relabel(root: Path, *examples: int, split: str = "train") -> None:
    """Gives examples a label that the manifest does not count, in their shard."""
    reader, manifest = opened(root, split)
    for example in examples:
        name, _, offset = reader.locate(example)
        file = root / dataset_folder("sample", FINGERPRINT) / name
        content = bytearray(file.read_bytes())
        content[offset + 12 + manifest.field("label").offset] = 255  # 12 bytes of TFRecord's frame come first
        file.write_bytes(content)
    seal(root)


def test_one_label_out_of_range_among_hundreds_is_named_with_its_place(root: Path):
    relabel(root, POISONED)
    said, step = [], step_of(POISONED)
    message = failing(root, Reporter("train", said.append))
    assert message.startswith(f"the loss is nan at step {step}: batch {step} of 25 in epoch 1")
    assert f"\nthe cause is {place_of(root, POISONED)}, label 255\n" in message
    assert "the first fault is in the loss term cross_entropy, which is nan" in message
    assert f"they fail with the weights of step {(step - 1) // 3 * 3} already" in message
    assert len(message.splitlines()[-1].split(": ")[1].split(", ")) == 5, "norms of the gradient before"
    assert not any("repeating" in event.get("message", "") for event in said), "no step is taken again"


@pytest.mark.slow
def test_pixels_that_an_operation_cannot_bear_are_named_though_a_batch_norm_spreads_them(tmp_path: Path, monkeypatch):
    columns = drawn(EXAMPLES, 0)
    columns["image"][POISONED] = 0
    publish_dataset(tmp_path, splits={"train": columns, "test": drawn(40, 1)})
    normalised = build._normalised

    def rooted(*arguments):
        inputs = normalised(*arguments)
        return inputs * keras.ops.sqrt(keras.ops.max(inputs, axis=(1, 2, 3), keepdims=True) + 1.0)

    monkeypatch.setattr(build, "_normalised", rooted)
    message = failing(tmp_path, model=RESNET)
    assert f"the cause is {place_of(tmp_path, POISONED)}, label " in message
    assert "the first fault is in the output of operation sqrt" in message
    assert "without them the batch is finite" in message


def test_an_example_that_only_a_later_state_cannot_bear_is_come_by_again(root: Path, monkeypatch):
    def poisoned(labels, logits, smoothing=0.0):
        losses = cross_entropy(labels, logits, smoothing)
        return tf.where((labels == 1) & (logits[:, 1] > 6.0), np.inf, losses)

    monkeypatch.setattr(objective, "cross_entropy", poisoned)
    said = []
    message = failing(
        root,
        Reporter("train", said.append),
        schedule=ScheduleSettings(kind="constant", learning_rate=0.5),
        checkpoint_steps=1000,
    )
    assert any("steps from step 0" in event.get("message", "") for event in said)
    assert set(re.findall(r", label (\d)", message)) == {"1"}
    assert "the loss term cross_entropy, which is inf" in message
    assert "with the weights of step 0 they did not" in message


def test_a_rate_that_is_too_high_is_no_examples_fault(root: Path):
    rate = ScheduleSettings(kind="constant", learning_rate=1000)
    message = failing(root, model=RESNET, schedule=rate, optimizer={"weight_decay": 1e35}, checkpoint_steps=8)
    assert re.match(r"the loss is (nan|inf) at step \d+: batch \d+ of 25 in epoch 1, 32 examples", message)
    assert "no single example is the cause: of the batch's examples each one fails by itself" in message
    assert "the weights are the cause: the largest output is " in message
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
    assert "no single example is the cause: their losses lie between" in message
    assert "of layer classifier" in message


def test_a_few_examples_that_hold_most_of_an_exploded_loss_are_named(root: Path, monkeypatch):
    relabel(root, POISONED)

    def heavy(labels, logits, smoothing=0.0):
        losses = cross_entropy(tf.minimum(labels, 2), logits, smoothing)
        return tf.where(labels == 255, 1e6 * losses, losses)

    monkeypatch.setattr(objective, "cross_entropy", heavy)
    message = failing(root, explosion=ExplosionSettings(factor=2.0, stretches=1))
    assert f"the cause is {place_of(root, POISONED)}, label 255" in message
    assert "% of the batch's loss comes from these examples" in message


def test_an_example_that_cannot_be_evaluated_is_named(root: Path):
    relabel(root, 17, split="test")
    message = failing(root, duration=Duration(steps=2))
    assert message.startswith(
        "the loss of the test split is nan after step 2\n1 of its 40 examples have no finite loss, 1 of them"
    )
    assert "\nexample 17 of the test split: record 7 of sample-test.tfrecord-00001-of-00004, at byte " in message


def test_weights_that_grew_too_far_in_the_last_step_are_the_cause_and_no_record_is(root: Path):
    rate = {"kind": "constant", "learning_rate": 1000}
    message = failing(root, duration=Duration(steps=1), schedule=rate, optimizer={"weight_decay": 1e35})
    assert "have no finite loss, and all have one with random weights: the weights are the cause" in message
    assert "example " not in message.splitlines()[1]


@given(st.integers(9, 200), st.data())
def test_exactly_those_that_fail_by_themselves_are_found_in_few_tries(count, data):
    poisoned = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=4))
    tries = 0

    def fails(places) -> bool:
        nonlocal tries
        tries += 1
        return not poisoned.isdisjoint(places)

    assert find_culprits(count, fails) == Culprits(tuple(sorted(poisoned)))
    assert tries <= 8 + 2 * len(poisoned) * count.bit_length()


@pytest.mark.parametrize("count", [2, 3, 1000])
def test_where_each_one_fails_or_only_many_together_none_is_the_cause(count):
    assert find_culprits(count, lambda places: True) == Culprits(all_fail=True)
    assert find_culprits(count, lambda places: 0 in places) == Culprits((0,))
    assert find_culprits(count, lambda places: len(places) > max(1, count // 4)) == Culprits()


USUAL = ExplosionSettings()
ORDER = TrainingOrder(48, 8, 0)


def stretch(step: int, losses: Sequence[float], norms: Sequence[float] | None = None) -> Stretch:
    series = {"loss": np.array(losses, np.float32), "gradient_norm": np.array(norms or [1.0] * len(losses), np.float32)}
    return Stretch(series, seconds=1.0, waiting=0.0, step=step, last=False)


def hook(settings: ExplosionSettings = USUAL, before: Sequence = ()) -> tuple[StopOnDivergence, list]:
    failures: list[Failure] = []

    def explain(failure: Failure) -> str:
        failures.append(failure)
        return "because of a reason"

    return StopOnDivergence(ORDER, settings, before, explain), failures


@pytest.mark.parametrize("loss", [np.nan, np.inf, -np.inf])
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


def explosion(losses: Sequence[float], settings: ExplosionSettings = USUAL) -> list[Failure]:
    """Stretches of two steps each."""
    stop, failures = hook(settings)
    for number, loss in enumerate(losses, start=1):
        try:
            stop.after(stretch(2 * number, [loss, loss]))
        except DivergenceError:
            break
    return failures


def test_a_loss_that_stays_far_above_what_is_usual_has_exploded_where_it_began_to():
    [failure] = explosion([2.0, 1.0, 0.5, 21.0, 30.0, 1e9])
    assert failure.step == 6
    assert failure.limit == 20.0, "ten times the loss of the untrained model"
    assert "the loss has exploded: 1e+09 up to step 12, and for 3 stretches above 20" in failure.what


def test_what_is_no_explosion():
    assert explosion([2.0, *[1e-4] * 50, *[0.1] * 50]) == [], "a trained model's loss may be a thousand times as high"
    assert explosion([2.0, 1.0, 30.0, 30.0, 1.0, 30.0, 30.0, 1.0]) == [], "it came back"
    assert explosion([0.1, *[5.0 * 1.2**n for n in range(20)]], ExplosionSettings(factor=100.0)) == []
    assert explosion([-1.0, -2.0, -3.0, 5.0, 5.0, 5.0]) == [], "nine times the loss's size is not reached"


def test_a_loss_that_began_below_zero_explodes_upwards():
    [failure] = explosion([-1.0, -2.0, -3.0, 9.0, 9.0, 9.0])
    assert (failure.step, failure.limit) == (6, 8.0)


def test_a_run_that_goes_on_knows_what_was_usual_before():
    stop, _ = hook(ExplosionSettings(stretches=1), [steps_line(2, 2.0), steps_line(4, 1.0)])
    stop.after(stretch(6, [19.0, 19.0]))
    with pytest.raises(DivergenceError, match=r"norms of the gradient before it: 5, 5, 1, 1\b"):
        stop.after(stretch(8, [21.0, 21.0]))
