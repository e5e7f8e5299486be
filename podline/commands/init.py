"""``podline init``: writes a new project, a package with a recipe and a model."""

from __future__ import annotations

import importlib.util
import json
import keyword
import re
import shlex
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click

from podline.base.errors import SettingsError
from podline.commands import pages
from podline.commands.options import say
from podline.recipes import registry
from podline.recipes.parts import MODELS

_SUFFIX = ".template"
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@click.command("init", cls=pages.Command)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
def init(folder: Path) -> None:
    """Write a project: recipe, model in plain Keras, prefect.yaml, test, README, Makefile.

    DIR is created; its name becomes the name of the recipe and of the model. The command refuses a folder with files,
    and the name of an installed package, recipe or model. The project is a Python package; `make` installs it, so that
    Podline's commands and forms offer its recipe and model.

      podline init my_project
      cd my_project && make run

    Next: read the README in DIR.
    """
    name = folder.absolute().name
    package = name.replace("-", "_")
    if folder.exists() and any(folder.iterdir()):
        raise SettingsError(f"{folder} is not empty; give a new folder")
    _require_name(name, package, folder)
    # A virtual environment's Python is a link, which must not be followed. $ and # are special in a Makefile.
    python = str(Path(sys.executable).absolute()).replace("$", "$$").replace("#", r"\#")
    values = {"name": name, "package": package, "python": python}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        templates = sorted((files("podline.commands") / "templates" / "project").iterdir(), key=lambda each: each.name)
        written = [_write(each.name, each.read_text(encoding="utf-8"), folder, values) for each in templates]
    except OSError as error:
        raise SettingsError(f"{folder} cannot be written: {error.strerror}") from error
    say([*written, f"next: cd {shlex.quote(str(folder))} && make run"])


def _write(template: str, text: str, folder: Path, values: dict[str, str]) -> str:
    """Write a file of the project; return its path."""
    # A template name with a dot would become a hidden file in a checkout of Podline.
    target = template.removesuffix(_SUFFIX).replace("gitignore", ".gitignore")
    file = folder / target.replace("PACKAGE", values["package"])
    for name, value in values.items():
        text = text.replace("{{ " + name + " }}", value)
    file.write_text(text, encoding="utf-8")
    return str(file)


def _require_name(name: str, package: str, folder: Path) -> None:
    if not _NAME.fullmatch(name) or package in {"podline", *keyword.kwlist, *sys.stdlib_module_names}:
        raise SettingsError(
            f"got the folder name {name!r}, expected small letters, digits, - and _, with a letter first, and not a "
            "keyword or standard module of Python, because it becomes the name of a module"
        )
    if (owner := _owner(package, folder)) is None:  # the project is installed from this folder
        return
    recipes, models = registry.names(), MODELS.names()
    if name in recipes or name in models:
        owner = f"a {'recipe' if name in recipes else 'model'} {name!r} exists already"
    if owner:
        raise SettingsError(f"{owner}; give the folder another name")


def _owner(package: str, folder: Path) -> str | None:
    """Describe the installed package or module with this name.

    Empty if there is none; None if it is this project, installed from the same folder. Installing a second package with
    the same name would remove the first. Nothing is imported.
    """
    with suppress(PackageNotFoundError):
        found = distribution(package)  # compares normalised names
        if _origin(found.read_text("direct_url.json")) == folder.resolve():
            return None
        return f"a package {found.name} {found.version} is already installed"
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or [spec.origin or ""]) if spec else []
    # The new folder itself counts as a namespace package if it is in the working folder.
    other = [place for place in places if Path(place).absolute() != folder.absolute()]
    return f"a Python module {package!r} exists already ({other[0] or 'built in'})" if other else ""


def _origin(direct_url: str | None) -> Path | None:
    """Return the folder from which a package was installed, or None; see PEP 610."""
    url = urlsplit(json.loads(direct_url)["url"]) if direct_url else None
    return Path(unquote(url.path)).resolve() if url and url.scheme == "file" else None
