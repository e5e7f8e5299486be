"""Weights in other programs' files, by the names of layers: ``.keras``, ``.h5``, ``.npz``, a SavedModel's variables.

Nothing of a file is executed: no class of it is imported, no graph is loaded. Keras's published ``.h5`` files have the
layout of Keras 2, what Keras 3 saves has another; both are read.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from podline.entry_points import reason
from podline.errors import ArtifactError, SettingsError

Layers = dict[str, dict[str, npt.NDArray[Any]]]
"""Layer → variable → values. A variable is its name, or its place as Keras 3 writes it: ``0``, ``1`` …"""

_IN_KERAS = "model.weights.h5"


def read_weights(file: Path) -> Layers:
    """The floating-point weights of a file; a layer within another is named ``outer/inner``.

    Raises:
        SettingsError: the file's name tells of none of the formats.
        ArtifactError: it cannot be read, is damaged, or has no names of layers.
    """
    suffix = "" if file.is_dir() else file.suffix
    if suffix not in _READERS:
        raise SettingsError(
            f"init={file}: {suffix or 'no suffix'} vs .keras, .weights.h5, .h5 or .npz, or the folder of a SavedModel"
        )
    layers: Layers = {}
    try:
        for path, values in _READERS[suffix](file):
            if np.issubdtype(values.dtype, np.floating):  # not the states of generators
                owner, _, variable = path.rpartition("/")
                layers.setdefault(owner, {})[variable] = values
    except ArtifactError:
        raise
    except Exception as error:
        raise ArtifactError(f"init={file} is damaged or no file of weights: {reason(error)}") from error
    return layers


def _of_npz(file: Path) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
        yield from arrays.items()


def _of_keras(file: Path) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    with zipfile.ZipFile(file) as archive:
        yield from _of_h5(io.BytesIO(archive.read(_IN_KERAS)), file)


def _of_h5(content: Any, file: Path | None = None) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    with h5py.File(content, "r") as h5:
        legacy: Any = h5.get("model_weights", h5)
        if "layer_names" in legacy.attrs:
            yield from _of_keras2(legacy)
        else:
            yield from _of_keras3(h5, file or content)


def _of_keras2(h5: Any) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """A group for each layer, whose attribute ``weight_names`` has the names of its variables in their order."""
    for layer in map(_text, h5.attrs["layer_names"]):
        for name in map(_text, h5[layer].attrs["weight_names"]):
            path = name.removesuffix(":0")
            yield path if "/" in path else f"{layer}/{path}", h5[layer][name][()]


def _of_keras3(h5: Any, file: Any) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """A group ``vars`` for each layer, with the layer's name as an attribute and its variables by number."""
    groups: dict[str, Any] = {}

    def keep(path: str, found: Any) -> None:
        if isinstance(found, h5py.Group) and path.endswith("/vars"):
            groups[path.removesuffix("/vars")] = found

    h5.visititems(keep)
    names = {path: _text(group.attrs["name"]) for path, group in groups.items() if "name" in group.attrs}
    for path, group in groups.items():
        if path.startswith("optimizer"):
            continue
        if len(group) and path not in names:
            raise ArtifactError(
                f"init={file}: {path} has no name of a layer, as in files of early versions of Keras 3; load it and "
                f"save it again with Keras {keras.__version__}"
            )
        outer = [names[above] for above in sorted(names, key=len) if f"{path}/".startswith(f"{above}/")]
        for number in sorted(group, key=int):
            yield f"{'/'.join(outer)}/{number}", group[number][()]


def _of_saved_model(folder: Path) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The checkpoint of a SavedModel, whose graph of objects has the variables' full names."""
    checkpoint: Any = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    graph = TrackableObjectGraph.FromString(checkpoint.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    for node in graph.nodes:
        for attribute in node.attributes:
            if attribute.full_name and checkpoint.has_tensor(attribute.checkpoint_key):
                yield attribute.full_name, checkpoint.get_tensor(attribute.checkpoint_key)


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


_READERS: dict[str, Callable[[Path], Iterator[tuple[str, npt.NDArray[Any]]]]] = {
    ".npz": _of_npz,
    ".keras": _of_keras,
    ".h5": _of_h5,
    "": _of_saved_model,
}
