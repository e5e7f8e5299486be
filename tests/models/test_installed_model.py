"""docs/extending.md's Vision Transformer and Lion, in really installed packages: from counts to a promotion."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from support.extending import code_of, install

from podline.errors import SettingsError
from podline.models.build import build_model
from podline.models.counts import describe
from podline.models.installed import installed_model
from podline.models.keras_counts import describe_keras
from podline.recipes import networks, registry
from podline.recipes.settings import ModelSettings
from podline.tasks.parameters import CifarParameters
from podline.training.optimizers import build_optimizer

VIT = ModelSettings(kind="vit")
SHAPE = (32, 32, 3)
RUN = ("--model", "vit", "--set", "optimizer.kind=lion", "--learning-rate", "0.0005")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages with the page's two."""
    folder = tmp_path_factory.mktemp("site")
    for heading, name in (("## A model", "my_models"), ("## An optimizer", "my_optimizers")):
        install(folder, {name: code_of(heading, "python")}, code_of(heading, "toml"))
    return folder


@pytest.fixture
def installed(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both, as this process knows them."""
    monkeypatch.syspath_prepend(packages)


def add(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, code: str) -> None:
    """Installs a package with one model, for this process."""
    toml = f'[project.entry-points."podline.models"]\n{name} = "{name}_models:{name}"\n'
    monkeypatch.syspath_prepend(install(folder, {f"{name}_models": code}, toml))
    monkeypatch.delitem(sys.modules, f"{name}_models", raising=False)


def built(seed: int = 0, **changes: Any) -> keras.Model:
    return installed_model(VIT.model_copy(update=changes), SHAPE, 10, [1.0] * 3, [0.0] * 3, seed)


@pytest.mark.usefixtures("installed")
def test_its_weights_depend_on_the_seed_alone() -> None:
    first = built()
    keras.layers.Dense(3)(keras.Input((2,)))  # takes a name, and draws from Keras's own generator
    again, other = built(), built(seed=1)
    assert [weight.path for weight in first.weights] == [weight.path for weight in again.weights]
    for mine, same in zip(first.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, same)
    kernel = first.get_layer("classifier").kernel
    assert np.abs(np.asarray(kernel) - np.asarray(other.get_layer("classifier").kernel)).max() > 0.01
    query, key = (
        np.asarray(getattr(first.get_layer("block1_attention"), f"{part}_dense").kernel) for part in ("query", "key")
    )
    assert np.abs(query - key).max() > 0.01, "layers of one layer have draws of their own"


@pytest.mark.usefixtures("installed")
def test_it_takes_uint8_and_its_dropout_and_options_are_the_recipe_s() -> None:
    model = built(dropout=0.5, options={"blocks": 3}, l2=0.01, l2_layers=("classifier",))
    assert model.input.dtype == "uint8"
    names = [layer.name for layer in model.layers]
    assert names[1] == "normalise"
    assert "block3_attention" in names
    assert type(model.get_layer("block1_dropout")).__name__ == "BatchDropout"
    assert len(model.losses) == 1


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "vitt"}, "there is no model 'vitt'; installed: vit"),
        ({"data_format": "channels_first"}, "model vit: data_format=channels_first vs channels_last"),
        ({"options": {"patch": "x"}}, r"model vit: \w+Error: "),
        ({"l2": 0.1, "l2_layers": ("conv",)}, "l2_layers: no layer's name starts with 'conv'; there are patches"),
    ],
)
def test_what_cannot_be_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        built(**changes)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("lambda shape, classes, settings: 3", "its function gives a int vs a functional Keras model"),
        (
            "lambda shape, classes, settings: keras.Sequential([keras.Input(shape), keras.layers.Flatten()])",
            r"it goes from \(None, 32, 32, 3\) to \(None, 3072\) vs from \(None, 32, 32, 3\) to \(None, 10\)",
        ),
    ],
)
def test_a_function_that_gives_something_else_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, message: str
) -> None:
    add(monkeypatch, tmp_path, "odd", f"import keras\nodd = {function}\n")
    with pytest.raises(SettingsError, match=message):
        built(kind="odd")


def test_batch_norm_is_the_one_that_replicas_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import keras
def net(shape, classes, settings):
    image = keras.Input(shape)
    maps = keras.layers.BatchNormalization(name="bn")(keras.layers.Conv2D(4, 3, name="conv")(image))
    return keras.Model(image, keras.layers.Dense(classes)(keras.layers.GlobalMaxPooling2D()(maps)))
"""
    add(monkeypatch, tmp_path, "net", code)
    assert type(built(kind="net").get_layer("bn")).__name__ == "FusedBatchNormalization"


@pytest.mark.parametrize("kind", ["linear", "resnet", "mobilenetv2"])
@pytest.mark.parametrize(("shape", "classes"), [((32, 32, 3), 10), ((28, 28, 1), 7)])
def test_the_counter_of_built_models_agrees_with_the_closed_forms(
    kind: str, shape: tuple[int, int, int], classes: int
) -> None:
    settings = ModelSettings(kind=kind, width=0.5, depth=2)
    channels = shape[-1]
    model = build_model(settings, shape, classes, [0.0] * channels, [1.0] * channels)
    counted, known = describe_keras(kind, model), describe(settings, shape, classes)
    for name in ("parameters", "trainable_parameters", "bytes", "multiply_adds"):
        assert getattr(counted, name) == getattr(known, name)
    for mine, theirs in zip(counted.layers, known.layers, strict=True):
        assert (mine.output_shape, mine.parameters, mine.multiply_adds) == (
            theirs.output_shape,
            theirs.parameters,
            theirs.multiply_adds,
        )


@pytest.mark.usefixtures("installed")
def test_attention_is_counted_by_hand() -> None:
    described = {layer.name: layer for layer in describe_keras("vit", built()).layers}
    tokens, width = 16, 48
    assert described["block1_attention"].multiply_adds == 4 * tokens * width**2 + 2 * tokens**2 * width
    assert described["block1_attention"].parameters == 4 * (width**2 + width)
    assert described["patches"].multiply_adds == 16 * 8 * 8 * 3 * width
    assert described["block1_norm1"].multiply_adds == 0


@pytest.mark.usefixtures("installed")
def test_forms_choices_and_errors_know_the_names() -> None:
    assert CifarParameters.model_json_schema()["properties"]["model"]["enum"][-1] == "vit"
    assert CifarParameters(recipe="sample", model="vit").training_recipe().model.kind == "vit"
    assert networks.names(networks.OPTIMIZERS)[-1] == "lion"
    with pytest.raises(SettingsError, match="there is no model 'vitt'; did you mean 'vit'"):
        registry.override(registry.get("sample"), {"model.kind": "vitt"})
    changed = registry.override(registry.get("sample"), {"model.kind": "vit", "model.options.blocks": 4})
    assert changed.model.options == {"blocks": 4}


@pytest.mark.usefixtures("installed")
def test_the_optimizer_is_handed_summed_gradients() -> None:
    optimizer: Any = build_optimizer(registry.override(registry.get("sample"), {"optimizer.kind": "lion"}).optimizer)
    assert isinstance(optimizer, keras.optimizers.Lion)
    pairs = [(1, 2)]
    assert optimizer._all_reduce_sum_gradients(pairs) is pairs


def command(*words: str) -> list[str]:
    root = () if words[0] == "model" else ("--root", "root")
    return [sys.executable, "-m", "podline.cli", *words, *root]


def podline(folder: Path, packages: Path | None, *words: str, code: int = 0) -> Any:
    """The document that a command prints."""
    done = subprocess.run(
        [*command(*words), "--json"], capture_output=True, text=True, check=False, cwd=folder, env=environment(packages)
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def environment(packages: Path | None) -> dict[str, str]:
    return {**os.environ, **({"PYTHONPATH": str(packages)} if packages else {})}


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that has a small data set."""
    folder = tmp_path_factory.mktemp("work")
    subprocess.run([sys.executable, "-m", "podline.cli", "sample", "drawn", "--train", "500"], check=True, cwd=folder)
    podline(folder, None, "convert", "sample", "--source", "drawn")
    return folder


def test_it_is_trained_judged_reported_and_promoted_and_then_needs_its_package_no_more(
    packages: Path, converted: Path, tmp_path: Path
) -> None:
    shutil.copytree(converted, tmp_path, dirs_exist_ok=True)
    described = podline(tmp_path, packages, "model", "describe", "sample", "--model", "vit")
    assert "block2_attention" in [layer["name"] for layer in described["layers"]]
    run = podline(tmp_path, packages, "train", "sample", *RUN, "--steps", "200")["run"]
    podline(tmp_path, None, "evaluate", run)
    podline(tmp_path, None, "report", run)
    assert "block1_attention" in (tmp_path / "root" / "runs" / run / "report.html").read_text()
    promoted = podline(tmp_path, None, "models", "promote", run, "--anyway", "--reason", "a first one")
    assert promoted["promoted"] is True
    error = podline(tmp_path, None, "train", "sample", "--model", "vit", code=2)["error"]["message"]
    assert error.startswith("there is no model 'vit'; ")


@pytest.mark.slow
def test_a_killed_training_of_it_ends_with_the_same_weights(packages: Path, converted: Path, tmp_path: Path) -> None:
    words = ("train", "sample", *RUN, "--steps", "150", "--set", "deterministic=true", "--set", "checkpoint_steps=10")
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    for folder in (undisturbed, killed):
        shutil.copytree(converted, folder)
    process = subprocess.Popen(
        command(*words), cwd=killed, env=environment(packages), stderr=subprocess.DEVNULL, start_new_session=True
    )
    while not list((killed / "root" / "runs").glob("*/checkpoints/*.json")):
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    resumed, whole = (podline(folder, packages, *words) for folder in (killed, undisturbed))
    assert resumed["resumed_from"]
    assert resumed["weights_sha256"] == whole["weights_sha256"]
