"""Weights of a file begin a run: by name and shape, named by their bytes, and refused in one line."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from dying_runs import killed_at, lively_recipe
from small_dataset import FINGERPRINT, publish_dataset

from podline.base.errors import ArtifactError, SettingsError
from podline.base.progress import Reporter, silent
from podline.documents.initial_weights import read_initial_weights
from podline.models.variables import weights
from podline.recipes.settings import InitSettings
from podline.stages.from_recipe import training_spec
from podline.stages.specs import WEIGHTS, TrainSpec
from podline.store.opening import open_store
from podline.training.run import configure_process, initial_model
from podline.training.train import train

RECIPE = lively_recipe(
    model={"kind": "resnet", "width": 0.25}, duration={"steps": 6}, checkpoint_steps=2, summary_steps=2
)


def spec_of(root: Path, file: Path | None = None, **values) -> TrainSpec:
    init = InitSettings(file=str(file)) if file else None
    recipe = RECIPE.changed(init=init, **values)
    return training_spec(open_store(str(root)), recipe, FINGERPRINT, "cpu").changed(preflight=False)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> tuple[Path, Path]:
    """A store, and the first weights of a model outside of it."""
    root = tmp_path_factory.mktemp("store")
    model = initial_model(RECIPE, publish_dataset(root), configure_process(RECIPE))
    file = tmp_path_factory.mktemp("elsewhere") / "weights.npz"
    np.savez(file, **weights(model))
    return root, file


def told(root: Path, spec: TrainSpec):
    lines: list[str] = []
    train(spec, Reporter("train", lambda event: lines.append(event.get("message", ""))))
    return read_initial_weights(open_store(str(root)), spec.folder), "\n".join(lines)


def test_a_run_that_learns_nothing_ends_with_the_weights_of_the_file(base):
    root, file = base
    frozen = spec_of(root, file, trainable_layers=("classifier",), seed=7, ema_decay=0.0, duration={"steps": 2})
    found, said = told(root, frozen)
    assert (found.missing, found.unused, found.other_shape) == ((), (), ())
    assert f"{len(found.taken)} layers" in said
    with np.load(file) as before, np.load(root / frozen.folder / WEIGHTS) as after:
        equal = [name for name in before if np.array_equal(before[name], after[name])]
        assert sorted(equal) == sorted(name for name in before if not name.startswith("classifier/"))


def test_the_name_depends_on_the_files_bytes_and_not_on_its_place(base, tmp_path):
    root, file = base
    moved, other = tmp_path / "moved.npz", tmp_path / "other.npz"
    shutil.copyfile(file, moved)
    np.savez(other, more=np.ones(3))
    names = [spec_of(root, each).run for each in (file, moved, other, None)]
    assert names[0] == names[1]
    assert len(set(names)) == 3
    spec = spec_of(root, moved)
    moved.write_bytes(moved.read_bytes() + b" ")
    with pytest.raises(SettingsError, match=rf"has sha256 \w+… vs {spec.recipe.init.checksum[:12]}…"):
        train(spec, silent())


def test_layers_of_another_shape_are_left_fresh_and_told(base, tmp_path):
    root, file = base
    changed = tmp_path / "changed.npz"
    with np.load(file) as arrays:
        kept = {name: array for name, array in arrays.items() if not name.startswith("stage1_conv")}
    kept |= {"classifier/kernel": np.zeros((32, 1000), np.float32), "more/kernel": np.zeros(3, np.float32)}
    np.savez(changed, **kept)
    found, said = told(root, spec_of(root, changed))
    assert [other.layer for other in found.other_shape] == ["classifier"]
    assert (found.missing, found.unused) == (("stage1_conv",), ("more",))
    assert re.search(r"classifier .*32×1000.* vs .* in the model", said)


def test_a_run_that_was_broken_off_goes_on_without_the_file(base, tmp_path):
    root, _ = base
    gone, random = tmp_path / "gone.npz", np.random.default_rng(0)
    shapes = {"classifier/kernel": (8 * 8 * 3, 3), "classifier/bias": (3,)}
    np.savez(gone, **{name: random.normal(0, 0.01, shape).astype(np.float32) for name, shape in shapes.items()})
    linear = {"kind": "linear"}
    unbroken, broken = (spec_of(root, gone, name=name, model=linear) for name in ("t", "u"))
    killed_at(broken, 4)
    expected = train(unbroken, silent())
    gone.unlink()
    result = train(broken, silent())
    assert result.resumed_from
    assert result.weights_sha256 == expected.weights_sha256


def model() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="elsewhere")])


def keras2_file(file: Path) -> None:
    keras.src.legacy.saving.legacy_h5_format.save_model_to_hdf5(model(), file)


def damaged(file: Path) -> None:
    file.write_bytes(b"PK\x03\x04 and no more")


@pytest.mark.parametrize(
    ("name", "write", "error", "words"),
    [
        (
            "other.keras",
            lambda file: model().save(file),
            SettingsError,
            "file has elsewhere, the model has stem_",
        ),
        ("old.h5", keras2_file, ArtifactError, r"got a file of Keras 2, expected one of Keras 3; .*save_weights"),
        ("cut.keras", damaged, ArtifactError, r"^init=.*cut\.keras is damaged or no file of weights: [^\n]*$"),
        ("weights.ckpt", damaged, SettingsError, r"\.ckpt vs \.keras, \.weights\.h5"),
        ("none.npz", lambda _file: None, SettingsError, "No such file"),
    ],
)
def test_a_file_that_cannot_be_taken_is_one_line(base, tmp_path, name, write, error, words):
    write(tmp_path / name)
    with pytest.raises(error, match=words):
        train(spec_of(base[0], tmp_path / name), silent())
