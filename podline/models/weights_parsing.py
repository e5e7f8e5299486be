"""Parses files of weights in a child process, and writes their arrays as plain ``.npy`` files.

Nothing in a file is executed: no class is imported, and no graph is loaded. No other file is read: links, external data
sets and virtual data sets of HDF5 could refer to any file of the user. A file with such a reference is refused before a
value is read, as in ``safe_get_h5_dataset`` of Keras (keras/src/saving/saving_lib.py).
"""

from __future__ import annotations

import importlib.metadata
import io
import itertools
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from podline.base.arrays import Array
from podline.base.entry_points import reason
from podline.base.errors import ArtifactError
from podline.data import bounds
from podline.models.pytorch_parsing import read_tensors

_IN_KERAS = "model.weights.h5"
_DEEPEST = 100  # depth of nested groups; a nested layer takes two or three
_CONVERT = "load it into its model, and save the model with model.save_weights('x.weights.h5')"

Named = Iterator[tuple[str, Array]]
"""The arrays of a file with their paths."""


def write_arrays(file: Path, size: int, folder: Path) -> list[str]:
    """Write a file's floating-point arrays as ``0.npy``, ``1.npy`` and so on.

    Returns:
        The ``layer/variable`` of each array.

    Raises:
        ArtifactError: the file is damaged, refers to other files, has no layer names, or unpacks to far more bytes
            than the file has.
    """
    paths: list[str] = []
    try:
        for path, values in _at_most(bounds.unpacked(size), file, READERS[file.suffix](file)):
            np.save(folder / f"{len(paths)}.npy", values, allow_pickle=False)
            paths.append(path)
    except (ArtifactError, MemoryError):
        raise
    except Exception as error:
        raise ArtifactError(f"init={file} is damaged, or is not a file of weights: {reason(error)}") from error
    return paths


def _at_most(most: int, file: Path, arrays: Named) -> Named:
    """Yield the floating-point arrays; refuse more than ``most`` bytes."""
    written = 0
    for path, values in arrays:
        if np.issubdtype(values.dtype, np.floating):
            written += values.nbytes
            if written > most:
                raise ArtifactError(f"init={file} has at least {written:,} bytes of weights, expected at most {most:,}")
            yield path, values


def _of_npz(file: Path) -> Named:
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
        yield from arrays.items()


def _of_keras(file: Path) -> Named:
    with zipfile.ZipFile(file) as archive:
        yield from _of_h5(io.BytesIO(archive.read(_IN_KERAS)), file)


def _of_h5(content: Any, file: Path | None = None) -> Named:
    with h5py.File(content, "r") as h5:
        shown = file or content
        objects = dict(_objects(h5["/"], shown))
        if "layer_names" in h5.attrs or "model_weights" in h5:
            raise ArtifactError(f"init={shown}: got a file of Keras 2, expected one of Keras 3; {_CONVERT}")
        yield from _of_keras3(objects, shown)


def _objects(group: Any, file: object, above: str = "", seen: set[Any] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield each object of an HDF5 file with its path; refuse references to other files, and repeated objects."""
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


def _refused(file: object, path: str, what: str) -> ArtifactError:
    return ArtifactError(
        f"init={file}: {path} is {what}, expected weights in the file itself; save the model with model.save_weights"
    )


def _of_keras3(objects: dict[str, Any], file: object) -> Named:
    """Read Keras 3's layout: each layer has a group ``vars`` with an attribute ``name`` and numbered variables."""
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
                f"init={file}: {path} has no layer name, as in files of early versions of Keras 3; load the file and "
                f"save it again with Keras {importlib.metadata.version('keras')}"
            )
        above = itertools.accumulate(path.split("/"), lambda outer, inner: f"{outer}/{inner}")
        outer = [names[each] for each in above if each in names]
        for number in sorted(group, key=int):
            yield f"{'/'.join(outer)}/{number}", group[number][()]


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


READERS: dict[str, Callable[[Path], Named]] = {
    ".npz": _of_npz,
    ".keras": _of_keras,
    ".h5": _of_h5,
    ".pth": read_tensors,
}
"""The reader for each suffix."""
