"""What a training finds about its model and its input while it runs."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import numpy as np
import pytest
import tensorflow as tf
from metrics_lines import steps_line

from podline.documents.metrics_log import EvaluationLine, FindingLine
from podline.documents.skeleton import COCO
from podline.kinds.classification.objective import ClassificationObjective
from podline.kinds.pose.objective import PoseObjective
from podline.kinds.pose.settings import PoseSettings
from podline.training.findings import (
    Findings,
    JudgeStretches,
    LayerFigures,
    ProbeFigures,
    judge_measures,
    judge_probe,
)
from podline.training.loop import Stretch
from podline.training.probe import Probe

POSES = PoseObjective(PoseSettings(), COCO)
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
    again.probe(80, dead)
    assert again.short == [(70, kind, where, True), (80, kind, where, False)], "a run that goes on knows them"
    assert again.warnings == []


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
    assert judged([stretch(12, norm=501.0)], [steps_line(2, 1.0)] * 5).short == [
        (12, "exploding_gradient", "all", False)
    ], "the lines' norm is 5"


@pytest.mark.parametrize(
    ("objective", "measures", "found"),
    [
        (POSES, {"stage1_paf/variation": 0.04, "stage1_paf/loss": 0.0}, [(20, "collapsed_stage", "stage1_paf", False)]),
        (POSES, {"stage1_paf/variation": 0.5}, []),
        (ClassificationObjective(), {}, []),
    ],
)
def test_a_stage_that_answers_zero_is_found_once_the_warm_up_is_over(objective, measures, found):
    record = Record()
    for step in (10, 20):
        line = EvaluationLine(
            step=step, epoch=1.0, split="test", examples=5, loss=1.0, seconds=1.0, time=0.0, measures=measures
        )
        judge_measures(record.findings, line, objective, warmup=10)
    assert record.short == found


IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), np.uint8)


def look(model: keras.Model, images: np.ndarray = IMAGES):
    return Probe(tf.distribute.get_strategy(), model, images, "channels_last").figures()


def small_model(bias: float = 0.0) -> keras.Model:
    """A convolution whose first two of four channels are cut off where the bias is low enough, then a dense layer."""
    image = keras.Input((8, 8, 3), dtype="uint8")
    pixels = keras.layers.Rescaling(1 / 255, name="pixels")(image)
    features = keras.layers.Conv2D(4, 3, name="conv", kernel_initializer=keras.initializers.GlorotUniform(1))(pixels)
    cut = keras.layers.ReLU(name="relu")(features)
    pooled = keras.layers.GlobalAveragePooling2D(name="pool")(cut)
    model = keras.Model(image, keras.layers.Dense(3, name="logits")(pooled))
    model.get_layer("conv").bias.assign([bias, bias, 5.0, 5.0])
    return model


def test_channels_that_are_zero_and_the_largest_magnitude_are_those_of_all_images_and_of_the_model_as_it_is_now():
    model = small_model(bias=5.0)
    probe = Probe(tf.distribute.get_strategy(), model, IMAGES, "channels_last")
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


@pytest.mark.parametrize("size", [0.0, 1.0, 1e6])
def test_the_spread_of_an_answer_has_no_unit_and_is_nothing_where_the_image_is_not_looked_at(size):
    model = small_model(bias=5.0)
    dense = model.get_layer("logits")
    kernel = np.random.default_rng(1).normal(size=dense.kernel.shape)
    dense.kernel.assign(size * kernel)
    logits = model(IMAGES).numpy()
    left = logits - logits.mean(0)
    expected = np.sqrt((left**2).mean() / (logits**2).mean()) if size else 0.0
    [(name, spread)] = look(model).spreads.items()
    assert name == "logits"
    assert spread == pytest.approx(expected, rel=1e-3)
    dense.kernel.assign(0 * kernel)
    dense.bias.assign([1.0, 2.0, 3.0])
    assert look(model).spreads == {"logits": 0.0}
