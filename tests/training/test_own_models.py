"""A model of one's own is published as it was trained, or refused by the name of its layer before the first step."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import keras
import numpy as np
import own_models
import pytest
from extending import install
from small_dataset import FINGERPRINT, small_recipe

from podline.base.errors import ArtifactError, SettingsError
from podline.base.progress import silent
from podline.documents.manifest import read_manifest
from podline.documents.metrics_log import METRICS, EvaluationLine
from podline.documents.model_description import DESCRIPTION, ModelDescription
from podline.evaluation.evaluate import evaluate
from podline.ledger.inventory.verification import verify
from podline.models import build, of_run, precision
from podline.models.build import build_model
from podline.models.layer_copies import exportable, in_float32
from podline.models.variables import set_weights
from podline.recipes import parts
from podline.recipes.durations import Duration
from podline.recipes.own_code import with_code
from podline.recipes.phases import PhaseSettings
from podline.recipes.settings import ModelSettings, OptimizerSettings, Precision
from podline.stages.specs import SPEC, WEIGHTS, EvaluateSpec, TrainSpec
from podline.store.folder import FolderStore
from podline.store.opening import open_store
from podline.training import publication
from podline.training.checkpoints import read_arrays, write_arrays
from podline.training.export import KERAS, export_model
from podline.training.run import configure_process, initial_model
from podline.training.state import TrainingState
from podline.training.train import train
from tests.support.metrics import read_metrics

SHAPE, CLASSES = (16, 16, 3), 4
IMAGES = np.random.default_rng(0).integers(0, 256, (6, *SHAPE), dtype=np.uint8)


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A package with all of them, and with a hook, for this process and those that it starts."""
    models = "\n".join(
        f'{each.__name__} = "own_models:{each.__name__}"' for each in (*own_models.ALL, own_models.dated)
    )
    tables = f'[project.entry-points."{parts.MODELS.group}"]\n{models}\n'
    tables += f'[project.entry-points."{parts.HOOKS.group}"]\nlate = "own_models:Late"\n'
    folder = install(tmp_path_factory.mktemp("site"), {"own_package": ""}, tables)
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(folder)
        patched.setenv("PYTHONPATH", os.pathsep.join(map(str, (folder, Path(own_models.__file__).parent))))
        yield


def built(kind: str, seed: int = 0, precision: Precision = "float32") -> keras.Model:
    return build_model(ModelSettings(kind=kind), SHAPE, CLASSES, [120.0] * 3, [60.0] * 3, seed, precision)


def same_bits(left: keras.Model, right: keras.Model) -> bool:
    sides = [[(each.dtype, each.numpy().tobytes()) for each in model.weights] for model in (left, right)]
    return sides[0] == sides[1]


@pytest.mark.parametrize("kind", [each.__name__ for each in own_models.ALL])
def test_what_is_published_has_every_value_however_often_it_is_loaded(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_run, "read_artifact", lambda store, _folder, _stage, name: store.read_bytes(name))
    model, store = built(kind), FolderStore(tmp_path)
    recipe = small_recipe().model_copy(update={"model": ModelSettings(kind=kind)})
    spec = TrainSpec(root=store.uri, recipe=recipe, fingerprint=FINGERPRINT)
    store.publish_json(f"runs/x/{SPEC}", spec.model_dump(mode="json"))
    for _ in range(3):
        model(IMAGES, training=True)  # the state is not the initial one
    sha256 = export_model(store, "runs/x", model, IMAGES)
    for _ in range(2):
        keras.layers.Conv2D(2, 3).build((None, 4, 4, 1))  # names go on
        loaded = of_run.network_of(store, "runs/x")
        set_weights(loaded, read_arrays(store, f"runs/x/{WEIGHTS}", sha256))
        assert same_bits(loaded, model)
        answers, expected = loaded(IMAGES, training=False), model(IMAGES, training=False)
        np.testing.assert_allclose(answers, expected, rtol=0, atol=1e-4)  # other float32 operations in a batch norm
        assert same_bits(build.trainable_model(loaded, kind, None, 0), built(kind)) == (kind != "whitened")
    # A second export has the same bytes, whatever was named before.
    assert export_model(store, "runs/y", model, IMAGES) == sha256


@own_models.registered
class Unfinished(keras.layers.Layer):
    """A layer that leaves the building of its part to Keras, which does not build it again for a loaded model."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.part = keras.layers.Dense(CLASSES, name="part")

    def call(self, inputs: Any) -> Any:
        return self.part(inputs)

    def compute_output_shape(self, shape: Any) -> Any:
        return (*shape[:-1], CLASSES)


@pytest.mark.filterwarnings("ignore:`build")
def test_a_file_that_keras_cannot_load_is_named_with_the_layer(tmp_path: Path) -> None:
    network = keras.Sequential([keras.Input(SHAPE), keras.layers.Flatten(), Unfinished()])
    model = build.trainable_model(network, "unfinished", ([0.0] * 3, [1.0] * 3), seed=0)
    with pytest.raises(ArtifactError, match=r"Keras cannot load .*model.keras: layer part has no weights in the file"):
        export_model(FolderStore(tmp_path), "runs/x", model, IMAGES)


def test_an_average_copies_what_has_no_mean_and_a_checkpoint_keeps_every_type(tmp_path: Path) -> None:
    state = TrainingState(built("memory"), OptimizerSettings(), 0.9)
    state.model(IMAGES, training=True)
    state.follow(0.5)
    assert state.average is not None
    found = {variable.name: variable.numpy() for variable in state.average.get_layer("memory").weights}
    assert [found[name][0] for name in ("age", "level", "open")] == [4, 2, False]
    assert float(found["mean"][0]) == pytest.approx(0.85, abs=0.005)
    _, sha256 = write_arrays(FolderStore(tmp_path), "x.npz", state.snapshot())
    again = TrainingState(built("memory", seed=1), OptimizerSettings(), 0.9)
    again.restore(read_arrays(FolderStore(tmp_path), "x.npz", sha256))
    assert same_bits(again.model, state.model)
    assert same_bits(again.average, state.average)


def test_values_that_a_model_brings_are_kept_and_others_come_from_the_seed() -> None:
    model, other = built("whitened"), built("whitened", seed=1)
    np.testing.assert_array_equal(model.get_layer("loaded").bias.numpy(), np.arange(8.0))
    kernel = model.get_layer("whitening").kernel.numpy().ravel()
    np.testing.assert_allclose(kernel, np.cos(np.arange(18)), rtol=1e-6)
    scaled = model.get_layer("normalization")((np.zeros((1, *SHAPE)) + 3).astype(np.float32))
    assert float(np.abs(scaled).max()) < 0.1
    differing = [a.path for a, b in zip(model.weights, other.weights, strict=True) if not np.array_equal(a, b)]
    assert differing == ["dense/kernel"]


def test_values_that_differ_each_time_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(shape: Any, classes: int, settings: Any) -> keras.Model:
        model = own_models.fire(shape, classes, settings)
        model.layers[-1].bias.assign(np.random.default_rng().normal(size=classes))
        return model

    own_models.installed_as(monkeypatch, "drawn", drawn)
    with pytest.raises(SettingsError, match="model drawn: dense/bias has other values each time the model is built"):
        built("drawn")


@pytest.mark.parametrize("kind", ["fire", "transfer", "residual"])
def test_layers_within_layers_compute_in_bfloat16_and_are_checked_in_float32(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "cpu_flags", lambda: {"avx512_bf16"})
    model = built(kind, precision="bfloat16")
    inner = [each for each in model._flatten_layers() if isinstance(each, keras.layers.Conv2D)]
    assert {each.compute_dtype for each in inner} == {"bfloat16"}
    expected, found = (made(IMAGES, training=False) for made in (in_float32(model), exportable(model)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    answers = model(IMAGES, training=False)
    assert float(np.abs(expected - answers).max()) > 1e-4
    average = TrainingState(model, OptimizerSettings(), average_decay=0.5).average
    assert average is not None
    np.testing.assert_array_equal(average(IMAGES, training=False), answers)


def trained(root: Path, kind: str, *, preflight: bool = False, **values: Any) -> TrainSpec:
    """Train a model for a few steps, and evaluate it."""
    few = {"duration": Duration(steps=6), "evaluate_every": Duration(steps=3), "batch_size": 8, "seed": 3}
    recipe = with_code(small_recipe(model=ModelSettings(kind=kind), **(few | values)))
    spec = TrainSpec(root=str(root), recipe=recipe, fingerprint=FINGERPRINT, preflight=preflight)
    result = train(spec, silent())
    judging = {"run": result.run, "dataset": "sample", "weights_sha256": result.weights_sha256}
    found = evaluate(EvaluateSpec(root=str(root), fingerprint=FINGERPRINT, **judging), silent())
    lines = read_metrics(root / spec.folder / METRICS)
    *_, last = (line for line in lines if isinstance(line, EvaluationLine))
    # What is judged is what was trained.
    assert found.metrics["top1"].value == pytest.approx(last.accuracy)
    return spec


@pytest.mark.parametrize("kind", ["memory", "twins"])
def test_a_model_is_judged_after_its_training_as_in_it(root: Path, kind: str) -> None:
    trained(root, kind, ema_decay=0.5)


def test_what_a_model_froze_stays_frozen_and_what_a_recipe_froze_is_thawed(root: Path) -> None:
    phase = PhaseSettings(from_epoch=1, changes={"trainable_layers": ("",)})
    spec = trained(root, "transfer", trainable_layers=("dense",), phases=(phase,), duration=Duration(epochs=2))
    manifest = read_manifest(open_store(root), spec.dataset_folder)
    fresh = initial_model(spec.recipe, manifest, configure_process(spec.recipe))
    ended = keras.models.load_model(root / spec.folder / KERAS, compile=False)
    pairs = zip(fresh.layers, ended.layers, strict=True)
    still = [new.name for old, new in pairs if new.weights and same_bits(old, new)]
    assert still == ["backbone"]
    assert [layer.name for layer in ended.layers if layer.weights and not layer.trainable_variables] == still
    described = ModelDescription.model_validate_json((root / spec.folder / DESCRIPTION).read_bytes())
    assert described.trainable_parameters == 8 * 8 * 9 + 8 + 8 * 3 + 3
    with pytest.raises(SettingsError, match=r"no variable would train; .* that the model itself does not freeze"):
        trained(root, "transfer", trainable_layers=("backbone",))


def test_later_phases_and_the_last_call_of_a_hook_are_rehearsed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_given: Any) -> Any:
        raise ValueError("no such step")

    with monkeypatch.context() as patched:
        patched.setattr(keras.optimizers.RMSprop, "update_step", refused)
        phase = PhaseSettings(from_epoch=1, changes={"optimizer.kind": "rmsprop"})
        with pytest.raises(SettingsError, match="fails: ValueError: no such step"):
            trained(root, "fire", preflight=True, duration=Duration(epochs=2), phases=(phase,))

    with pytest.raises(SettingsError, match=r"hook late \(own_models:Late of own_package\): ZeroDivisionError: step 6"):
        trained(root, "fire", preflight=True, hooks=("late",))


def test_an_architecture_is_checked_where_tensorflow_has_another_distribution(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = Mock()
    monkeypatch.setattr(importlib.metadata, "version", Mock(side_effect=importlib.metadata.PackageNotFoundError))
    monkeypatch.setattr(publication, "_check", checked)
    model = keras.Sequential([keras.Input(SHAPE), keras.layers.Flatten()])
    recipe = small_recipe(model={"kind": "residual"})
    for _ in range(2):
        publication.require_reloadable(open_store(root), recipe, model, IMAGES, silent())
    assert checked.call_count == 1


@pytest.mark.slow
def test_a_new_architecture_is_loaded_in_other_processes_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(root)
    with pytest.raises(SettingsError, match=r"model dated: the model in a new process gives outputs that differ by "):
        trained(root, "dated", preflight=True)
    assert not (root / "architectures").exists()
    trained(root, "residual", preflight=True)
    assert len(list((root / "architectures").iterdir())) == 1
    monkeypatch.setattr(publication.subprocess, "Popen", None)
    trained(root, "residual", preflight=True, seed=4)
    found = verify(store, silent())
    assert "architectures" not in "".join((*found.problems, *found.notes))
