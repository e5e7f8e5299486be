"""Installed code is part of what a run, an evaluation and a data set are named by."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.extending import install

from podline.base.errors import SettingsError
from podline.data.versions.fingerprint import fingerprint
from podline.recipes import datasets, registry
from podline.recipes.measures import ENTRY_POINTS
from podline.recipes.own_code import of_dataset, of_modules, require_unchanged, with_code
from podline.recipes.settings import Recipe
from podline.stages import from_recipe
from podline.stages.specs import ConvertSpec, TrainSpec

MODULES = {
    "mine_net": '''"""A model."""

from mine_layers import block
from podline.recipes.settings import Recipe


def network(shape, classes, settings):
    """Docstring."""
    return block(shape)


def hook(run):
    import mine_lazy


RECIPE = Recipe(name="mine", dataset="sample", model={"kind": "mine"})
''',
    "mine_layers": "def block(shape):\n    return 3\n",
    "mine_lazy": "A = 1\n",
    "mine_hooks": "class Log:\n    pass\n",
    "mine_chance": "def bright(images, chance, amount):\n    return images\n",
    "mine_files": "def open_files(dataset, source, settings, work):\n    raise OSError\n",
    "mine_data": 'from podline.recipes.datasets import DataSet\nDATA = DataSet("mine", open="mine_files:open_files")\n',
    "mine_measure": (
        "from podline.recipes.measures import Measure\nM = Measure('mine', 'mine', compute=lambda guesses: 0.5)\n"
    ),
    "unused": "A = 1\n",
}
TOML = """
[podline.models]
mine = mine_net:network
[podline.recipes]
mine = mine_net:RECIPE
[podline.hooks]
mine = mine_hooks:Log
[podline.augmentations]
mine = mine_chance:bright
[podline.datasets]
mine = mine_data:DATA
[podline.measures]
mine = mine_measure:M
"""
Edit = Callable[[str, str, str], None]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = install(tmp_path / "site", MODULES, TOML)
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def edit(site: Path) -> Edit:
    def replace(module: str, before: str, after: str) -> None:
        file = site / f"{module}.py"
        assert before in file.read_text()
        file.write_text(file.read_text().replace(before, after))

    return replace


def recipe() -> Recipe:
    return registry.override(registry.get("mine"), {"hooks": ["mine"], "augmentation.also": {"mine": 1}})


def run() -> str:
    return TrainSpec(root="r", recipe=with_code(recipe()), fingerprint="f").run


@pytest.mark.parametrize(
    ("module", "before", "after"),
    [
        ("mine_lazy", "A = 1", "A = 2"),
        ("mine_hooks", "pass", "reads = ('loss',)"),
        ("mine_chance", "return images", "return images[::-1]"),
    ],
)
def test_edited_code_is_another_run(edit: Edit, module: str, before: str, after: str) -> None:
    first = run()
    edit(module, before, after)
    assert run() != first


@pytest.mark.parametrize(
    ("module", "before", "after"),
    [
        ("mine_net", '"""Docstring."""', '"""Another."""  # a comment'),
        ("mine_net", 'model={"kind": "mine"})', 'model={"kind": "mine"}, promotion={"seeds": 3})'),
        ("mine_measure", "0.5", "0.6"),
        ("mine_files", "raise OSError", "raise ValueError"),
        ("unused", "A = 1", "A = 2"),
    ],
)
def test_what_training_does_not_run_changes_nothing(edit: Edit, module: str, before: str, after: str) -> None:
    first = run()
    edit(module, before, after)
    assert run() == first


def test_nothing_is_imported_and_every_part_is_named(site: Path) -> None:
    asked = recipe()
    for name in MODULES:
        sys.modules.pop(name, None)
    assert set(with_code(asked).code) == {"model mine", "augmentation mine", "hook mine"}
    assert not MODULES.keys() & sys.modules.keys()
    assert with_code(registry.get("cifar10")) == registry.get("cifar10"), "Podline's own parts add nothing"
    assert of_dataset(datasets.find("cifar10")) == ""


def test_a_run_is_not_trained_with_other_code_and_other_values_take_the_code_as_it_is(edit: Edit) -> None:
    named = with_code(recipe())
    require_unchanged(named)
    edit("mine_layers", "return 3", "return 4")
    assert with_code(named) == named
    with pytest.raises(SettingsError, match=r"model mine: .*to begin a new run"):
        require_unchanged(named)
    require_unchanged(with_code(registry.override(named, {"seed": 1})))


def test_an_edited_measure_is_evaluated_again_and_an_edited_reader_converted_again(edit: Edit) -> None:
    spec = ConvertSpec(root="r", dataset="mine", source="s")
    measures, converted = from_recipe._code_of(ENTRY_POINTS), fingerprint(spec, [])
    edit("mine_measure", "0.5", "0.6")
    assert from_recipe._code_of(ENTRY_POINTS) != measures
    assert fingerprint(spec, []) == converted
    edit("mine_files", "raise OSError", "raise ValueError")
    assert fingerprint(spec, []) != converted


def test_a_package_counts_with_what_its_modules_import_relatively_and_with_compiled_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "__init__.py": "raise RuntimeError",
        "net.py": "from . import parts\nfrom .deep import fast\nimport numpy",
        "parts.py": "A = 1",
        "deep/__init__.py": "",
        "deep/fast.so": "compiled",
        "other.py": "A = 1",
    }
    site = tmp_path / "site-packages"
    for name, text in files.items():
        (site / "mine_package" / name).parent.mkdir(parents=True, exist_ok=True)
        (site / "mine_package" / name).write_text(text)
    (site / "numpy_like.py").write_text("A = 1")
    monkeypatch.syspath_prepend(site)
    seen = [of_modules(["mine_package.net"])]
    for name in ("parts.py", "deep/fast.so", "__init__.py"):
        (site / "mine_package" / name).write_text("A = 2")
        seen.append(of_modules(["mine_package.net"]))
    assert len(set(seen)) == len(seen)
    (site / "mine_package/other.py").write_text("A = 2")
    assert of_modules(["mine_package.net"]) == seen[-1]
