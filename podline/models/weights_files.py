"""Weights in other programs' files, by the names of layers: ``.keras``, ``.h5``, ``.npz``, a SavedModel's variables.

Nothing of a file is executed: no class of it is imported, no graph is loaded. Nothing outside it is read: HDF5's links,
external data sets and virtual data sets may name any file of the user. They are refused before a value is read, as
``safe_get_h5_dataset`` of Keras does (keras/src/saving/saving_lib.py). Keras's published ``.h5`` files have the layout
of Keras 2, what Keras 3 saves has another; both are read.
"""

from __future__ import annotations

import io
import itertools
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

from podline.data.sources import bounds
from podline.entry_points import reason
from podline.errors import ArtifactError, SettingsError

Layers = dict[str, dict[str, npt.NDArray[Any]]]
"""Layer → variable → values. A variable is its name, or its place as Keras 3 writes it: ``0``, ``1`` …"""

_IN_KERAS = "model.weights.h5"
_DEEPEST = 100  # groups within groups; a layer within a layer takes two or three


def read_weights(file: Path) -> Layers:
    """The floating-point weights of a file; a layer within another is named ``outer/inner``.

    Raises:
        SettingsError: the file's name tells of none of the formats.
        ArtifactError: it cannot be read, is damaged, leads to other files, or has no names of layers.
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
        member = archive.getinfo(_IN_KERAS)
        most = bounds.unpacked(member.compress_size)
        if member.file_size > most:
            raise ArtifactError(f"init={file}: {_IN_KERAS} has {member.file_size:,} bytes vs {most:,} at most")
        yield from _of_h5(io.BytesIO(archive.read(member)), file)


def _of_h5(content: Any, file: Path | None = None) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    with h5py.File(content, "r") as h5:
        shown = file or content
        objects = dict(_objects(h5["/"], shown))
        declared = sum(found.nbytes for found in objects.values() if isinstance(found, h5py.Dataset))
        most = bounds.UNPACKED_FREE + bounds.DEFLATED_RATIO * h5.id.get_filesize()
        if declared > most:
            raise ArtifactError(f"init={shown} declares {declared:,} bytes of arrays vs {most:,} at most in its size")
        legacy: Any = h5.get("model_weights", h5)
        if "layer_names" in legacy.attrs:
            yield from _of_keras2(legacy)
        else:
            yield from _of_keras3(objects, shown)


def _objects(group: Any, file: Any, above: str = "", seen: set[Any] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield each object of an HDF5 file with its path; refuse what leads out of the file, or to an object again.

    Raises:
        ArtifactError: a link is not a hard link, a data set's values are elsewhere, an object has two paths, or groups
            are nested too deeply.
    """
    seen = seen or {group}
    for name in group:
        path = f"{above}{name}"
        link = group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise _refused(file, path, f"a link ({type(link).__name__}) to {getattr(link, 'filename', '')} {link.path}")
        found = group[name]
        if found in seen or path.count("/") > _DEEPEST:
            raise _refused(file, path, "a second link to an object, or nested too deeply")
        seen.add(found)
        if isinstance(found, h5py.Dataset):
            if found.external:
                raise _refused(file, path, f"external: its values are in {found.external[0][0]}")
            if found.is_virtual:
                sources = ", ".join(sorted({source.file_name for source in found.virtual_sources()}))
                raise _refused(file, path, f"virtual: its values are in {sources}")
        yield path, found
        if isinstance(found, h5py.Group):
            yield from _objects(found, file, f"{path}/", seen)


def _refused(file: Any, path: str, what: str) -> ArtifactError:
    return ArtifactError(
        f"init={file}: {path} is {what} vs weights in the file itself; save the model again, with model.save_weights"
    )


def _of_keras2(h5: Any) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """A group for each layer, whose attribute ``weight_names`` has the names of its variables in their order."""
    for layer in map(_text, h5.attrs["layer_names"]):
        for name in map(_text, h5[layer].attrs["weight_names"]):
            path = name.removesuffix(":0")
            yield path if "/" in path else f"{layer}/{path}", h5[layer][name][()]


def _of_keras3(objects: dict[str, Any], file: Any) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """A group ``vars`` for each layer, with the layer's name as an attribute and its variables by number."""
    groups: dict[str, Any] = {
        path.removesuffix("/vars"): found
        for path, found in objects.items()
        if path.endswith("/vars") and isinstance(found, h5py.Group)
    }
    names = {path: _text(group.attrs["name"]) for path, group in groups.items() if "name" in group.attrs}
    for path, group in groups.items():
        if path.startswith("optimizer"):
            continue
        if len(group) and path not in names:
            raise ArtifactError(
                f"init={file}: {path} has no name of a layer, as in files of early versions of Keras 3; load it and "
                f"save it again with Keras {keras.__version__}"
            )
        above = itertools.accumulate(path.split("/"), lambda outer, inner: f"{outer}/{inner}")
        outer = [names[each] for each in above if each in names]
        for number in sorted(group, key=int):
            yield f"{'/'.join(outer)}/{number}", group[number][()]


def _of_saved_model(folder: Path) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The checkpoint of a SavedModel, whose graph of objects has the variables' full names."""
    for part in (folder / "variables").iterdir():
        if not part.resolve().is_relative_to(folder.resolve()):
            raise ArtifactError(
                f"init={folder}: variables/{part.name} is a link to {part.resolve()} vs a file in the folder; copy the "
                "folder with `cp -rL`"
            )
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
