"""docs/how-to/parts.md's augmentation, loss and hook, in installed packages: trained with and killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import keras
import numpy as np
import pytest
from support.extending import code_of, install

from podline.base.errors import PreemptedError, SettingsError
from podline.documents.manifest import Manifest
from podline.input import augmentation
from podline.input.augmentation import augmented
from podline.kinds.classification import objective
from podline.kinds.classification.objective import ClassificationObjective
from podline.recipes import registry
from podline.recipes.parts import HOOKS, MODELS
from podline.recipes.settings import AugmentationSettings, LossSettings
from podline.training.hooks import InstalledHook
from podline.training.loop import Hook, StepsDone, Stretch, run_loop

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
    with pytest.raises(SettingsError, match=r"gives .*'label': 'float64 \(3,\)'.* vs .*'label': 'int64 \(3,\)'"):
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
    with pytest.raises(SettingsError, match=r"task\.label_smoothing=0\.1 vs loss\.kind=poly"):
        registry.override(recipe, {"task.label_smoothing": 0.1})


def test_a_loss_that_fails_or_gives_one_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, logits = {"label": np.zeros(2, np.int64)}, np.zeros((2, 3), np.float32)
    for loss, words in ((lambda *_: 1 / 0, "ZeroDivisionError"), (lambda *_: 1.0, r"gives shape \(\) vs \(n,\)")):
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
