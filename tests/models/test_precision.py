from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from podline.errors import SettingsError
from podline.models import precision
from podline.models.build import build_model, exportable, in_float32
from podline.models.precision import cpu_flags, policy
from podline.recipes.settings import ModelSettings

SHAPE = (32, 32, 3)
WITH, WITHOUT = {"avx512_bf16"}, {"avx512f"}


@pytest.fixture
def bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that has it; where it has not, TensorFlow emulates it, and the results are the same."""
    monkeypatch.setattr(precision, "cpu_flags", lambda: WITH)


def built(kind: str = "resnet", **settings: object) -> keras.Model:
    chosen = ModelSettings.model_validate({"kind": kind, "width": 0.5, **settings})
    return build_model(chosen, SHAPE, 10, (120.0,) * 3, (60.0,) * 3, 0, "bfloat16")


def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (16, *SHAPE), dtype=np.uint8)


@pytest.mark.parametrize("kind", ["resnet", "linear"])
@pytest.mark.usefixtures("bfloat16")
def test_layers_compute_in_it_but_for_the_last_with_a_kernel_and_weights_are_float32(kind: str) -> None:
    model = built(kind)
    last = next(place for place, layer in enumerate(model.layers) if layer.name == "classifier")
    inner = [layer for layer in model.layers[:last] if layer.name not in ("image", "normalise")]
    assert {layer.compute_dtype for layer in inner} <= {"bfloat16"}
    assert {layer.compute_dtype for layer in model.layers[last:]} == {"float32"}
    assert {variable.dtype for variable in model.variables} == {"float32"}
    assert model(images()).dtype == "float32"


@pytest.mark.usefixtures("bfloat16")
def test_its_answers_are_those_of_float32_but_for_rounding() -> None:
    model = built()
    exact = build_model(ModelSettings(width=0.5), SHAPE, 10, (120.0,) * 3, (60.0,) * 3, 0)
    found, expected = (np.asarray(each(images(), training=True)) for each in (model, exact))
    assert not np.array_equal(found, expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.05 * np.abs(expected).max())  # 8 bits, seven layers


@pytest.mark.usefixtures("bfloat16")
def test_what_is_exported_computes_in_float32_with_the_same_weights() -> None:
    model = built()
    copy, plain = exportable(model), in_float32(model)
    assert {layer.dtype_policy.name for layer in (*copy.layers, *plain.layers)} == {"float32"}
    for array, weights in zip(copy.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(array, weights)
    np.testing.assert_allclose(copy(images()), plain(images()), rtol=0, atol=1e-4)  # stock batch norm rounds otherwise
    assert in_float32(plain) is plain


def test_a_processor_without_it_is_refused_by_name_and_auto_takes_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "cpu_flags", lambda: WITHOUT)
    with pytest.raises(SettingsError, match="precision=bfloat16 vs a processor without AVX512_BF16 or AMX"):
        policy("bfloat16")
    assert (policy("auto"), policy("float32")) == ("float32", "float32")
    monkeypatch.setattr(precision, "cpu_flags", lambda: WITH)
    assert (policy("auto"), policy("bfloat16"), policy("float32")) == ("mixed_bfloat16", "mixed_bfloat16", "float32")


def test_what_a_processor_has_is_read_from_linux(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    assert cpu_flags(file) == set()
    file.write_text("processor\t: 0\nflags\t\t: fpu avx512_bf16 amx_bf16\nbugs\t: spectre\n")
    assert cpu_flags(file) == {"fpu", "avx512_bf16", "amx_bf16"}
