"""EfficientNet-Lite0 beside the same network written down plainly, from the published tensors, and hostile files."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from podline.base.errors import ArtifactError
from podline.models import efficientnet_lite
from podline.models.build import build_model
from podline.models.efficientnet_lite import STAGES, from_pytorch
from podline.models.weights_files import Layers, read_weights
from podline.recipes.published_weights import PUBLISHED
from podline.recipes.settings import InitSettings, ModelSettings, OptimizerSettings
from podline.training.initial_weights import take_weights
from podline.training.state import TrainingState

LITE = PUBLISHED["efficientnet-lite0"]
STRIDES = [stride if not block else 1 for blocks, _, stride, *_ in STAGES for block in range(blocks)]
# float32 over fifty layers, whose order of additions differs.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def file() -> Path:
    [found] = [part for part in importlib.metadata.files(LITE.source) if part.name == LITE.file]
    return Path(found.locate())


@pytest.fixture(scope="module")
def tensors(file: Path) -> Layers:
    return read_weights(file, (".pth",))


def plainly(tensors: Layers, images: np.ndarray) -> np.ndarray:
    """The logits by TensorFlow's operations, from PyTorch's names and orders of axes."""

    def convolved(maps, conv: str, norm: str, stride: int = 1, limit: float | None = 6.0):
        kernel, of = tensors[conv]["weight"].transpose(2, 3, 1, 0), tensors[norm]
        if conv.endswith("_depthwise_conv"):
            kernel = kernel.transpose(0, 1, 3, 2)
            maps = tf.nn.depthwise_conv2d(maps, kernel, [1, stride, stride, 1], "SAME")
        else:
            maps = tf.nn.conv2d(maps, kernel, stride, "SAME")
        maps = (maps - of["running_mean"]) / np.sqrt(of["running_var"] + 1e-3) * of["weight"] + of["bias"]
        return maps if limit is None else tf.clip_by_value(maps, 0.0, limit)

    maps = convolved((images.astype(np.float32) - 127) / 128, "_conv_stem", "_bn0", 2)
    for number, stride in enumerate(STRIDES):
        block, before = f"_blocks.{number}.", maps
        if f"{block}_expand_conv" in tensors:
            maps = convolved(maps, f"{block}_expand_conv", f"{block}_bn0")
        maps = convolved(maps, f"{block}_depthwise_conv", f"{block}_bn1", stride)
        maps = convolved(maps, f"{block}_project_conv", f"{block}_bn2", limit=None)
        if stride == 1 and maps.shape == before.shape:
            maps += before
    features = tf.reduce_mean(convolved(maps, "_conv_head", "_bn1"), (1, 2))
    return np.asarray(features @ tensors["_fc"]["weight"].T + tensors["_fc"]["bias"])


def test_with_the_published_weights_it_answers_as_written_down_plainly_also_compiled_by_xla(tensors: Layers) -> None:
    model = build_model(ModelSettings(kind="efficientnet-lite0"), (97, 64, 3), 1000, [1.0] * 3, [2.0] * 3)
    assert sum(np.prod(variable.shape) for variable in model.trainable_variables) == 4_652_008
    state = TrainingState(model, OptimizerSettings(kind="sgd", momentum=0.0), average_decay=0.0)
    taken = take_weights(state, InitSettings(file=LITE.file, checksum=LITE.checksum), from_pytorch(tensors))
    assert (taken.missing, taken.other_shape, taken.unused) == ((), (), ())
    # Smooth images, as photographs are: noise leaves the range of the weights.
    coarse = np.random.default_rng(0).integers(0, 256, (2, 5, 5, 3)).astype(np.float32)
    images = np.asarray(tf.image.resize(coarse, (97, 64), "bicubic")).clip(0, 255).astype(np.uint8)
    expected = plainly(tensors, images)
    assert np.std(expected) > 1000 * TOLERANCE
    compiled = tf.function(lambda given: model(given, training=False), jit_compile=True)
    for answer in (model(images, training=False), compiled(images)):
        assert np.allclose(answer, expected, atol=TOLERANCE, rtol=TOLERANCE)


def test_one_channel_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficientnet_lite, "STAGES", STAGES[:2])
    settings = ModelSettings(kind="efficientnet-lite0")
    grey, colour = (build_model(settings, (33, 40, count), 4, [9.0] * count, [5.0] * count) for count in (1, 3))
    images = np.random.default_rng(0).integers(0, 256, (2, 33, 40, 1), dtype=np.uint8)
    assert np.array_equal(grey(images), colour(np.repeat(images, 3, axis=-1)))


STORAGE = b"X\x07\x00\x00\x00storage"
HOSTILE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "code": (lambda data: data.replace(b"ctorch._utils\n_rebuild_tensor_v2\n", b"cposix\nsystem\n"), "posix.system"),
    "call": (lambda data: data.replace(b"ccollections\nOrderedDict\n", b"cbuiltins\neval\n"), "builtins.eval"),
    "type": (lambda data: data.replace(b"ctorch\nFloatStorage\n", b"ctorch\nQInt8Storage\n"), "torch.QInt8Storage"),
    "size": (lambda data: data.replace(b"(K K\x03K\x03K\x03t", b"(K\xffK\x03K\x03K\x03t", 1), "larger than its stor"),
    "cut": (lambda data: data[:-1], "is damaged"),
    "more": (lambda data: data + b"\0", "bytes follow the last storage"),
    "other": (lambda data: b"PK\x03\x04" + data, "is damaged"),
    "key": (lambda data: data.replace(STORAGE, b"X\x07\x00\x00\x00Storage"), "something else than numbers"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_of_anything_but_tensors_is_refused_in_one_line(file: Path, tmp_path: Path, name: str) -> None:
    change, words = HOSTILE[name]
    hostile = tmp_path / "hostile.pth"
    hostile.write_bytes(change(file.read_bytes()))
    with pytest.raises(ArtifactError, match=rf"^init=[^\n]*hostile\.pth[^\n]*{words}[^\n]*$"):
        read_weights(hostile, (".pth",))
