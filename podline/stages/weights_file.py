"""The checksum of a file of weights, or of a SavedModel's variables. Needs no TensorFlow."""

from __future__ import annotations

from pathlib import Path

from podline.errors import SettingsError
from podline.recipes.settings import InitSettings, Recipe
from podline.store import digests

VARIABLES = "variables"


def with_checksum(recipe: Recipe) -> Recipe:
    """Return a recipe whose file of weights is named by its checksum too; one that has none stays as it is.

    Raises:
        SettingsError: the file cannot be read.
    """
    init = recipe.init
    if init is None or init.sha256:
        return recipe
    file = str(Path(init.file).expanduser().absolute())
    return recipe.model_copy(update={"init": InitSettings(file=file, sha256=sha256_of(Path(file)))})


def sha256_of(file: Path) -> str:
    """Return the sha256 of a file, or of the variables of a SavedModel's folder.

    Raises:
        SettingsError: it cannot be read, or is another folder.
    """
    try:
        if not file.is_dir():
            return digests.of_file(file)
        parts = sorted(part for part in (file / VARIABLES).iterdir() if part.is_file())
        return digests.of_json([[part.name, digests.of_file(part)] for part in parts])
    except OSError as error:
        raise SettingsError(
            f"init={file} cannot be read: {error.strerror}; give a .keras, .weights.h5, .h5 or .npz file, or the "
            "folder of a SavedModel"
        ) from error
