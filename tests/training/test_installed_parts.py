"""docs/extending.md's augmentation and hook, in packages that are really installed: trained with, killed, shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.extending import code_of, install

from podline.errors import SettingsError
from podline.input import augmentation
from podline.input.augmentation import augment
from podline.recipes.parts import HOOKS, Registry
from podline.recipes.settings import AugmentationSettings

SETTINGS = AugmentationSettings(pad=2, also={"brightness": 30})


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages with the page's two."""
    folder = tmp_path_factory.mktemp("site")
    for heading, name in (("## An augmentation", "my_augmentations"), ("## A hook", "my_hooks")):
        install(folder, {name: code_of(heading, "python")}, code_of(heading, "toml"))
    return folder


@pytest.fixture
def brightness(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's augmentation, as this process knows it."""
    monkeypatch.syspath_prepend(packages)


def images(count: int) -> np.ndarray:
    """Grey images, uint8, (count, 8, 8, 3)."""
    return np.full((count, 8, 8, 3), 128, np.uint8)


@pytest.mark.usefixtures("brightness")
def test_an_example_s_picture_is_the_same_in_whatever_batch_it_is() -> None:
    ids, fill = np.arange(300), np.zeros(3, np.uint8)
    whole = augment(images(300), ids, SETTINGS, 1, 0, fill)
    alone = augment(images(1), ids[17:18], SETTINGS, 1, 0, fill)
    np.testing.assert_array_equal(whole[17], alone[0])
    levels = np.unique(whole[:, 0, 0, 0])
    assert levels.min() >= 98
    assert levels.max() <= 158
    assert len(levels) > 50
    other_epoch = augment(images(300), ids, SETTINGS, 1, 1, fill)
    assert (other_epoch != whole).any()


@pytest.mark.usefixtures("brightness")
def test_what_gives_other_arrays_or_fails_or_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, fill = np.arange(3), np.zeros(3, np.uint8)
    with pytest.raises(SettingsError, match=r"augmentation brightness='much': (TypeError|UFuncTypeError): "):
        augment(images(3), ids, AugmentationSettings(also={"brightness": "much"}), 1, 0, fill)
    with pytest.raises(SettingsError, match="there is no augmentation 'fog'; known: brightness"):
        augment(images(3), ids, AugmentationSettings(also={"fog": 1}), 1, 0, fill)
    monkeypatch.setattr(augmentation, "_installed", lambda _name: lambda images, _chance, _amount: images[:, :4])
    with pytest.raises(SettingsError, match=r"gives uint8 \(3, 4, 8, 3\) vs uint8 \(3, 8, 8, 3\): it must keep both"):
        augment(images(3), ids, SETTINGS, 1, 0, fill)


def test_a_recipe_without_one_says_nothing_of_it() -> None:
    assert "also" not in AugmentationSettings().model_dump()


def test_nothing_installed_is_said() -> None:
    with pytest.raises(
        SettingsError, match=r"there is no hook 'x'; no package is installed that adds one \(podline.no\)"
    ):
        Registry[object]("hook", "podline.no").load("x")


def podline(folder: Path, packages: Path, *words: str, code: int = 0) -> tuple[Any, str]:
    """The document that a command prints, and what it says of its progress."""
    done = subprocess.run(
        [sys.executable, "-m", "podline.cli", *words, "--root", "root", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(packages)},
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_training_has_both_and_its_name_says_so(packages: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "podline.cli", "data", "draw", "drawn", "--train", "400"], check=True, cwd=tmp_path
    )
    podline(tmp_path, packages, "convert", "sample", "--source", "drawn")
    short = ("--steps", "40", "--set", "model.width=0.25")
    own = ("--set", 'augmentation.also={"brightness": 30}', "--set", 'hooks=["memory"]')
    plain = podline(tmp_path, packages, "train", "sample", *short, "--show-spec")[0]
    assert "hooks" not in plain["recipe"]
    trained, told = podline(tmp_path, packages, "train", "sample", *short, *own)
    assert "step 40: " in told
    assert " MB at most" in told
    found = podline(tmp_path, packages, "train", "sample", *short, *own)[0]
    assert (found["run"], found["reused"]) == (trained["run"], True)
    error = podline(tmp_path, packages, "train", "sample", *short, "--set", 'hooks=["fog"]', code=2)[0]["error"]
    assert error["message"].startswith("there is no hook 'fog'; known: memory")


def test_a_hook_that_cannot_be_made_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_run: Any) -> Any:
        raise OSError("no such board")

    monkeypatch.setattr(Registry, "load", lambda *_arguments: failing)
    with pytest.raises(SettingsError, match="hook board: OSError: no such board"):
        HOOKS.call("board", object())
