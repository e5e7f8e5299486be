"""What stays equal when replicas share a batch: nearly everything; see docs/how-to/strategies.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from dying_runs import killed_at
from small_dataset import FINGERPRINT, drawn, publish_dataset
from tensorflow.python.framework import config as tf_config

from podline.data.order import TrainingOrder
from podline.data.reader import SplitReader
from podline.documents.metrics_log import read_metrics
from podline.errors import SettingsError
from podline.input.pipeline import EvaluationInput, TrainingInput
from podline.kinds.classification.objective import Classification
from podline.kinds.classification.settings import ClassificationSettings
from podline.kinds.table import kind_of
from podline.models.batch_layers import BatchDropout, FusedBatchNormalization
from podline.models.build import build_model
from podline.progress import silent
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings, ModelSettings, OptimizerSettings, Recipe, ScheduleSettings
from podline.stages.specs import TrainSpec
from podline.training import devices
from podline.training.schedules import build_schedule
from podline.training.state import TrainingState
from podline.training.steps import ScoringSteps, TrainingSteps
from podline.training.train import train

BATCH, STEPS = 16, 8
# float32 sums in another order, over a few steps; what each wrong reduction does is beyond 1e-3 (see the test of it).
TOLERANCE = 1e-5

RECIPE = Recipe(
    name="t",
    dataset="sample",
    batch_size=BATCH,
    model=ModelSettings(kind="linear", dropout=0.3, l2=1e-2, l2_layers=("classifier",)),
    optimizer=OptimizerSettings(weight_decay=1e-2, clip_norm=2.0),
    schedule=ScheduleSettings(kind="constant", learning_rate=0.05),
    augmentation=AugmentationSettings(flip=True),
    task=ClassificationSettings(label_smoothing=0.1),
    ema_decay=0.9,
    evaluation_batch_size=15,
    duration=Duration(steps=STEPS),
    evaluate_every=Duration(steps=4),
    checkpoint_steps=3,
    summary_steps=2,
    deterministic=True,
)
MIXED = RECIPE.model_copy(update={"augmentation": AugmentationSettings(crop=0.5, mixup=0.4, cutmix=1)})
RESNET = RECIPE.model_copy(update={"model": ModelSettings(kind="resnet", width=0.25, dropout=0.3)})


@pytest.fixture(autouse=True)
def _back_to_normal():
    yield
    tf_config.disable_op_determinism()


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("root")
    publish_dataset(root)
    return root


def replicas(strategy: str) -> tf.distribute.Strategy:
    return devices.prepare(0, deterministic=True, strategy=strategy)


def trained(
    root: Path, strategy: str, recipe: Recipe, steps: int = STEPS
) -> tuple[Mapping[str, np.ndarray], TrainingState]:
    """What the steps told and the state after some steps."""
    manifest = publish_dataset(root)
    made = replicas(strategy)
    with made.scope():
        model = build_model(recipe.model, (8, 8, 3), 3, [120.0] * 3, [60.0] * 3)
        state = TrainingState(model, recipe.optimizer, recipe.ema_decay)
    if not steps:
        return {}, state
    reader = SplitReader((root / "datasets" / "sample" / FINGERPRINT).joinpath, manifest, "train")
    order = TrainingOrder(len(reader), recipe.batch_size, 0)
    batches = TrainingInput(reader, manifest, ("image", "label"), order=order, augmentation=recipe.augmentation)
    parts = made.distribute_datasets_from_function(lambda context: batches.dataset(0, steps, context=context))
    schedule = build_schedule(recipe.schedule, steps, order.epochs)
    taken = TrainingSteps(
        made, state, schedule.at, kind_of(recipe).objective(recipe, manifest), parts, recipe.batch_size
    ).advance(steps)
    return taken.series, state


def furthest(left: TrainingState, right: TrainingState) -> float:
    """The greatest difference of any variable, of what is not a state of a generator; those must be equal."""
    ours, theirs = left.snapshot(), right.snapshot()
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        if not np.issubdtype(array.dtype, np.floating):
            np.testing.assert_array_equal(array, theirs[name], err_msg=name)
    return max(
        float(np.abs(array - theirs[name]).max())
        for name, array in ours.items()
        if np.issubdtype(array.dtype, np.floating)
    )


def require_equal_copies(state: TrainingState, strategy: tf.distribute.Strategy) -> None:
    variables = [
        *state.model.variables,
        *state.optimizer.variables,
        *(state.average.variables if state.average else []),
    ]
    for variable in variables:
        first, *others = [copy.numpy().tobytes() for copy in strategy.experimental_local_results(variable.value)]
        assert len(others) == strategy.num_replicas_in_sync - 1
        assert all(other == first for other in others), variable.path


@pytest.mark.parametrize(
    ("strategy", "recipe"),
    [
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("cpu:2", RECIPE), ("cpu:4", MIXED))),
        ("cpu:4", RECIPE),
        ("cpu:2", RESNET),
    ],
    ids=["linear-2", "mixed-4", "linear-4", "resnet-2"],
)
def test_replicas_that_share_a_batch_take_the_steps_of_one_device(root, strategy, recipe):
    """Dropout, L2, decay, a bound on the gradient, smoothing, the average of weights and batch norm included."""
    told, alone = trained(root, "cpu", recipe)
    shared_told, shared = trained(root, strategy, recipe)
    for name, series in told.items():  # the loss, what is right, the norm of each block's gradient
        np.testing.assert_allclose(shared_told[name], series, rtol=10 * TOLERANCE, err_msg=name)
    np.testing.assert_allclose(shared_told["loss"], told["loss"], rtol=TOLERANCE)
    assert furthest(shared, alone) < TOLERANCE
    require_equal_copies(shared, replicas(strategy))
    assert shared.step == STEPS


@pytest.mark.parametrize("kind", [pytest.param("adafactor", marks=pytest.mark.slow), "muon"])
def test_optimizers_of_our_own_are_given_the_sum_of_the_gradients_once(root, kind):
    recipe = RECIPE.model_copy(
        update={
            "optimizer": OptimizerSettings(kind=kind, clip_norm=0.5),
            "schedule": ScheduleSettings(kind="constant", learning_rate=1e-3),
        }
    )
    (told, _), (shared_told, shared) = trained(root, "cpu", recipe), trained(root, "cpu:2", recipe)
    np.testing.assert_allclose(shared_told["loss"], told["loss"], rtol=TOLERANCE)
    require_equal_copies(shared, replicas("cpu:2"))


def test_a_state_goes_from_any_number_of_replicas_to_any_other_bit_for_bit(root):
    snapshot = trained(root, "cpu:2", RECIPE, 3)[1].snapshot()
    for strategy in ("cpu", "cpu:4"):
        _, other = trained(root, strategy, RECIPE, 0)
        other.restore(snapshot)
        again = other.snapshot()
        assert all(again[name].tobytes() == array.tobytes() for name, array in snapshot.items())
        require_equal_copies(other, replicas(strategy))


def test_batch_norm_over_replicas_is_batch_norm_of_the_whole_batch():
    images = np.random.default_rng(0).normal(3, 2, (8, 3, 3, 5)).astype(np.float32)
    # A loss that is no mean over examples: each replica's part weighs differently, as the gradient must know.
    weights = np.random.default_rng(1).normal(0, 1, images.shape).astype(np.float32)
    found = {}
    for name in ("cpu", "cpu:4"):
        strategy = replicas(name)
        with strategy.scope():
            layer = FusedBatchNormalization(momentum=0.75)
            layer.build(images.shape)
            layer.gamma.assign(np.arange(1, 6))
            layer.beta.assign(np.arange(5))

        def part(images, weights, layer=layer):
            parameters = [layer.gamma.value, layer.beta.value]
            with tf.GradientTape() as tape:
                tape.watch(images)
                outputs = layer(images, training=True)
                loss = tf.reduce_sum(tf.square(outputs) * weights)
            to_images, *to_parameters = tape.gradient(loss, [images, *parameters])
            context = tf.distribute.get_replica_context()
            return outputs, to_images, context.all_reduce(tf.distribute.ReduceOp.SUM, to_parameters)

        def share(array, strategy=strategy):
            parts = np.split(array, strategy.num_replicas_in_sync)
            return strategy.experimental_distribute_values_from_function(
                lambda context: tf.constant(parts[context.replica_id_in_sync_group])
            )

        values = (share(images), share(weights)) if name != "cpu" else (tf.constant(images), tf.constant(weights))
        outputs, to_images, to_parameters = tf.function(lambda *v, s=strategy, p=part: s.run(p, args=v))(*values)
        found[name] = [
            *(strategy.gather(value, axis=0).numpy() for value in (outputs, to_images)),
            *(strategy.experimental_local_results(value)[-1].numpy() for value in to_parameters),
            *(strategy.experimental_local_results(v.value)[-1].numpy() for v in layer.non_trainable_variables),
        ]
    for ours, theirs in zip(found["cpu:4"], found["cpu"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-3)


def test_dropout_draws_for_the_whole_batch_and_each_replica_takes_its_own_part():
    found = {}
    for name in ("cpu", "cpu:4"):
        strategy = replicas(name)
        with strategy.scope():
            layer = BatchDropout(0.5, seed=7)
        count = 32 // strategy.num_replicas_in_sync
        draw = tf.function(
            lambda s=strategy, n=count, layer=layer: s.run(lambda: layer(tf.ones((n, 16)), training=True))
        )
        found[name] = [strategy.gather(draw(), axis=0).numpy() for _ in range(2)]
    np.testing.assert_array_equal(found["cpu:4"], found["cpu"])
    first, second = found["cpu:4"]
    assert (first != second).any()
    assert (first[:8] != first[8:16]).any(), "two replicas drew the same"


@pytest.mark.parametrize("examples", [33, 1])
def test_an_evaluation_counts_every_example_once_whatever_the_number_of_replicas(root, examples):
    manifest = publish_dataset(root)
    reader = SplitReader((root / "datasets" / "sample" / FINGERPRINT).joinpath, manifest, "test")
    batches = EvaluationInput(reader, manifest, ("image", "label"), batch_size=15, ids=np.arange(examples))
    scores = []
    for name in ("cpu", "cpu:2", "cpu:4"):
        strategy = replicas(name)
        with strategy.scope():
            model = build_model(RECIPE.model, (8, 8, 3), 3, [120.0] * 3, [60.0] * 3)
        parts = strategy.distribute_datasets_from_function(batches.dataset)
        score = ScoringSteps(strategy, model, Classification()).score(
            parts, batches.batches(strategy.num_replicas_in_sync), lambda number: True
        )
        assert score is not None
        scores.append(score)
    test = {field: values[:examples] for field, values in drawn(40, 1).items()}
    right = np.argmax(model(test["image"]), axis=-1) == test["label"]
    assert [score.sums["correct"] / score.examples for score in scores] == [np.mean(right)] * 3
    np.testing.assert_allclose([score.loss for score in scores], scores[0].loss, rtol=TOLERANCE)


@pytest.mark.slow
def test_a_run_that_began_on_replicas_goes_on_on_one_device_as_if_it_had_always_been_there(tmp_path):
    runs = {name: tmp_path / name for name in ("unbroken", "moved")}
    for folder in runs.values():
        publish_dataset(folder)
    unbroken = TrainSpec(root=str(runs["unbroken"]), recipe=RECIPE, fingerprint=FINGERPRINT, strategy="cpu")
    train(unbroken, silent())
    moved = unbroken.model_copy(update={"root": str(runs["moved"]), "strategy": "cpu:2"})
    assert moved.run == unbroken.run
    killed_at(moved, 4)
    result = train(moved.model_copy(update={"strategy": "cpu"}), silent())
    assert (result.resumed_from, result.devices) == ((3,), "cpu")
    lines, expected = (read_metrics(folder / unbroken.folder / "metrics.jsonl") for folder in runs.values())
    for ours, theirs in zip(lines, expected, strict=True):
        assert (ours.step, ours.accuracy) == (theirs.step, theirs.accuracy)
        np.testing.assert_allclose(ours.loss, theirs.loss, rtol=TOLERANCE)


@pytest.mark.parametrize(
    ("batch_size", "words"),
    [(20, "batch_size=20 vs 8 replicas .8 × cpu.*: use 16 or 24"), (4, "batch_size=4 vs 8 .*: use 8, or")],
)
def test_a_batch_that_does_not_divide_is_refused_with_those_that_do(tmp_path, batch_size, words):
    publish_dataset(tmp_path)
    recipe = RECIPE.model_copy(update={"batch_size": batch_size})
    spec = TrainSpec(root=str(tmp_path), recipe=recipe, fingerprint=FINGERPRINT, strategy="cpu:8")
    with pytest.raises(SettingsError, match=words):
        train(spec, silent())
    assert not (tmp_path / spec.folder).exists()


def test_devices_that_are_not_there_are_a_setting_that_cannot_be():
    with pytest.raises(
        SettingsError, match=r"strategy=gpu: TensorFlow sees no GPU .*make setup-gpu.*docs/how-to/gpu\.md"
    ):
        replicas("gpu")
    with pytest.raises(SettingsError, match="strategy=cpu:9: this process has made its devices already"):
        replicas("cpu:9")


def test_one_device_is_tensorflow_s_own_strategy_and_a_strategy_is_made_once():
    assert replicas("cpu") is replicas("auto") is replicas("cpu:1") is tf.distribute.get_strategy()
    assert replicas("cpu:2") is replicas("cpu:2")
