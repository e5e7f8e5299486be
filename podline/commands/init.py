"""``podline init``: writes a new project with a recipe and a model of the user's own."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from podline.commands import pages
from podline.commands.options import say
from podline.errors import SettingsError
from podline.recipes import registry
from podline.recipes.parts import MODELS

_SUFFIX = ".template"
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@click.command("init", cls=pages.Command)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
def init(folder: Path) -> None:
    """Write a project: recipe, model in plain Keras, prefect.yaml, test, README, Makefile.

    DIR is created; its name becomes the name of the recipe and the model. A folder with files is refused. The project
    is a package; `make` installs it beside Podline, so that commands and forms know its names.

      podline init my_project
      cd my_project && make run

    Next: the README in it.
    """
    name = folder.absolute().name
    package = name.replace("-", "_")
    _require_empty(folder)
    _require_name(name, package)
    # A virtual environment's Python is a link, which must not be followed.
    values = {"name": name, "package": package, "python": str(Path(sys.executable).absolute())}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = [_write(template.name, template.read_text(encoding="utf-8"), folder, values) for template in _all()]
    except OSError as error:
        raise SettingsError(f"{folder} cannot be written: {error.strerror}") from error
    say([*written, f"next: cd {folder} && make run"])


def _all() -> list[Any]:
    return sorted((files("podline") / "templates" / "project").iterdir(), key=lambda template: template.name)


def _write(template: str, text: str, folder: Path, values: dict[str, str]) -> str:
    """Write a file of the project; return its path."""
    # A template name with a dot would become a hidden file in a checkout of Podline.
    target = template.removesuffix(_SUFFIX).replace("gitignore", ".gitignore")
    file = folder / target.replace("PACKAGE", values["package"])
    for name, value in values.items():
        text = text.replace("{{ " + name + " }}", value)
    file.write_text(text, encoding="utf-8")
    return str(file)


def _require_name(name: str, package: str) -> None:
    taken = {"podline", *keyword.kwlist, *sys.stdlib_module_names}
    if not _NAME.fullmatch(name) or package in taken:
        raise SettingsError(
            f"got the name {name!r}, expected small letters, digits, - and _, a letter first, and no keyword or "
            "module of Python; it becomes the name of a recipe and a module"
        )
    recipes, models = registry.names(), MODELS.names()
    if name in recipes or name in models:
        what = "recipe" if name in recipes else "model"
        raise SettingsError(f"there is a {what} {name!r} already; give the folder another name")


def _require_empty(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise SettingsError(f"{folder} is not empty; give a new folder")
