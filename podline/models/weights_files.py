"""Reads weights by layer name from files of other programs: ``.keras``, ``.weights.h5``, ``.npz``, ``.pth``.

A child process with limits parses them (:mod:`podline.models.weights_parsing`) and passes plain arrays.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from podline.base.arrays import Array
from podline.base.errors import ArtifactError, SettingsError, SourceError
from podline.data.sandbox.limits import limits_of
from podline.data.sandbox.pool import confined
from podline.models.weights_parsing import write_arrays

Layers = dict[str, dict[str, Array]]
"""Layer → variable → values. A variable has its name or, in files of Keras 3, its number: ``0``, ``1`` …"""

_KINDS = (".keras", ".h5", ".npz")


def read_weights(file: Path, kinds: Sequence[str] = _KINDS) -> Layers:
    """Return the floating-point weights of a file; a layer within another is named ``outer/inner``.

    Args:
        file: the file to read.
        kinds: the allowed suffixes.

    Raises:
        SettingsError: the file's suffix is not in ``kinds``.
        ArtifactError: the file cannot be read, is damaged, refers to other files, has no names of layers, or exceeds
            the limits of memory or time.
    """
    kind = file.suffix
    if kind not in kinds:
        raise SettingsError(f"init={file}: got {kind or 'no suffix'}, expected .keras, .weights.h5 or .npz")
    layers: Layers = {}
    try:
        size = file.stat().st_size
        limits = limits_of(size, memory=3.0)
        with tempfile.TemporaryDirectory(prefix="podline-weights-") as folder:
            paths = confined(write_arrays, file, size, Path(folder), what=f"init={file}", limits=limits)
            for number, path in enumerate(paths):
                owner, _, variable = path.rpartition("/")
                layers.setdefault(owner, {})[variable] = np.load(f"{folder}/{number}.npy", allow_pickle=False)
    except SourceError as error:
        raise ArtifactError(str(error)) from error
    except OSError as error:
        raise ArtifactError(f"init={file} cannot be read: {error.strerror or error}") from error
    return layers
