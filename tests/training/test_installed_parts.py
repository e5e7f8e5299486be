"""What docs/how-to shows of packages (model, optimizer, augmentation, loss, hook) is trained with, or refused."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from own_models import installed_as, network
from support.extending import answer, code_of, install

from podline.base.errors import PreemptedError, SettingsError
from podline.documents.manifest import Manifest
from podline.input import augmentation
from podline.input.augmentation import augmented
from podline.kinds.classification import objective
from podline.kinds.classification.objective import ClassificationObjective
from podline.models.batch_layers import FusedBatchNormalization
from podline.models.build import build_model
from podline.models.layer_copies import exportable
from podline.recipes import parts, registry
from podline.recipes.parts import HOOKS, MODELS
from podline.recipes.settings import AugmentationSettings, LossSettings, ModelSettings, OptimizerSettings
from podline.training.hooks import InstalledHook
from podline.training.loop import Hook, StepsDone, Stretch, run_loop
from podline.training.optimizers import build_optimizer

SETTINGS = AugmentationSettings(pad=2, also={"brightness": 30})


@pytest.fixture(scope="module")
def brightness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The page's three packages, as this process knows them."""
    folder = tmp_path_factory.mktemp("site")
    pages = {"## An augmentation": "my_augmentations", "## A loss": "my_losses", "## A hook": "my_hooks"}
    for heading, name in pages.items():
        install(folder, {name: code_of(heading, "python")}, code_of(heading, "toml"))
    with pytest.MonkeyPatch.context() as installed:
        installed.syspath_prepend(folder)
        yield


MANIFEST = cast(Manifest, SimpleNamespace(mean_colour=(0, 0, 0)))


def made(count: int, settings: AugmentationSettings = SETTINGS, ids: np.ndarray | None = None, epoch: int = 0) -> Any:
    """Grey images of 8 × 8 pixels and their labels, augmented."""
    arrays = {"image": np.full((count, 8, 8, 3), 128, np.uint8), "label": np.arange(count)}
    return augmented(arrays, np.arange(count) if ids is None else ids, settings, 1, epoch, MANIFEST)


@pytest.mark.usefixtures("brightness")
def test_an_example_s_picture_is_the_same_in_whatever_batch_it_is() -> None:
    whole = made(300)["image"]
    np.testing.assert_array_equal(whole[17], made(1, ids=np.array([17]))["image"][0])
    assert len(np.unique(whole[:, 0, 0, 0])) > 50
    assert (made(300, epoch=1)["image"] != whole).any()


@pytest.mark.usefixtures("brightness")
def test_what_gives_other_arrays_or_fails_or_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r"brightness \(my_augmentations:.* of my_.*\), 'much': .*TypeError: "):
        made(3, AugmentationSettings(also={"brightness": "much"}))
    monkeypatch.setattr(augmentation, "_installed", lambda _name: lambda batch, *_: batch | {"label": np.zeros(3)})
    with pytest.raises(SettingsError, match=r"gives .*'label': 'float64 \(3,\)'.*, expected .*'label': 'int64 \(3,\)'"):
        made(3)


@pytest.mark.usefixtures("brightness")
def test_a_loss_of_one_s_own_is_trained_with_and_evaluated() -> None:
    logits, labels = np.array([[2.0, 0.0], [0.0, 0.0]], np.float32), np.array([0, 1])
    objective = ClassificationObjective(settings=LossSettings(kind="poly", options={"epsilon": 2}))
    shares = np.array([np.exp(2) / (1 + np.exp(2)), 0.5])
    for each in (objective, objective.evaluated):
        [found] = each.terms({"label": labels}, logits).values()
        np.testing.assert_allclose(found, 2 * (1 - shares) - np.log(shares), rtol=1e-5)
    recipe = registry.override(
        registry.get("mnist"), {"task.label_smoothing": 0, "loss.kind": "poly", "loss.options.epsilon": 1}
    )
    assert recipe.loss.options == {"epsilon": 1}
    with pytest.raises(SettingsError, match=r"task\.label_smoothing=0\.1 needs .* got loss\.kind=poly"):
        registry.override(recipe, {"task.label_smoothing": 0.1})


def test_a_loss_that_fails_or_gives_one_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, logits = {"label": np.zeros(2, np.int64)}, np.zeros((2, 3), np.float32)
    for loss, words in (
        (lambda *_: 1 / 0, "ZeroDivisionError"),
        (lambda *_: 1.0, r"shape \(\), expected \(n,\)"),
    ):
        monkeypatch.setattr(objective, "cross_entropy", loss)
        with pytest.raises(SettingsError, match=f"loss cross_entropy.*{words}"):
            ClassificationObjective().terms(batch, logits)


@pytest.mark.usefixtures("brightness")
def test_a_training_has_both_and_its_name_says_so(answered: Any, podline: Any) -> None:
    answered("convert", "sample", "--source", "drawn")
    short = ("train", "sample", "--steps", "4", "--set", "model.width=0.25")
    own = ("--set", 'augmentation.also={"brightness": 30}', "--set", 'hooks=["memory"]')
    assert "hooks" not in answered(*short, "--show-spec")["recipe"]
    told = podline(*short, *own, "--root", "root").err
    assert "step 4: " in told
    assert " MB at most" in told
    assert answered(*short, *own)["reused"]


def test_a_hook_that_cannot_be_made_or_found_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "def zero(run):\n    return 1 / 0\n\ndef plain(run):\n    return run\n"
    toml = '[project.entry-points."podline.hooks"]\nzero = "my_board:zero"\nplain = "my_board:plain"\n'
    monkeypatch.syspath_prepend(install(tmp_path, {"my_board": code}, toml))
    with pytest.raises(SettingsError, match=r"^hook zero \(my_board:zero of my_board\): ZeroDivisionError"):
        HOOKS.call("zero", object())
    with pytest.raises(SettingsError, match=r"^hook plain \(my_board:plain of my_board\): gives a int, expected a "):
        InstalledHook(HOOKS.title("plain"), HOOKS.call("plain", 3))


class Late(Hook):
    """Fails at its second call, in the way of its choice, or asks for a step that is past."""

    def __init__(self, error: BaseException | None) -> None:
        self.calls, self.error = 0, error

    def next_stop(self, step: int) -> int:
        return step + 1 if self.error else step

    def after(self, stretch: Stretch) -> None:
        self.calls += 1
        if self.calls > 1 and self.error:
            raise self.error

    def rehearse(self, stretch: Stretch) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (SystemExit(3), SettingsError, "hook late (x of y): SystemExit: 3"),
        (None, SettingsError, "hook late (x of y): ValueError: next_stop(0) gives 0, expected a later step"),
        (PreemptedError("asked to end"), PreemptedError, "asked to end"),
    ],
)
def test_a_hook_that_fails_late_ends_the_run_by_its_name(
    error: BaseException | None, expected: type[BaseException], message: str
) -> None:
    hook = InstalledHook("hook late (x of y)", Late(error))
    done = StepsDone({"loss": np.zeros(1, np.float32)}, 0.1, 0.0)
    with pytest.raises(expected) as caught:
        run_loop(lambda _: done, 0, 3, hooks=[hook], news=lambda *_: None, asked_to_stop=lambda: False)
    assert str(caught.value) == message


def test_a_hook_that_ends_the_run_without_a_reason_is_named() -> None:
    late, stretch = Late(None), Stretch({"loss": np.zeros(1, np.float32)}, 0.1, 0.0, step=1, last=False)
    late.stop = lambda stretch: stretch.step > 0
    with pytest.raises(SettingsError, match=r"^hook late: TypeError: stop gives True, expected the reason as text"):
        InstalledHook("hook late", late).stop(stretch)
    late.stop = lambda stretch: None
    assert not InstalledHook("hook late", late).stop(stretch)


def test_what_a_module_sets_in_keras_at_its_import_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import keras\nkeras.config.set_dtype_policy('mixed_bfloat16')\nkeras.config.set_floatx('float16')\n"
        "keras.config.set_image_data_format('channels_first')\nnet = keras.layers.Dense(1).dtype_policy.name\n"
    )
    toml = '[project.entry-points."podline.models"]\nhalf = "my_half:net"\n'
    monkeypatch.syspath_prepend(install(tmp_path, {"my_half": code}, toml))
    config = keras.config
    before = config.dtype_policy().name, config.floatx(), config.image_data_format()
    assert MODELS.load("half") == "mixed_bfloat16"
    assert (config.dtype_policy().name, config.floatx(), config.image_data_format()) == before


SHAPE = (32, 32, 3)
VIT = ModelSettings(kind="vit", depth=2, dropout=0.1, options={"width": 24})
ODD = ModelSettings(kind="odd")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages with the page's two."""
    folder = tmp_path_factory.mktemp("site")
    for heading, name in (("## A model", "my_models"), ("## An optimizer", "my_optimizers")):
        install(folder, {name: code_of(heading, "python")}, code_of(heading, "toml"))
    return folder


@pytest.fixture
def installed(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages, as this process knows them."""
    monkeypatch.syspath_prepend(packages)


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a function the model ``odd``, or the optimizer ``odd``."""

    return functools.partial(installed_as, monkeypatch, "odd")


def built(settings: ModelSettings, seed: int = 0) -> keras.Model:
    return build_model(settings, SHAPE, 10, [120.0] * 3, [60.0] * 3, seed)


def replicas() -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def values(model: keras.Model) -> dict[str, np.ndarray]:
    return {variable.path: variable.numpy() for variable in model.variables}


@pytest.mark.usefixtures("installed")
def test_the_seed_alone_gives_its_weights_and_no_two_variables_share_theirs() -> None:
    first = values(built(VIT, seed=1))
    for _ in range(3):
        keras.layers.Dropout(0.5)  # whatever else is named or drawn
        keras.random.normal((2,))
    second = values(built(VIT, seed=1))
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[path], second[path]) for path in first)
    other = values(built(VIT, seed=2))
    drawn = [path for path, value in first.items() if np.unique(value).size > 2]
    assert "positions/bias" in drawn
    assert len(drawn) == 4 + 2 * 6
    assert not any(np.array_equal(first[path], other[path]) for path in drawn)
    query, key, value = (first[f"block1_attention/{name}/kernel"] for name in ("query", "key", "value"))
    assert not np.array_equal(query, key)
    assert not np.array_equal(key, value)


@pytest.mark.usefixtures("installed")
def test_names_and_options_that_are_not_there_are_one_line() -> None:
    assert parts.MODELS.names() == (*parts.MODELS.shipped, "vit")
    with pytest.raises(SettingsError, match=r"there is no model 'vitt'; did you mean 'vit'\?"):
        built(ModelSettings(kind="vitt"))
    with pytest.raises(
        SettingsError,
        match=r"model vit \(my_models:vit of my_models\): TypeError: .* unexpected keyword argument 'head'",
    ):
        built(ModelSettings(kind="vit", options={"head": 2}))
    with pytest.raises(SettingsError, match="model resnet has no options vs heads"):
        built(ModelSettings(options={"heads": 2}))
    with pytest.raises(SettingsError, match="channels_first vs model vit: only Podline's own models support it"):
        built(VIT.model_copy(update={"data_format": "channels_first"}))
    assert parts.OPTIMIZERS.names()[-1] == "own-lion"


def test_blocks_that_are_models_of_their_own_get_podline_s_batch_norm(odd: Any) -> None:
    odd(network(lambda: keras.Sequential([layers.Conv2D(4, 3), layers.BatchNormalization()], name="block")))
    model = built(ModelSettings(kind="odd", l2=0.5, l2_layers=("block",)))
    assert isinstance(model.get_layer("block").layers[-1], FusedBatchNormalization)
    kernel = model.get_layer("block").trainable_variables[0].numpy()
    assert float(sum(model.losses)) == pytest.approx(0.5 * float((kernel**2).sum()), rel=1e-5)
    assert not any(isinstance(layer, FusedBatchNormalization) for layer in exportable(model).get_layer("block").layers)


def test_a_seed_that_a_layer_brings_gives_way_to_the_recipe_s(odd: Any) -> None:
    shared = keras.initializers.HeNormal(7)
    odd(network(*[lambda: layers.Conv2D(6, 3, kernel_initializer=shared)] * 2))
    first, other = values(built(ODD)), values(built(ODD, seed=1))
    assert not np.array_equal(first["conv2d/kernel"], first["conv2d_1/kernel"])
    assert not np.array_equal(first["conv2d/kernel"], other["conv2d/kernel"])


def test_batch_norm_of_features_sees_the_batch_of_all_replicas(odd: Any) -> None:
    def normed(shape: Any, classes: int, _settings: Any) -> keras.Model:
        image = keras.Input(shape)
        tokens = layers.BatchNormalization(scale=False, name="of_tokens")(layers.Reshape((256, 12))(image))
        features = layers.BatchNormalization(center=False, name="of_features")(layers.GlobalMaxPooling1D()(tokens))
        return keras.Model(image, layers.Dense(classes)(features))

    odd(normed)
    images = np.random.default_rng(0).integers(0, 256, (8, *SHAPE), dtype=np.uint8)
    alone = built(ODD)
    expected = alone(images, training=True)
    strategy = replicas()
    with strategy.scope():
        shared = built(ODD)
    parts_of = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(np.split(images, 2)[context.replica_id_in_sync_group])
    )
    run = tf.function(lambda: strategy.run(lambda part: shared(part, training=True), (parts_of,)))
    found = np.concatenate(strategy.experimental_local_results(run()))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)  # sums in another order
    for path, value in values(alone).items():
        np.testing.assert_allclose(values(shared)[path], value, rtol=1e-4, atol=1e-4, err_msg=path)


class Itself(keras.optimizers.SGD):
    """An optimizer that applies gradients in a way of its own."""

    def apply(self, grads, trainable_variables=None):
        super().apply(grads, trainable_variables)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda *_: 3, "its function gives a int, expected a keras.optimizers.Optimizer"),
        (lambda *_: Itself(), "Itself has a apply of its own; write update_step"),
        (lambda *_: keras.optimizers.Nadam(global_clipnorm=1e-9), "global_clipnorm=1e-09: leave it out"),
        (lambda *_: keras.optimizers.AdamW(), "weight_decay=0.004: leave it out, or give 0; a recipe has"),
        (
            lambda *_: keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 9)),
            "it has a schedule of its own, .*; give the optimizer the rate",
        ),
    ],
)
def test_an_optimizer_that_cannot_be_used_is_refused_by_name(odd: Any, make: Any, message: str) -> None:
    odd(make)
    with pytest.raises(SettingsError, match=f"optimizer odd: {message}"):
        build_optimizer(OptimizerSettings(kind="odd"), [])


@pytest.mark.slow
def test_from_the_first_step_to_the_champion(packages: Path, tmp_path: Path) -> None:
    draw = [sys.executable, "-m", "podline.cli", "data", "draw", "drawn", "--train", "600"]
    subprocess.run(draw, check=True, cwd=tmp_path)
    answer(tmp_path, packages, "convert", "sample", "--source", "drawn")
    own = ("--set", "optimizer.kind=own-lion", "--set", "model.options.heads=2")
    run = answer(tmp_path, packages, "train", "vit-sample", "--steps", "150", *own)["run"]

    # From here on it needs the package no more.
    evaluated = answer(tmp_path, None, "evaluate", run)
    assert 0 < evaluated["metrics"]["top1"]["value"] < 1
    folder = tmp_path / "root" / "runs" / run
    told = answer(tmp_path, packages, "models", "describe", "vit-sample", *own, root=())
    assert told == json.loads((folder / "model" / "description.json").read_text())
    answer(tmp_path, None, "models", "promote", run, "--anyway", "--reason", "a first one")
    images = np.random.default_rng(0).integers(0, 256, (4, *SHAPE), dtype=np.uint8)
    plain = keras.models.load_model(folder / "model" / "model.keras", compile=False)(images, training=False)
    saved = tf.saved_model.load(str(folder / "model" / "saved_model"))
    [logits] = saved.signatures["serve"](tf.constant(images)).values()
    np.testing.assert_allclose(logits, plain, rtol=0, atol=1e-4)  # other float32 operations
    answer(tmp_path, None, "report", run)
    assert "block2_attention" in (folder / "report.html").read_text()
    [entry] = answer(tmp_path, None, "models", "list")
    assert entry["run"] == run
