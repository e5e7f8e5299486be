"""Checks, once for each architecture of an installed package, that the published model equals the trained model.

The model is published into a temporary folder, and two new processes load it: Keras's names, and values that code
computes at import, may differ there. The store remembers the result, so later trainings of the architecture start
without the check.
"""

# pyright: standard
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from podline import __version__
from podline.base.arrays import Array
from podline.base.errors import ArtifactError, SettingsError
from podline.base.progress import Reporter
from podline.models.layer_copies import in_float32
from podline.models.of_run import loaded_network
from podline.models.variables import set_weights
from podline.recipes.parts import MODELS
from podline.recipes.settings import Recipe
from podline.settings.environment import cpu_environment
from podline.stages.specs import ARCHITECTURE, WEIGHTS
from podline.store import digests
from podline.store.contract import Store
from podline.store.folder import FolderStore, temporary_store
from podline.training.checkpoints import read_arrays
from podline.training.export import export_model, outputs_of, require_equal_answers

_PROCESSES = 2
_FOLDER, _IMAGES, _VARIABLES, _ANSWERS = "published", "images.npy", "variables-{}.json", "answers-{}.npz"
# Not the names of distributions: on a TPU, tensorflow-tpu provides the module tensorflow.
_VERSIONS = {"keras": keras.__version__, "tensorflow": tf.__version__, "podline": __version__}


def require_reloadable(store: Store, recipe: Recipe, model: keras.Model, images: Array, reporter: Reporter) -> None:
    """Check that a model of an installed package can be published and loaded; do nothing for Podline's own models.

    Args:
        store: the store, which remembers architectures that passed.
        recipe: the recipe of the model.
        model: the model; a few steps of training make differences visible.
        images: images (n, height, width, channels) for which outputs are compared.
        reporter: reports the check, which takes as long as TensorFlow takes to start.

    Raises:
        SettingsError: a variable or an output of the loaded model differs, or the model cannot be loaded.
    """
    if recipe.model.kind in MODELS.shipped:
        return
    described = {"architecture": model.to_json(), "code": recipe.code, "versions": _VERSIONS}
    name = f"architectures/{digests.of_json(described)}.json"
    if store.exists(name):
        return
    reporter.log(f"model {recipe.model.kind} is new: checking that {_PROCESSES} new processes can load it")
    try:
        with temporary_store(store, "published") as near:
            _check(near, recipe.model.kind, model, images)
    except ArtifactError as error:
        raise SettingsError(f"model {recipe.model.kind}: {error}") from error
    store.publish_json(name, {"model": recipe.model.kind, "code": recipe.code, "versions": _VERSIONS}, replace=True)


def _check(near: FolderStore, kind: str, model: keras.Model, images: Array) -> None:
    sha256 = export_model(near, _FOLDER, model, images)
    np.save(near.root / _IMAGES, images)
    command = [sys.executable, "-m", __name__, str(near.root), kind, sha256]
    running = [
        subprocess.Popen(  # noqa: S603 (this interpreter, this module)
            [*command, str(number)], env=cpu_environment(), stderr=subprocess.PIPE, text=True
        )
        for number in range(_PROCESSES)
    ]
    said = [process.communicate()[1] for process in running]  # wait for both, even if the first one fails
    variables = [(variable.path, _description(variable)) for variable in model.weights]
    answers = outputs_of(in_float32(model), images)
    for number, (process, errors) in enumerate(zip(running, said, strict=True)):
        if process.returncode:
            raise ArtifactError(f"the published model cannot be loaded in a new process: {_last_line(errors)}")
        loaded = json.loads((near.root / _VARIABLES.format(number)).read_text())
        for (path, before), after in zip(variables, loaded, strict=True):
            if before != after:
                raise ArtifactError(
                    f"variable {path} is {before[0]} {tuple(before[1])} after training, but a new process loads other "
                    f"values, {after[0]} {tuple(after[1])}; set the values in the layer's build() or by an initializer"
                )
        with np.load(near.root / _ANSWERS.format(number)) as file:
            require_equal_answers("the model in a new process", answers, [file[name] for name in file.files])


def _description(variable: keras.Variable) -> list[Any]:
    return [variable.dtype, list(variable.shape), digests.of_bytes(variable.numpy().tobytes())]


def _last_line(errors: str) -> str:
    lines = [line for line in errors.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "the process gave no reason"


def _main(arguments: Sequence[str]) -> None:
    """Load the published model in this new process; write its variables' digests, and its outputs."""
    folder, kind, sha256, number = arguments
    store = FolderStore(Path(folder))
    architecture = f"{_FOLDER}/{ARCHITECTURE}"
    model = loaded_network(store.read_bytes(architecture).decode(), kind, architecture)
    set_weights(model, read_arrays(store, f"{_FOLDER}/{WEIGHTS}", sha256))
    np.savez(store.root / _ANSWERS.format(number), *outputs_of(model, np.load(store.root / _IMAGES)))
    (store.root / _VARIABLES.format(number)).write_text(json.dumps([_description(each) for each in model.weights]))


if __name__ == "__main__":
    _main(sys.argv[1:])
