"""A training names what is wrong with its model, input or data, once, and ends with the cause where it cannot go on."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_dataset import FINGERPRINT, drawn, publish_dataset, seal, small_recipe

from podline.base.errors import DivergenceError
from podline.base.progress import Reporter, silent
from podline.data.order import TrainingOrder
from podline.data.reader import SplitReader
from podline.documents.manifest import dataset_folder, read_manifest
from podline.documents.metrics_log import EvaluationLine, FindingLine, MetricsLine, read_events
from podline.documents.skeleton import COCO
from podline.kinds.classification import objective
from podline.kinds.classification.objective import cross_entropy
from podline.kinds.classification.settings import ClassificationSettings
from podline.kinds.pose.objective import PoseObjective
from podline.kinds.pose.settings import PoseSettings
from podline.recipes.durations import Duration, Part
from podline.recipes.settings import ExplosionSettings, ModelSettings, ScheduleSettings
from podline.stages.specs import TrainSpec
from podline.store.opening import open_store
from podline.training.divergence import FailedStep, StopOnDivergence
from podline.training.findings import (
    Findings,
    JudgeOverfitting,
    JudgeStretches,
    LayerFigures,
    ProbeFigures,
    judge_measures,
    judge_probe,
)
from podline.training.loop import Stretch
from podline.training.probe import Probe
from podline.training.train import train
from tests.support.metrics import evaluation_line, read_metrics, steps_line

HEALTHY = LayerFigures("stem_relu", channels=16, dead=7, largest=9e3)


class Record:
    def __init__(self, lines: Sequence[FindingLine] = ()) -> None:
        self.lines: list[FindingLine] = []
        self.warnings: list[str] = []
        self.findings = Findings(self.lines.append, self.warnings.append)
        for line in lines:
            self.findings.note(line)

    def probe(self, step: int, *layers: LayerFigures, spread: float = 0.5) -> None:
        judge_probe(self.findings, step, ProbeFigures(64, layers, {"logits": spread}))

    @property
    def short(self) -> list[tuple[int, str, str, bool]]:
        return [(line.step, line.finding, line.where, line.over) for line in self.lines]


def test_a_finding_is_written_and_warned_of_once_and_written_when_it_is_over():
    record, dead = Record(), HEALTHY._replace(dead=8)
    for step, layer in ((10, HEALTHY), (20, dead), (30, dead), (40, HEALTHY), (50, dead)):
        record.probe(step, layer)
    kind, where = "dead_outputs", "stem_relu"
    assert record.short == [(20, kind, where, False), (40, kind, where, True), (50, kind, where, False)]
    assert record.lines[0].figures == {"share": 0.5, "channels": 16}
    [warning] = record.warnings
    assert warning.startswith("step 20: 8 of the 16 channels of layer stem_relu are zero for all 64 images")
    again = Record(record.lines)
    again.probe(60, dead)
    again.probe(70, HEALTHY)
    assert again.short == [(70, kind, where, True)], "a run that goes on knows them"


def test_the_first_layer_whose_outputs_explode_and_an_answer_that_has_collapsed_are_named():
    record = Record()
    record.probe(10, HEALTHY, LayerFigures("stage1_conv", 8, 0, 2e4), LayerFigures("stage2_conv", 8, 0, 3e38))
    assert record.short == [(10, "exploding_outputs", "stage1_conv", False)]
    assert "layer stage1_conv gives values of up to 2e+04" in record.warnings[0]
    record = Record()
    judge_probe(record.findings, 10, ProbeFigures(1, [], {"logits": 0.0}))  # of one image nobody can say
    record.probe(20, spread=0.02)
    record.probe(30, spread=0.009)
    assert record.short == [(30, "collapsed_output", "logits", False)]


def stretch(step: int, norm: float = 1.0, head: float = 0.5, waiting: float = 0.0) -> Stretch:
    series = {
        "gradient_norm": np.full(2, norm, np.float32),
        "gradient_norm/stem": np.full(2, norm, np.float32),
        "gradient_norm/head": np.full(2, head * norm, np.float32),
    }
    return Stretch(series, seconds=4.0, waiting=waiting, step=step, last=False)


def judged(stretches: Sequence[Stretch], before: Sequence = ()) -> Record:
    record = Record()
    hook = JudgeStretches(record.findings)
    for line in before:
        hook.note(line)
    for each in stretches:
        hook.rehearse(each)
        hook.after(each)
    return record


def test_training_that_waits_for_input_is_found_by_the_latest_stretches_but_not_by_the_first():
    assert judged([stretch(2, waiting=4.0), stretch(4), stretch(6)]).short == []
    record = judged([stretch(2), stretch(4, waiting=1.9), *[stretch(step, waiting=1.0) for step in (6, 8, 10)]])
    assert record.short == [(6, "waiting_for_input", "input", False)]
    assert "training waited for input in 36% of the last 8 s; `podline tune input`" in record.warnings[0]
    assert judged([stretch(step, waiting=0.7) for step in range(2, 20, 2)]).short == [], "less than a fifth"


def test_a_block_that_gets_no_gradient_is_named():
    assert judged([stretch(2, head=1e-5), stretch(4, head=1e-7), stretch(6, norm=0.0)]).short == [
        (4, "vanishing_gradient", "head", False),
        (6, "vanishing_gradient", "stem", False),
    ]


def test_a_gradient_far_above_all_before_is_found_once_there_is_something_to_compare_it_with():
    usual = [stretch(2 * number, norm=number) for number in range(1, 6)]
    assert judged([*usual, stretch(12, norm=499.0)]).short == []
    assert judged([*usual[1:], stretch(12, norm=501.0)]).short == []
    record = judged([*usual, stretch(12, norm=501.0), stretch(14, norm=501.0)])
    assert record.short == [(12, "exploding_gradient", "all", False), (14, "exploding_gradient", "all", True)]
    [found] = judged([stretch(12, norm=501.0)], [steps_line(2, 1.0)] * 5).short
    assert found == (12, "exploding_gradient", "all", False), "the lines' norm is 5"


@pytest.mark.parametrize(("variation", "found"), [(0.04, [(20, "collapsed_stage", "stage1_paf", False)]), (0.5, [])])
def test_a_stage_that_answers_zero_is_found_once_the_warm_up_is_over(variation, found):
    record, measures = Record(), {"stage1_paf/variation": variation, "stage1_paf/loss": 0.0}
    for step in (10, 20):
        line = evaluation(step, 1.0).model_copy(update={"measures": measures})
        judge_measures(record.findings, line, PoseObjective(PoseSettings(), COCO), warmup=10)
    assert record.short == found


IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), np.uint8)


def probed() -> tuple[keras.Model, Probe]:
    """A convolution whose first two of four channels are cut off where the bias is low enough, then a dense layer."""
    image = keras.Input((8, 8, 3), dtype="uint8")
    pixels = keras.layers.Rescaling(1 / 255, name="pixels")(image)
    features = keras.layers.Conv2D(4, 3, name="conv", kernel_initializer=keras.initializers.GlorotUniform(1))(pixels)
    cut = keras.layers.ReLU(name="relu")(features)
    pooled = keras.layers.GlobalAveragePooling2D(name="pool")(cut)
    model = keras.Model(image, keras.layers.Dense(3, name="logits")(pooled))
    model.get_layer("conv").bias.assign([5.0] * 4)
    return model, Probe(tf.distribute.get_strategy(), model, IMAGES, "channels_last")


def test_channels_that_are_zero_and_the_largest_magnitude_are_those_of_all_images_and_of_the_model_as_it_is_now():
    model, probe = probed()
    assert sum(layer.dead for layer in probe.figures().layers) == 0
    conv = model.get_layer("conv")
    conv.bias.assign([-100.0, -100.0, 5.0, 5.0])
    figures = probe.figures()
    assert figures.images == 6
    assert [layer.name for layer in figures.layers] == ["pixels", "conv", "relu", "pool", "logits"]
    assert [layer.dead for layer in figures.layers] == [0, 0, 2, 0, 0], "where they are cut off"
    assert [layer.channels for layer in figures.layers] == [3, 4, 4, 4, 3]
    assert figures.layers[1].largest > 90
    conv.bias.assign([np.inf] * 4)
    assert probe.figures().layers[1].largest == np.finfo(np.float32).max


@pytest.mark.parametrize("size", [1.0, 1e6])
def test_the_spread_of_an_answer_has_no_unit_and_is_nothing_where_the_image_is_not_looked_at(size):
    model, probe = probed()
    dense = model.get_layer("logits")
    kernel = np.random.default_rng(1).normal(size=dense.kernel.shape)
    dense.kernel.assign(size * kernel)
    logits = model(IMAGES).numpy()
    left = logits - logits.mean(0)
    expected = np.sqrt((left**2).mean() / (logits**2).mean())
    assert probe.figures().spreads == {"logits": pytest.approx(expected, rel=1e-3)}
    dense.kernel.assign(0 * kernel)
    dense.bias.assign([1.0, 2.0, 3.0])
    assert probe.figures().spreads == {"logits": 0.0}


def without_a_pattern(count: int, seed: int) -> dict[str, np.ndarray]:
    """Images whose classes are drawn by lot."""
    random = np.random.default_rng(seed)
    return {"image": random.integers(0, 256, (count, 8, 8, 3), np.uint8), "label": random.integers(0, 3, count)}


def trained(root: Path, splits: dict[str, dict[str, np.ndarray]]) -> tuple[list[FindingLine], list[str]]:
    """The findings of overfitting of a short training, and its warnings."""
    publish_dataset(root, splits=splits)
    rate = ScheduleSettings(kind="constant", learning_rate=0.05)
    recipe = small_recipe(duration=Duration(steps=240), evaluate_every=Duration(steps=24), schedule=rate)
    warnings = list[str]()

    def listen(event) -> None:
        if event["event"] == "log" and event["level"] == "warning":
            warnings.append(event["message"])

    spec = TrainSpec(root=str(root), recipe=recipe, fingerprint=FINGERPRINT, strategy="cpu", preflight=False)
    train(spec, Reporter("train", listen))
    lines = read_metrics(root / spec.folder / "metrics.jsonl")
    return [line for line in lines if isinstance(line, FindingLine) and line.finding == "overfitting"], warnings


def test_a_model_that_learns_its_examples_by_heart_is_named_and_one_that_learns_the_classes_is_not(
    tmp_path: Path,
) -> None:
    by_lot = {"train": without_a_pattern(48, 0), "test": without_a_pattern(60, 1)}
    found, warnings = trained(tmp_path / "by lot", by_lot)
    assert [line.over for line in found] == [False]
    assert found[0].figures["training_accuracy"] > found[0].figures["accuracy"] + 0.3
    [warning] = [line for line in warnings if "the model overfits" in line]
    assert "of the 60 test examples" in warning
    assert "--set validation_share=0.1 --set early_stop.patience=0.5 keeps the best weights" in warning
    found, warnings = trained(tmp_path / "of classes", {"train": drawn(600, 0), "test": drawn(200, 1)})
    assert (found, [line for line in warnings if "overfits" in line]) == ([], [])


def evaluation(step: int, loss: float, accuracy: float = math.nan, examples: int = 100) -> EvaluationLine:
    return evaluation_line(step, loss, accuracy=accuracy, examples=examples)


def overfitting(
    lines: list[tuple[float, float]],
    before: int = 0,
    training: float = math.nan,
    accuracy: float = math.nan,
    examples: int = 100,
) -> list[FindingLine]:
    """The findings of evaluations with a loss each, after steps with another; some of them before an interruption."""
    found, known = list[FindingLine](), list[MetricsLine]()
    for number, (of_steps, loss) in enumerate(lines, 1):
        steps = steps_line(10 * number, of_steps, accuracy=training)
        known += [steps, evaluation(10 * number, loss, accuracy, examples)]
    judge = JudgeOverfitting(Findings(found.append, lambda _line: None), ["help"])
    for place, line in enumerate(known):
        judge.note(line)
        if place >= 2 * before and isinstance(line, EvaluationLine):
            judge.judge(line.step)
    return found


RISES = [(3.0, 3.0), (2.0, 2.0), (1.5, 2.1), (1.2, 2.3), (1.0, 2.4), (0.9, 2.6)]


def test_without_an_accuracy_a_loss_that_rises_for_several_evaluations_tells() -> None:
    [line] = overfitting(RISES)
    assert (line.step, line.where, line.suggestion) == (60, "validation", "help")
    assert "has risen from 2 at step 20 to 2.6, while the training loss fell from 2 to 0.9" in line.message
    assert [line.step for line in overfitting(RISES, before=5)] == [60], "an interrupted run remembers"
    assert overfitting(RISES[:5]) == []
    assert overfitting([(2.0, loss) for _, loss in RISES]) == [], "the training loss does not fall: it diverges"


@pytest.mark.parametrize(
    ("training", "accuracy", "count", "found"),
    [(1.0, 0.8, 4, [40]), (1.0, 0.8, 3, []), (0.88, 0.8, 6, []), (0.9, 0.8, 5, []), (0.9, 0.8, 6, [60])],
)
def test_an_accuracy_that_is_far_below_that_in_training_tells_beyond_chance(
    training: float, accuracy: float, count: int, found: list[int]
) -> None:
    lines = overfitting(RISES[:count], training=training, accuracy=accuracy)
    assert [line.step for line in lines] == found
    assert overfitting(RISES, training=training, accuracy=accuracy, examples=40) == []


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
    assert re.search(r"with the weights after step \d+, 1 of 32 examples has no finite loss:\n", message)
    assert f"\n{place}, label 255\n" in message
    assert "the first fault is in the loss term cross_entropy, which is nan" in message
    assert len(message.splitlines()[-1].split(": ")[1].split(", ")) == 5, "norms of the gradient before"


def test_a_rate_that_is_too_high_is_no_examples_fault(root: Path):
    rate = ScheduleSettings(kind="constant", learning_rate=1000)
    message = failing(root, model=RESNET, schedule=rate, optimizer={"weight_decay": 1e35}, checkpoint_steps=8)
    assert re.match(r"the loss is (nan|inf) at step \d+: batch \d+ of 25 in epoch 1, 32 examples", message)
    assert "no single example is the cause: with the initial weights, because no saved weights" in message
    assert "the weights are the cause, or the device's precision; the largest output is " in message
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
    assert re.search(r"no single example is the cause: with the weights after step \d+, the losses", message)
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


def losing(step: int, losses: Sequence[float], norms: Sequence[float] | None = None) -> Stretch:
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
    stop.after(losing(9, [1.0, 2.0], [7.0, 8.0]))
    with pytest.raises(DivergenceError) as caught:
        stop.after(losing(12, [1.0, loss, loss], [9.0, np.nan, 1.0]))
    [failure] = failures
    assert (failure.step, failure.limit) == (10, np.inf)
    assert str(caught.value).splitlines() == [
        f"the loss is {np.float32(loss)} at step 11: batch 5 of 6 in epoch 2, 8 examples",
        "because of a reason",
        "gradient norms before this step: 7, 8, 9",
    ]


def test_a_gradient_that_is_no_number_is_seen_where_the_loss_still_is_one():
    stop, failures = hook()
    with pytest.raises(DivergenceError, match="the loss is finite, but its gradient's norm is inf at step 2: "):
        stop.after(losing(3, [1.0, 1.0, np.nan], [1.0, np.inf, 1.0]))
    assert failures[0].step == 1


def explosion(*losses: float, **settings: Any) -> list[FailedStep]:
    """Stretches of two steps each."""
    stop, failures = hook(**settings)
    with contextlib.suppress(DivergenceError):
        for number, loss in enumerate(losses, start=1):
            stop.after(losing(2 * number, [loss, loss]))
    return failures


def test_a_loss_that_stays_far_above_what_is_usual_has_exploded_where_it_began_to():
    [failure] = explosion(2.0, 1.0, 0.5, 21.0, 30.0, 1e9)
    assert failure.step == 6
    assert failure.limit == 20.0, "ten times the loss of the untrained model"
    assert "its mean up to step 12 is 1e+09, and 3 stretches in a row were above 20" in failure.what
    [below_zero] = explosion(-1.0, -2.0, -3.0, 9.0, 9.0, 9.0)
    assert (below_zero.step, below_zero.limit) == (6, 8.0)


def test_a_loss_that_is_high_for_a_moment_or_for_a_trained_model_has_not_exploded():
    assert explosion(2.0, *[1e-4] * 50, *[0.1] * 50) == [], "a trained model's loss may be a thousand times as high"
    assert explosion(2.0, 1.0, 30.0, 30.0, 1.0, 30.0, 30.0, 1.0) == [], "it came back"
    assert explosion(0.1, *[5.0 * 1.2**n for n in range(20)], factor=100.0) == []
    assert explosion(-1.0, -2.0, -3.0, 5.0, 5.0, 5.0) == [], "nine times the loss's size is not reached"


def test_the_norms_before_an_explosion_are_those_of_earlier_steps():
    stop, _ = hook(stretches=2)
    for step, (loss, norm) in enumerate([(1.0, 1.0), (30.0, 2.0), (1.0, 3.0), (30.0, 4.0)], start=1):
        stop.after(losing(2 * step, [loss, loss], [norm, norm]))
    with pytest.raises(DivergenceError, match=r"began at step 7: .*(\n.*)*before this step: 1, 2, 2, 3, 3$"):
        stop.after(losing(10, [30.0, 30.0], [5.0, 5.0]))


def test_a_run_that_goes_on_knows_what_was_usual_before():
    stop, _ = hook(stretches=1)
    for line in (steps_line(2, 2.0), steps_line(4, 1.0)):
        stop.note(line)
    stop.after(losing(6, [19.0, 19.0]))
    with pytest.raises(DivergenceError, match=r"gradient norms before this step: 5, 5, 1, 1\b"):
        stop.after(losing(8, [21.0, 21.0]))
    interrupted, _ = hook(stretches=1)
    for step, loss in enumerate([2.0, 1.0, 30.0, 30.0], start=1):
        interrupted.note(steps_line(2 * step, loss))
    with pytest.raises(DivergenceError, match=r"above 20 \(factor 10, usual loss 2\)"):
        interrupted.after(losing(10, [30.0, 30.0]))
