"""Published weights: fetched once, kept in the store by checksum, named wherever a run is described."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from dying_runs import lively_recipe
from small_dataset import FINGERPRINT

from podline.base.errors import ArtifactError, SettingsError
from podline.base.progress import silent
from podline.documents.initial_weights import read_initial_weights
from podline.documents.model_description import DESCRIPTION, ModelDescription
from podline.models import efficientnet_lite, published_weights
from podline.models.efficientnet_lite import from_pytorch
from podline.models.weights_files import read_weights
from podline.recipes.published_weights import PUBLISHED, Pretrained
from podline.recipes.settings import InitSettings
from podline.stages.from_recipe import training_spec
from podline.stages.specs import WEIGHTS, TrainSpec
from podline.store.opening import open_store
from podline.training.train import train

KIND = "efficientnet-lite0"
LITE = PUBLISHED[KIND]
KEPT = f"weights/{LITE.checksum}/{LITE.file}"
RECIPE = lively_recipe(
    model={"kind": KIND, "weights": "imagenet"}, duration={"steps": 2}, ema_decay=0.0, trainable_layers=("classifier",)
)


@pytest.fixture(autouse=True)
def _few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficientnet_lite, "STAGES", efficientnet_lite.STAGES[:2])


def spec_of(root: Path, **values: object) -> TrainSpec:
    return training_spec(open_store(str(root)), RECIPE.changed(**values), FINGERPRINT, "cpu").changed(preflight=False)


def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: ())


def layers_of(root: Path) -> object:
    return published_weights.published_layers(open_store(str(root)), Pretrained(KIND), LITE.checksum)


def test_a_run_names_its_weights_and_another_takes_them_from_the_store(root: Path, monkeypatch: pytest.MonkeyPatch):
    first = spec_of(root)
    train(first, silent())
    store, checked = open_store(str(root)), from_pytorch(read_weights(root / KEPT, (".pth",)))
    without_package(monkeypatch)
    second = spec_of(root, seed=7)
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
    with pytest.raises(ArtifactError, match=r"another checksum than its folder; delete it"):
        layers_of(root)


def test_a_file_of_ones_own_or_another_run_comes_first(root: Path, tmp_path: Path):
    own = tmp_path / "own.npz"
    np.savez(own, **{"classifier/bias": np.zeros(3)})
    named = spec_of(root).recipe.init
    assert named == InitSettings(file=LITE.file, checksum=LITE.checksum, published=LITE.source, licence=LITE.licence)
    assert spec_of(root, init=InitSettings(file=str(own))).recipe.init.file == str(own)
    assert spec_of(root, init=named, further="t-0").recipe.init is None
    assert spec_of(root, further="champion").recipe.init == named, "there is no champion yet"


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
    with pytest.raises(SettingsError, match=rf"^model\.weights=imagenet: got no {LITE.source}, .* install .*$"):
        layers_of(root)


def test_other_models_widths_and_checksums_are_refused(root: Path):
    with pytest.raises(ValueError, match=r"weights=imagenet with kind=resnet, expected kind=efficientnet-lite0 or"):
        RECIPE.changed(model={"kind": "resnet", "weights": "imagenet"})
    with pytest.raises(ValueError, match=r"weights=imagenet vs width=0.5: they are published for width 1"):
        RECIPE.changed(model={"kind": "mobilenetv3-small", "weights": "imagenet", "width": 0.5})
    with pytest.raises(SettingsError, match=r"got model.kind=my-vit, expected efficientnet-lite0 or .*--init FILE"):
        spec_of(root, model={"kind": "my-vit", "weights": "imagenet"})
    with pytest.raises(SettingsError, match=r"got checksum 0{12}… in the recipe, expected 579344248a93…"):
        published_weights.published_layers(open_store(str(root)), Pretrained(KIND), "0" * 64)
