"""A run begins with another run's last bit, a file's weights or published ones, and is refused in one line."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from dying_runs import killed_at, lively_recipe, losses, specs_of
from keras.src.legacy.saving.legacy_h5_format import save_model_to_hdf5
from small_dataset import FINGERPRINT, publish_dataset

from podline.base.errors import ArtifactError, SettingsError
from podline.base.progress import Reporter, silent
from podline.documents.initial_weights import read_initial_weights
from podline.documents.metrics_log import read_events
from podline.documents.model_description import DESCRIPTION, ModelDescription
from podline.models import efficientnet_lite, published_weights
from podline.models.efficientnet_lite import from_pytorch
from podline.models.variables import weights
from podline.models.weights_files import read_weights
from podline.recipes.published_weights import PUBLISHED, Pretrained
from podline.recipes.settings import InitSettings, Recipe
from podline.stages.from_recipe import training_spec
from podline.stages.specs import WEIGHTS, TrainResult, TrainSpec
from podline.stages.tools import PreflightSpec
from podline.store.opening import open_store
from podline.training.run import configure_process, initial_model
from podline.training.train import preflight, train

RECIPE = lively_recipe(
    model={"kind": "resnet", "width": 0.25}, duration={"steps": 6}, checkpoint_steps=2, summary_steps=2
)


def spec_of(root: Path, file: Path | None = None, recipe: Recipe = RECIPE, **values) -> TrainSpec:
    changed = recipe.changed(**values | ({"init": {"file": str(file)}} if file else {}))
    return training_spec(open_store(str(root)), changed, FINGERPRINT, "cpu").changed(preflight=False)


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


def other() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="elsewhere")])


def keras_2(file: Path) -> None:
    save_model_to_hdf5(other(), file)


def infinite(file: Path) -> None:
    np.savez(file, **{"stem_conv/kernel": np.full((3, 3, 3, 8), 1e300)})


def damaged(file: Path) -> None:
    file.write_bytes(b"PK\x03\x04 and no more")


@pytest.mark.parametrize(
    ("name", "write", "error", "words"),
    [
        ("other.keras", lambda file: other().save(file), SettingsError, "file has elsewhere, the model has stem_"),
        ("old.h5", keras_2, ArtifactError, r"got a file of Keras 2, expected one of Keras 3; .*save_weights"),
        ("cut.keras", damaged, ArtifactError, r"^init=.*cut\.keras is damaged, or is not a file of weights: [^\n]*$"),
        ("weights.ckpt", damaged, SettingsError, r"got \.ckpt, expected \.keras, \.weights\.h5"),
        ("flat.npz", lambda file: np.savez(file, kernel=np.ones(3)), SettingsError, "has arrays without a layer, the"),
        ("wide.npz", infinite, SettingsError, "stem_conv has values that are not finite in float32"),
        ("none.npz", lambda _file: None, SettingsError, "No such file"),
    ],
)
def test_a_file_that_cannot_be_taken_is_one_line(base, tmp_path, name, write, error, words):
    write(tmp_path / name)
    with pytest.raises(error, match=words):
        train(spec_of(base[0], tmp_path / name), silent())


further_spec = specs_of(
    lively_recipe(duration={"epochs": 1}, optimizer={"kind": "adam"}, checkpoint_steps=5, summary_steps=4)
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, TrainResult]:
    """A store with a finished run of one epoch."""
    root = tmp_path_factory.mktemp("store")
    publish_dataset(root)
    return root, train(further_spec(root), silent())


def test_an_epoch_and_two_further_ones_are_three_to_the_last_bit(finished):
    root, first = finished
    whole = further_spec(root, duration={"epochs": 3})
    expected = train(whole, silent())
    spec = further_spec(root, further=first.run, duration={"epochs": 1})
    second = train(spec, silent())
    assert (second.steps, second.steps_before, second.epochs_before) == (12, 12, 1)
    assert second.run != first.run
    further = further_spec(root, further=second.run, duration={"epochs": 1})
    third = train(further, silent())
    assert (third.steps_before, third.epochs_before) == (24, 2)
    assert third.weights_sha256 == expected.weights_sha256
    together = [loss for each in (further_spec(root), spec, further) for loss in losses(root / each.folder)]
    assert together == losses(root / whole.folder)
    started = read_events(root / spec.folder / "events.jsonl")[0]
    assert f"12 steps further from {first.run}" in started.message


def test_a_run_that_trains_another_further_goes_on_where_it_was_broken_off(finished):
    root, first = finished
    values = {"further": first.run, "duration": {"steps": 9}, "seed": 3}
    unbroken, broken = further_spec(root, **values), further_spec(root, **values, name="u")

    killed_at(broken, 8)
    result = train(broken, silent())
    assert result.resumed_from == (5,)
    assert result.weights_sha256 == train(unbroken, silent()).weights_sha256


def test_what_cannot_be_trained_further_is_refused(finished):
    root, first = finished
    with pytest.raises(SettingsError, match=r"further=u-0: .* has no finished training of that name"):
        train(further_spec(root, further="u-0"), silent())
    other = further_spec(root, further=first.run, model={"kind": "resnet", "width": 0.1})
    message = f"further={first.run}: that run's state does not fit this recipe: .* give the recipe the model"
    with pytest.raises(SettingsError, match=message):
        train(other, silent())
    with pytest.raises(SettingsError, match=message):
        preflight(PreflightSpec.model_validate(other.model_dump()), silent())


def test_a_base_without_its_last_checkpoint_is_named(tmp_path):
    publish_dataset(tmp_path)
    first = train(further_spec(tmp_path, duration={"steps": 3}), silent())
    for file in (tmp_path / first.folder / "checkpoints").iterdir():
        file.unlink()
    with pytest.raises(
        ArtifactError,
        match=f"further={first.run}: that run has no checkpoint, expected .*, 3",
    ):
        train(further_spec(tmp_path, further=first.run), silent())


KIND = "efficientnet-lite0"
LITE = PUBLISHED[KIND]
KEPT = f"weights/{LITE.checksum}/{LITE.file}"
PRETRAINED = lively_recipe(
    model={"kind": KIND, "weights": "imagenet"}, duration={"steps": 2}, ema_decay=0.0, trainable_layers=("classifier",)
)


@pytest.fixture(autouse=True)
def _few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficientnet_lite, "STAGES", efficientnet_lite.STAGES[:2])


def pretrained_spec(root: Path, **values: object) -> TrainSpec:
    return spec_of(root, recipe=PRETRAINED, **values)


def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: ())


def layers_of(root: Path) -> object:
    return published_weights.published_layers(open_store(str(root)), Pretrained(KIND), LITE.checksum)


def test_a_run_names_its_weights_and_another_takes_them_from_the_store(root: Path, monkeypatch: pytest.MonkeyPatch):
    first = pretrained_spec(root)
    train(first, silent())
    store, checked = open_store(str(root)), from_pytorch(read_weights(root / KEPT, (".pth",)))
    without_package(monkeypatch)
    second = pretrained_spec(root, seed=7)
    train(second, silent())
    for spec in (first, second):
        taken = read_initial_weights(store, spec.folder)
        assert (taken.file, taken.checksum, taken.published, taken.licence) == LITE._replace(
            licence=LITE.source, source=LITE.licence
        )
        assert {"stem_conv", "block2b_project_norm"} < set(taken.taken)
        with np.load(root / spec.folder / WEIGHTS) as weights:
            assert np.array_equal(weights["block2a_depthwise_conv/kernel"], checked["block2a_depthwise_conv"]["kernel"])
        description = ModelDescription.model_validate_json((root / spec.folder / DESCRIPTION).read_bytes())
        assert description.weights == f"{LITE.file} (Apache-2.0, published in {LITE.source})"
    (root / KEPT).write_bytes((root / KEPT).read_bytes() + b"\0")
    with pytest.raises(ArtifactError, match=r"another checksum than its folder's name; delete the file"):
        layers_of(root)


def test_a_file_of_ones_own_or_another_run_comes_first(root: Path, tmp_path: Path):
    own = tmp_path / "own.npz"
    np.savez(own, **{"classifier/bias": np.zeros(3)})
    named = pretrained_spec(root).recipe.init
    assert named == InitSettings(file=LITE.file, checksum=LITE.checksum, published=LITE.source, licence=LITE.licence)
    assert pretrained_spec(root, init=InitSettings(file=str(own))).recipe.init.file == str(own)
    assert pretrained_spec(root, init=named, further="t-0").recipe.init is None
    assert pretrained_spec(root, further="champion").recipe.init == named, "there is no champion yet"


def test_without_the_package_or_with_another_file_in_it_one_line_says_what_to_do(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    other = root / LITE.file
    other.write_bytes(b"another version")
    part = SimpleNamespace(name=LITE.file, locate=lambda: other)
    monkeypatch.setattr(importlib.metadata, "files", lambda _: [part])
    with pytest.raises(SettingsError, match=rf"^model\.weights: .*{LITE.file} has checksum \w+… vs 579344248a93… .*$"):
        layers_of(root)
    assert not (root / KEPT).exists()
    without_package(monkeypatch)
    with pytest.raises(SettingsError, match=rf"^model\.weights=imagenet needs {LITE.source}; .* install .*$"):
        layers_of(root)


def test_other_models_widths_and_checksums_are_refused(root: Path):
    with pytest.raises(ValueError, match=r"weights=imagenet with kind=resnet, expected kind=efficientnet-lite0 or"):
        PRETRAINED.changed(model={"kind": "resnet", "weights": "imagenet"})
    with pytest.raises(ValueError, match=r"weights=imagenet vs width=0.5: these weights are published for width 1"):
        PRETRAINED.changed(model={"kind": "mobilenetv3-small", "weights": "imagenet", "width": 0.5})
    with pytest.raises(SettingsError, match=r"got model.kind=my-vit, expected efficientnet-lite0 or .*--init FILE"):
        pretrained_spec(root, model={"kind": "my-vit", "weights": "imagenet"})
    with pytest.raises(SettingsError, match=r"got checksum 0{12}… in the recipe, expected 579344248a93…"):
        published_weights.published_layers(open_store(str(root)), Pretrained(KIND), "0" * 64)
