"""Reads weights from other programs' files by layer names: ``.keras``, ``.h5``, ``.npz``, a SavedModel's variables.

A child process with limits parses them (:mod:`podline.models.weights_parsing`) and passes plain arrays.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from podline.arrays import Array
from podline.data.sandbox.limits import Limits, limits_of
from podline.data.sandbox.pool import confined
from podline.errors import ArtifactError, SettingsError, SourceError

Layers = dict[str, dict[str, Array]]
"""Layer → variable → values. A variable is its name, or its number in Keras 3's files: ``0``, ``1`` …"""

_FOLDER = "folder"
_KINDS = (".keras", ".h5", ".npz", _FOLDER)
_TENSORFLOW = Limits(512_000_000, 20.0)  # for the start of TensorFlow


def read_weights(file: Path, kinds: Sequence[str] = _KINDS) -> Layers:
    """Return the floating-point weights of a file; a layer within another is named ``outer/inner``.

    Args:
        file: the file, or the folder of a SavedModel.
        kinds: the suffixes that it may have.

    Raises:
        SettingsError: the file's name has none of the known endings.
        ArtifactError: the file cannot be read, is damaged, refers to other files, has no names of layers, or exceeds
            the limits of memory or time.
    """
    kind = _FOLDER if file.is_dir() else file.suffix
    if kind not in kinds:
        raise SettingsError(
            f"init={file}: {kind or 'no suffix'} vs .keras, .weights.h5, .h5 or .npz, or the folder of a SavedModel"
        )
    layers: Layers = {}
    try:
        size = sum(part.lstat().st_size for part in ([file] if kind != _FOLDER else file.rglob("*")))
        limits = limits_of(size, memory=3.0)
        if kind == _FOLDER:
            limits = Limits(limits.memory + _TENSORFLOW.memory, limits.seconds + _TENSORFLOW.seconds)
        with tempfile.TemporaryDirectory(prefix="podline-weights-") as folder:
            paths = confined(
                "podline.models.weights_parsing:write_arrays",
                *(file, kind, size, Path(folder)),
                what=f"init={file}",
                limits=limits,
            )
            for number, path in enumerate(paths):
                owner, _, variable = path.rpartition("/")
                layers.setdefault(owner, {})[variable] = np.load(f"{folder}/{number}.npy", allow_pickle=False)
    except SourceError as error:
        raise ArtifactError(str(error)) from error
    except OSError as error:
        raise ArtifactError(f"init={file} cannot be read: {error.strerror or error}") from error
    return layers
