"""Steps are those of the book, bit for bit however they are cut; hooks see every stretch and each request to end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_dataset import publish_dataset, small_recipe
from tensorflow.python.framework import config as tf_config

from podline.base.errors import ArtifactError, DivergenceError, PreemptedError, SettingsError
from podline.kinds.classification.objective import ClassificationObjective
from podline.kinds.classification.settings import ClassificationSettings
from podline.models.build import build_model
from podline.models.variables import set_weights, weights
from podline.recipes.durations import Duration, Part
from podline.recipes.epochs import Epochs
from podline.recipes.settings import ModelSettings, OptimizerSettings, Recipe, ScheduleSettings
from podline.training import devices, hooks
from podline.training.checkpoints import Arrays, TimeSpent
from podline.training.hooks import RunClock, SaveCheckpoints, WriteMetrics
from podline.training.loop import Hook, StepsDone, Stretch, next_multiple, require_keys, run_loop, stop_on_sigterm
from podline.training.plan import Plan, plan_training
from podline.training.schedules import Schedule, build_schedule
from podline.training.state import TrainingState
from podline.training.steps import GradientNorms, TrainingSteps
from podline.training.workers import Agreement

BATCH, STEPS, CLASSES = 8, 6, 3


@pytest.fixture(autouse=True)
def _deterministic():
    """The same bits every time, and back to normal afterwards."""
    devices.prepare(0, deterministic=True)
    yield
    tf_config.disable_op_determinism()


def batches() -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (STEPS, BATCH, 8, 8, 3), np.uint8)
    labels = random.integers(0, CLASSES, (STEPS, BATCH), np.int64)
    return [{"image": image, "label": label} for image, label in zip(images, labels, strict=True)]


def dataset(batches: list[dict[str, np.ndarray]]) -> tf.data.Dataset:
    columns: Any = {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}
    return tf.data.Dataset.from_tensor_slices(columns)


RECIPE = Recipe(
    name="t",
    dataset="sample",
    batch_size=BATCH,
    model=ModelSettings(kind="linear", dropout=0.2, l2=1e-2, l2_layers=("classifier",)),
    optimizer=OptimizerSettings(weight_decay=1e-3),
    schedule=ScheduleSettings(kind="cosine", learning_rate=0.05, warmup=Part(steps=2)),
    task=ClassificationSettings(label_smoothing=0.1),
    ema_decay=0.7,
)
OBJECTIVE = ClassificationObjective(0.1)


def schedule() -> Schedule:
    return build_schedule(RECIPE.schedule, STEPS, Epochs(STEPS * BATCH, BATCH))


RESNET = RECIPE.model.model_copy(update={"kind": "resnet", "width": 0.25})


def fresh_state(settings: ModelSettings = RECIPE.model, decay: float = RECIPE.ema_decay) -> TrainingState:
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    model = build_model(settings, (8, 8, 3), CLASSES, [120.0] * 3, [60.0] * 3)
    return TrainingState(model, RECIPE.optimizer, decay)


def steps_of(state: TrainingState, objective: Any = OBJECTIVE, source: Any = None, parts: int = 1) -> TrainingSteps:
    source = source or dataset(batches()[state.step :])
    strategy = tf.distribute.get_strategy()
    return TrainingSteps(strategy, state, schedule().at, objective, source, BATCH, accumulate=parts)


def equal(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return left.keys() == right.keys() and all(left[name].tobytes() == right[name].tobytes() for name in left)


def test_the_inner_loop_does_what_single_steps_by_the_book_do():
    state, book = fresh_state(RESNET), fresh_state(RESNET)
    part = steps_of(state).advance(STEPS)
    assert book.average is not None
    losses, norms, averages = [], [], {variable.path: variable.numpy() for variable in book.average.variables}
    for number, batch in enumerate(batches()):
        book.optimizer.learning_rate = schedule().at(number)
        with tf.GradientTape() as tape:
            logits = book.model(batch["image"], training=True)
            targets = tf.one_hot(batch["label"], CLASSES) * 0.9 + 0.1 / CLASSES
            loss = tf.reduce_mean(tf.keras.losses.categorical_crossentropy(targets, logits, from_logits=True))
            kernel = book.model.get_layer("classifier").kernel
            loss += 1e-2 * tf.reduce_sum(kernel**2)
        gradients = tape.gradient(loss, book.model.trainable_variables)
        norms.append(float(tf.linalg.global_norm(gradients)))
        book.optimizer.apply(gradients, book.model.trainable_variables)
        losses.append(float(loss))
        rate = 1 - min(0.7, (2 + number) / (11 + number))
        for variable in book.model.variables:
            if variable.dtype == "float32":
                averages[variable.path] += (variable.numpy() - averages[variable.path]) * rate
    # Two orders of the same float32 operations; a forgotten term or a wrong rate is off by more than 1e-3.
    np.testing.assert_allclose(part.series["loss"], losses, rtol=2e-5)
    np.testing.assert_allclose(part.series["gradient_norm"], norms, rtol=1e-3)
    for ours, theirs in zip(state.model.variables, book.model.variables, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-3, atol=2e-5)
    assert state.average is not None
    for variable in state.average.variables:
        if variable.dtype == "float32":
            np.testing.assert_allclose(variable.numpy(), averages[variable.path], rtol=1e-3, atol=2e-5)
    assert state.step == STEPS


def test_however_steps_are_cut_into_calls_the_state_and_the_losses_are_the_same_bits():
    one, many = fresh_state(), fresh_state()
    whole = steps_of(one).advance(STEPS)
    steps = steps_of(many)
    parts = [steps.advance(count) for count in (1, 3, 2)]
    assert whole.series["loss"].tobytes() == np.concatenate([part.series["loss"] for part in parts]).tobytes()
    assert whole.series["correct"].sum() == sum(part.series["correct"].sum() for part in parts)
    assert equal(one.snapshot(), many.snapshot())


def test_a_batch_in_parts_gives_the_step_of_the_whole_batch_and_goes_on_bit_by_bit():
    settings, ended = RECIPE.model.changed(dropout=0.0), []  # each part would have draws of its own
    for parts, cuts in ((1, (STEPS,)), (4, (STEPS,)), (4, (2, STEPS - 2))):
        state, taken = fresh_state(settings), []
        for cut in cuts:
            before, state = state.snapshot(), fresh_state(settings)
            state.restore(before)
            taken.append(steps_of(state, parts=parts).advance(cut).series)
        series = {name: np.concatenate([part[name] for part in taken]) for name in taken[0]}
        ended.append((series, state.snapshot()))
    (whole, weights), (series, in_parts), (_, again) = ended
    for name in ("loss", "correct", "gradient_norm"):
        np.testing.assert_allclose(series[name], whole[name], rtol=1e-5)
    for name, values in weights.items():
        np.testing.assert_allclose(in_parts[name], values, rtol=1e-4, atol=1e-6)  # float32 sums in another order
    assert equal(in_parts, again)


def dataset_through(python: Callable[[np.ndarray], np.ndarray]) -> tf.data.Dataset:
    """The batches, each made by Python code when it is asked for."""

    def made(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return batch | {"label": tf.ensure_shape(tf.numpy_function(python, [batch["label"]], tf.int64), (BATCH,))}

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # or a batch would come while the last is worked on
    return dataset(batches()).map(made).with_options(options)


@pytest.mark.parametrize("clock", ["python", "tensorflow"])
def test_waiting_for_input_is_seen_by_either_clock(clock):
    if clock == "tensorflow":
        tf_config.disable_op_determinism()

    def late(labels: np.ndarray) -> np.ndarray:
        time.sleep(0.05)
        return labels

    part = steps_of(fresh_state(), source=dataset_through(late)).advance(STEPS)
    assert 0.05 * STEPS <= part.waiting < part.seconds


class OnDevice(ClassificationObjective):
    """Stands in for an accelerator: the loss of a step is known once ``work`` has returned."""

    def __init__(self, work: Callable[[], None] = lambda: None) -> None:
        super().__init__(0.1)
        self.work = work

    def terms(self, batch: dict[str, tf.Tensor], outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        def work(losses: np.ndarray) -> np.ndarray:
            self.work()
            return losses

        [losses] = super().terms(batch, outputs).values()
        known = tf.ensure_shape(tf.numpy_function(work, [losses], tf.float32, stateful=False), losses.shape)
        return {"cross_entropy": losses + tf.stop_gradient(known - losses)}


def test_the_next_batch_is_made_while_the_device_works_on_the_last_and_none_after_it():
    state, plain, asked, worked = fresh_state(), fresh_state(), list[bool](), list[int]()
    arrived, one_at_a_time = threading.Condition(), threading.Lock()

    def note(labels: np.ndarray) -> np.ndarray:
        with arrived:
            asked.append(True)
            arrived.notify_all()
        return labels

    def work() -> None:
        """Work until the batch after the next step's is asked for, or a wrong loop has waited for this step."""
        with one_at_a_time, arrived:
            arrived.wait_for(lambda: len(asked) >= min(len(worked) + 2, STEPS), timeout=20)
            worked.append(len(asked))

    part = steps_of(state, OnDevice(work), dataset_through(note)).advance(STEPS)
    assert worked == [2, 3, 4, 5, 6, 6]
    assert part.series["loss"].tobytes() == steps_of(plain).advance(STEPS).series["loss"].tobytes()
    assert equal(state.snapshot(), plain.snapshot())


def test_a_snapshot_of_something_else_is_refused_and_changes_nothing():
    state = fresh_state()
    snapshot = state.snapshot()
    kernel = next(name for name in snapshot if name.endswith("kernel"))
    with pytest.raises(ArtifactError, match="got 0 arrays, expected 2"):
        state.restore(fresh_state(decay=0.0).snapshot())
    with pytest.raises(ArtifactError, match=rf"^{kernel} is .*float64.* vs .*float32.* in this model"):
        state.restore(snapshot | {kernel: snapshot[kernel].astype(np.float64)})
    assert equal(state.snapshot(), snapshot)
    with pytest.raises(ArtifactError, match=r"classifier/bias is .*\(4,\)\) vs .*\(3,\)\) of"):
        set_weights(state.model, weights(state.model) | {"classifier/bias": np.zeros(4, np.float32)})


def test_a_blocks_norm_is_that_of_all_its_gradients():
    names = ("stage1_conv", "stage1_norm", "stage2_conv", "head")
    norms = GradientNorms([keras.Variable(np.zeros(2, np.float32), name=name) for name in names])
    gradients = [tf.constant([1.0, 2.0]), tf.constant([0.0, 2.0]), tf.constant([4.0, 0.0]), tf.zeros(2)]
    one = norms.of(gradients).numpy()
    series = norms.series(np.stack([one, 2 * one]))
    blocks = {"": [5.0, 10.0], "/stage1": [3.0, 6.0], "/stage2": [4.0, 8.0], "/head": [0.0, 0.0]}
    assert {name.removeprefix("gradient_norm"): values.tolist() for name, values in series.items()} == blocks


@pytest.fixture(scope="module")
def plan(tmp_path_factory) -> Plan:
    """Three epochs of six steps of eight; evaluated every four steps."""
    manifest = publish_dataset(tmp_path_factory.mktemp("root"), train=50, test=9)
    return plan_training(small_recipe(duration=Duration(epochs=3), evaluate_every=Duration(steps=4)), manifest)


def stretch(step: int, *losses: float, last: bool = False) -> Stretch:
    norms = np.arange(len(losses), dtype=np.float32)
    series = {
        "loss": np.array(losses, np.float32),
        "correct": np.full(len(losses), 2, np.float32),
        "gradient_norm": 5 * norms,
        "gradient_norm/stem": 3 * norms,
        "gradient_norm/classifier": 4 * norms,
    }
    return Stretch(series, seconds=0.5 * len(losses), waiting=0.1 * len(losses), step=step, last=last)


def test_a_line_of_metrics_says_what_the_stretch_was(plan):
    lines = []
    clock = RunClock(TimeSpent(wall=100.0, training=10.0, waiting=1.0), time.monotonic())
    run: Any = SimpleNamespace(plan=plan, objective=ClassificationObjective(), recipe=small_recipe(summary_steps=5))
    hook = WriteMetrics(run, lines.append, clock, lambda: 1.0)
    for member in (clock, hook):
        member.after(stretch(9, 1.0, 2.0, 6.0))
    [line] = lines
    assert (line.step, line.epoch, line.losses, line.loss) == (9, 1.5, (1.0, 2.0, 6.0), 3.0)
    assert line.accuracy == 6 / 24
    assert (line.gradient_norm, line.gradient_norms) == (5.0, {"stem": 3.0, "classifier": 4.0}), "means of 0, 1 and 2"
    assert line.learning_rate == plan.rate(8), "the rate that the last step was taken with"
    assert line.examples_per_second == pytest.approx(24 / 1.5)
    assert line.waiting == pytest.approx(0.2)
    assert line.seconds == pytest.approx(11.5)
    assert clock.read().waiting == pytest.approx(1.3)
    assert 100 <= clock.read().wall < 110
    assert [hook.next_stop(step) for step in (0, 4, 5)] == [5, 5, 10]


def saver(saved: list[int], arrays: Callable[[], Arrays] = dict, minutes: float = 1e5) -> SaveCheckpoints:
    run: Any = SimpleNamespace(
        checkpoints=SimpleNamespace(save=lambda step, *_given: saved.append(step)),
        state=SimpleNamespace(snapshot=arrays),
        log=SimpleNamespace(mark=lambda: None),
        recipe=small_recipe(checkpoint_steps=6, checkpoint_minutes=minutes),
        agreement=Agreement(tf.distribute.get_strategy()),
        require_data_unchanged=lambda: None,
    )
    return SaveCheckpoints(run, RunClock(TimeSpent(), time.monotonic()), lambda: None, lambda _step: False)


def test_checkpoints_come_every_so_many_steps_or_minutes_and_when_the_loop_ends(monkeypatch):
    saved = []
    hook = saver(saved)
    for step in (4, 6, 8, 12, 14):
        hook.after(stretch(step, 1.0, last=step == 14))
    assert saved == [6, 12, 14]
    assert hook.next_stop(6) == 12
    now, saved = 1000.0, []
    monkeypatch.setattr(hooks.time, "monotonic", lambda: now)
    hook = saver(saved, minutes=2)
    for step, now in ((1, 1060.0), (2, 1121.0), (3, 1200.0), (4, 1242.0)):  # noqa: B007 (read by the clock)
        hook.after(stretch(step, 1.0))
    assert saved == [2, 4]


def test_no_checkpoint_is_written_of_numbers_that_are_not_finite():
    saved = []
    hook = saver(saved, lambda: {"seed": np.array([1]), "model/kernel": np.array([1.0, np.nan], np.float32)})
    with pytest.raises(DivergenceError, match="model/kernel has values that are not finite after step 6"):
        hook.after(stretch(6, 1.0))
    assert saved == []


class Device:
    """Takes steps whose loss is their number; ``pace`` is what it says a step takes."""

    def __init__(self, pace: float = 0.01) -> None:
        self.step, self.pace, self.counts = 0, pace, []

    def advance(self, count: int) -> StepsDone:
        losses = np.arange(self.step + 1, self.step + count + 1, dtype=np.float32)
        self.step += count
        self.counts.append(count)
        return StepsDone({"loss": losses}, seconds=count * self.pace, waiting=count * self.pace / 4)


class Recorder(Hook):
    def __init__(self, every: int | None = None) -> None:
        self.every, self.seen = every, []

    def next_stop(self, step: int) -> int:
        return next_multiple(step, self.every) if self.every else super().next_stop(step)

    def after(self, stretch: Stretch) -> None:
        self.seen.append(stretch)

    def rehearse(self, stretch: Stretch) -> None:
        raise NotImplementedError


def run(device: Device, total: int, hooks: list[Hook], asked=lambda: False) -> None:
    run_loop(device.advance, 0, total, hooks=hooks, news=lambda step, part: None, asked_to_stop=asked)


def test_the_loop_stops_where_any_hook_wants_and_all_hooks_see_every_stretch():
    fours, sixes, never = Recorder(4), Recorder(6), Recorder()
    run(Device(), 13, [fours, sixes, never])
    assert [stretch.step for stretch in never.seen] == [4, 6, 8, 12, 13]
    assert fours.seen == sixes.seen == never.seen
    assert [stretch.first for stretch in never.seen] == [0, 4, 6, 8, 12]
    assert [stretch.last for stretch in never.seen] == [False] * 4 + [True]
    assert np.concatenate([stretch.series["loss"] for stretch in never.seen]).tolist() == list(range(1, 14))


@pytest.mark.parametrize(("pace", "most"), [(0.4, 2), (2.5, 1)])
def test_slow_steps_come_in_short_parts_and_add_up_to_the_same_stretches(pace: float, most: int):
    device, recorder = Device(pace=pace), Recorder(10)
    run(device, 10, [recorder])
    assert max(device.counts) == most, "a part is about a second"
    [stretch] = recorder.seen
    assert stretch.steps == 10
    assert stretch.seconds == pytest.approx(10 * pace)
    assert stretch.waiting == pytest.approx(10 * pace / 4)


@pytest.mark.parametrize("when", ["while the hooks are at work", "after the hooks"])
def test_hooks_know_of_a_request_to_end_whenever_it_comes(when: str):
    asked, left = threading.Event(), []

    class Leaving(Recorder):
        def after(self, stretch: Stretch) -> None:
            super().after(stretch)
            asked.set()

        def leaving(self, stretch: Stretch) -> None:
            left.append(stretch)

    # How often it was asked, after the hooks were at work; the last time is that at the top of the next stretch.
    answers = iter([True] if when == "while the hooks are at work" else [False, True, True])
    leaving = Leaving(4)
    with pytest.raises(PreemptedError, match="at step 4 of 20"):
        run(Device(), 20, [leaving], asked=lambda: asked.is_set() and next(answers))
    assert left == leaving.seen
    assert (left[0].step, left[0].last) == (4, False)


def test_sigterm_is_a_request_while_the_body_runs_and_what_it_was_afterwards():
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_sigterm() as asked:
        assert not asked()
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_hook_that_reads_what_no_step_tells_is_refused_by_name():
    class Picky(Recorder):
        reads = ("loss", "depth")

    require_keys([Recorder(), Picky()], ("loss", "correct", "depth"))
    with pytest.raises(SettingsError, match=r"the hook Picky reads 'depth', expected one of loss, correct"):
        require_keys([Recorder(), Picky()], ("loss", "correct"))
