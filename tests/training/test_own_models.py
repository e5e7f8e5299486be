"""Models of people's own style: what is published is what was trained."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import own_models
import pytest

from podline.errors import SettingsError
from podline.models import build, of_run, precision
from podline.models.build import build_model, exportable, in_float32
from podline.models.variables import set_weights
from podline.recipes import parts
from podline.recipes.settings import ModelSettings, OptimizerSettings, Precision
from podline.stages.specs import WEIGHTS
from podline.store.folder import FolderStore
from podline.training.checkpoints import read_arrays, write_arrays
from podline.training.export import export_model
from podline.training.state import TrainingState

SHAPE, CLASSES = (16, 16, 3), 4
IMAGES = np.random.default_rng(0).integers(0, 256, (6, *SHAPE), dtype=np.uint8)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with all of them."""
    points = [SimpleNamespace(name=each.__name__, value="own", load=lambda each=each: each) for each in own_models.ALL]
    monkeypatch.setattr(parts.entry_points, "installed", lambda group: points if group == "podline.models" else [])


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
        assert same_bits(build.untrained(loaded, 0), built(kind)) == (kind != "whitened")
    # A second export has the same bytes, whatever was named before.
    assert export_model(store, "runs/y", model, IMAGES) == sha256


def test_an_average_copies_what_has_no_mean_and_a_checkpoint_keeps_every_type(tmp_path: Path) -> None:
    state = TrainingState(built("memory"), OptimizerSettings(), 0.9)
    state.model(IMAGES, training=True)
    state.follow(0.5)
    assert state.average is not None
    found = {variable.name: variable.numpy() for variable in state.average.get_layer("memory").weights}
    assert [found[name][0] for name in ("age", "level", "open")] == [4, 2, False]
    assert float(found["mean"][0]) == pytest.approx(0.85, abs=0.005)
    arrays = state.snapshot()
    _, sha256 = write_arrays(FolderStore(tmp_path), "x.npz", arrays)
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

    monkeypatch.setattr(parts.MODELS.__class__, "load", lambda *_: drawn)
    with pytest.raises(SettingsError, match="model fire: dense/bias has other values each time the model is built"):
        built("fire")


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
    assert float(np.abs(expected - model(IMAGES, training=False)).max()) > 1e-4
