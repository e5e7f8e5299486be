"""docs/how-to/parts.md's augmentation, loss and hook, in installed packages: trained with and killed."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from support.extending import code_of, install

from podline.documents.manifest import Manifest
from podline.errors import SettingsError
from podline.input import augmentation
from podline.input.augmentation import augmented
from podline.kinds.classification import objective
from podline.kinds.classification.objective import Classification
from podline.recipes import registry
from podline.recipes.parts import HOOKS, Registry
from podline.recipes.settings import AugmentationSettings, LossSettings

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
    with pytest.raises(SettingsError, match=r"augmentation brightness='much': (TypeError|UFuncTypeError): "):
        made(3, AugmentationSettings(also={"brightness": "much"}))
    with pytest.raises(SettingsError, match="there is no augmentation 'fog'; known: brightness"):
        made(3, AugmentationSettings(also={"fog": 1}))
    monkeypatch.setattr(augmentation, "_installed", lambda _name: lambda batch, *_: batch | {"label": np.zeros(3)})
    with pytest.raises(SettingsError, match=r"gives .*'label': 'float64 \(3,\)'.* vs .*'label': 'int64 \(3,\)'"):
        made(3)


@pytest.mark.usefixtures("brightness")
def test_a_loss_of_one_s_own_is_trained_with_and_evaluated() -> None:
    logits, labels = np.array([[2.0, 0.0], [0.0, 0.0]], np.float32), np.array([0, 1])
    objective = Classification(settings=LossSettings(kind="poly", options={"epsilon": 2}))
    shares = np.array([np.exp(2) / (1 + np.exp(2)), 0.5])
    for each in (objective, objective.evaluated):
        [found] = each.terms({"label": labels}, logits).values()
        np.testing.assert_allclose(found, 2 * (1 - shares) - np.log(shares), rtol=1e-5)
    recipe = registry.override(
        registry.get("mnist"), {"task.label_smoothing": 0, "loss.kind": "poly", "loss.options.epsilon": 1}
    )
    assert recipe.loss.options == {"epsilon": 1}
    with pytest.raises(SettingsError, match=r"task\.label_smoothing=0\.1 vs loss\.kind=poly"):
        registry.override(recipe, {"task.label_smoothing": 0.1})
    with pytest.raises(SettingsError, match="there is no loss 'pole'; did you mean 'poly'"):
        registry.override(recipe, {"loss.kind": "pole"})


def test_a_loss_that_fails_or_gives_one_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, logits = {"label": np.zeros(2, np.int64)}, np.zeros((2, 3), np.float32)
    for loss, words in ((lambda *_: 1 / 0, "ZeroDivisionError"), (lambda *_: 1.0, r"gives shape \(\) vs \(n,\)")):
        monkeypatch.setattr(objective, "cross_entropy", loss)
        with pytest.raises(SettingsError, match=f"loss cross_entropy.*{words}"):
            Classification().terms(batch, logits)


@pytest.mark.usefixtures("brightness")
def test_a_training_has_both_and_its_name_says_so(answered: Any, podline: Any) -> None:
    answered("convert", "sample", "--source", "drawn")
    short = ("train", "sample", "--steps", "4", "--set", "model.width=0.25")
    own = ("--set", 'augmentation.also={"brightness": 30}', "--set", 'hooks=["memory"]')
    assert "hooks" not in answered(*short, "--show-spec")["recipe"]
    told = podline(*short, *own, "--root", "root").err
    assert "step 4: " in told
    assert " MB at most" in told
    again, plain = answered(*short, *own), answered(*short, "--show-spec")
    assert again["reused"]
    assert again["run"] != plain.get("run")
    error = answered(*short, "--set", 'hooks=["fog"]', code=2)["error"]
    assert error["message"].startswith("there is no hook 'fog'; known: memory")


def test_a_hook_that_cannot_be_made_or_found_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r"there is no hook 'x'; no installed package adds one \(podline.no\)"):
        Registry[object]("hook", "podline.no").load("x")
    monkeypatch.setattr(Registry, "load", lambda *_arguments: lambda _run: 1 / 0)
    with pytest.raises(SettingsError, match="hook board: ZeroDivisionError"):
        HOOKS.call("board", object())
