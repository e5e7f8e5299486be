from __future__ import annotations

import subprocess
import sys

import pytest

from podline.kinds.table import kind_of
from podline.models.counts import (
    WIDE_RESNET_OPERATIONS,
    WIDE_RESNET_STORAGE,
    describe,
    micronet_score,
)
from podline.models.network import (
    Add,
    BatchNorm,
    Convolution,
    Dense,
    GlobalAveragePool,
    GlobalMaxPool,
    Layer,
    MaxPool,
    Network,
    Normalise,
    Relu,
    Scale,
)
from podline.recipes import registry
from podline.recipes.settings import ModelSettings

# Millions of parameters and of multiply-adds of MobileNetV2 at 224 pixels, as its authors list them
# (tensorflow/models, research/slim/nets/mobilenet/README.md).
AUTHORS_TABLE = {
    1.4: (6.06, 582),
    1.3: (5.34, 509),
    1.0: (3.47, 300),
    0.75: (2.61, 209),
    0.5: (1.95, 97),
    0.35: (1.66, 59),
}


def mobilenetv2(width: float) -> ModelSettings:
    return ModelSettings(kind="mobilenetv2", width=width)


def test_the_original_mobilenetv2_to_the_parameter() -> None:
    description = describe(mobilenetv2(1.0), (224, 224, 3), 1000)
    assert description.trainable_parameters == 3_504_872
    assert description.parameters == 3_504_872 + 34_112  # two moving averages for each of 17,056 channels
    assert description.trainable_bytes == 14_019_488


@pytest.mark.parametrize("width", AUTHORS_TABLE)
def test_mobilenetv2_costs_what_its_authors_say(width: float) -> None:
    description = describe(mobilenetv2(width), (224, 224, 3), 1000)
    parameters, multiply_adds = AUTHORS_TABLE[width]
    # The table is rounded, and it has one class more and counts the norms a little differently: 2 % covers that.
    assert description.trainable_parameters == pytest.approx(parameters * 1e6, rel=0.02)
    assert description.multiply_adds == pytest.approx(multiply_adds * 1e6, rel=0.006)


def test_a_recipe_has_the_network_of_its_kind() -> None:
    mnist, poses = registry.get("mnist"), registry.get("coco_pose")
    assert kind_of(mnist).description(mnist, (28, 28, 1), 10) == describe(mnist.model, (28, 28, 1), 10)
    found = kind_of(poses).description(registry.override(poses, {"pose.side": 128}), (1, 1, 1), 3)
    assert (found.kind, found.image_shape, found.classes, found.micronet) == ("pose", (128, 128, 3), 0, None)
    assert found.layers[-1].name.endswith("_heatmap")
    assert found.parameters == kind_of(poses).description(poses, (1, 1, 1), 3).parameters, (
        "a convolution's do not depend on it"
    )


def test_the_linear_model_by_hand() -> None:
    description = describe(ModelSettings(kind="linear"), (28, 28, 1), 10)
    assert [layer.kind for layer in description.layers] == ["Normalise", "Flatten", "Dense"]
    assert description.parameters == description.trainable_parameters == 784 * 10 + 10
    assert (description.bytes, description.multiply_adds) == (7850 * 4, 7840)


def test_the_sums_are_those_of_the_rows() -> None:
    description = describe(ModelSettings(width=0.5, depth=2), (32, 32, 3), 10)
    for total in ("parameters", "trainable_parameters", "bytes", "multiply_adds"):
        assert getattr(description, total) == sum(getattr(layer, total) for layer in description.layers)


def wide_resnet(depth: int, width: int) -> Network:
    """WideResNet (Zagoruyko, Komodakis, BMVC 2016) for CIFAR-100: norm, ReLU, convolution, twice a block."""

    def layers() -> list[Layer]:
        found: list[Layer] = [Normalise("normalise"), Convolution("stem", filters=16, kernel=3)]
        source, channels = "stem", 16
        for stage, base in enumerate((16, 32, 64)):
            for block in range((depth - 4) // 6):
                name, filters = f"s{stage}b{block}", base * width
                stride = 2 if stage and not block else 1
                found += [
                    BatchNorm(f"{name}n1", (source,)),
                    Relu(f"{name}r1"),
                    Convolution(f"{name}c1", filters=filters, kernel=3, stride=stride),
                    BatchNorm(f"{name}n2"),
                    Relu(f"{name}r2"),
                    Convolution(f"{name}c2", filters=filters, kernel=3),
                ]
                shortcut = source
                if channels != filters:
                    shortcut = f"{name}shortcut"
                    found.append(Convolution(shortcut, (f"{name}r1",), filters=filters, kernel=1, stride=stride))
                found.append(Add(f"{name}add", (f"{name}c2", shortcut)))
                source, channels = f"{name}add", filters
        return [*found, BatchNorm("norm"), Relu("relu"), GlobalAveragePool("pool"), Dense("classifier", units=100)]

    return Network((32, 32, 3), tuple(layers()))


def test_the_challenges_own_baseline_scores_two() -> None:
    score = micronet_score(wide_resnet(28, 10))
    # The baseline's figures have three and four digits.
    assert score.storage == pytest.approx(WIDE_RESNET_STORAGE, rel=0.002)
    assert score.operations == pytest.approx(WIDE_RESNET_OPERATIONS, rel=0.002)
    assert score.score == pytest.approx(2, rel=0.002)


def test_the_score_by_hand() -> None:
    network = Network(
        (2, 2, 3),
        (
            Normalise("normalise"),
            Convolution("conv", filters=5, kernel=3),
            BatchNorm("norm"),
            Relu("relu"),
            GlobalAveragePool("pool"),
            Dense("classifier", units=7),
        ),
    )
    score = micronet_score(network)
    assert score.storage == 6 + 9 * 3 * 5 + 5 + (5 * 7 + 7)
    places = 2 * 2 * 5
    assert score.operations == 2 * 12 + places * (27 + 26) + places + places + 5 * 4 + 7 * (5 + 4 + 1)


def test_the_score_of_pools_scales_and_a_norm_that_cannot_be_folded_by_hand() -> None:
    network = Network(
        (4, 4, 3),
        (
            Convolution("conv", filters=5, kernel=1),
            MaxPool("halved", size=2),
            BatchNorm("norm"),
            Add("sum", ("norm", "halved")),
            GlobalMaxPool("pool"),
            Dense("classifier", units=7),
            Scale("logits", factor=0.5),
        ),
    )
    score = micronet_score(network)
    assert score.storage == 3 * 5 + 2 * 5 + (5 * 7 + 7)
    places = 2 * 2 * 5
    assert score.operations == 4 * 4 * 5 * (3 + 2) + 3 * places + 2 * places + places + 5 * 3 + 7 * (5 + 4 + 1)


def test_only_models_for_cifar100_have_a_score() -> None:
    settings = mobilenetv2(1.0)
    assert describe(settings, (32, 32, 3), 10).micronet is None
    score = describe(settings, (32, 32, 3), 100).micronet
    assert score is not None
    assert score.score == score.storage / 36.5e6 + score.operations / 10.49e9


def test_counting_needs_no_tensorflow() -> None:
    code = (
        "import sys; from podline.models.counts import describe; from podline.recipes.settings import ModelSettings;"
        "describe(ModelSettings(), (32, 32, 3), 100); print('tensorflow' in sys.modules, 'keras' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert answer.stdout.split() == ["False", "False"]
