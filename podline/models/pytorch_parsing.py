"""Reads the tensors of a ``.pth`` file without PyTorch, in a child process.

PyTorch's legacy format is five pickles, then raw numbers. The pickles are a magic number, a version, facts on the
writing machine, a dictionary of tensors, and the keys of their storages. The storages follow in the order of the keys.
Python's unpickler reads the pickles with an allow-list: a pickle that refers to anything but tensors and an ordered
dictionary is refused before it runs.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from podline.base.arrays import Array
from podline.data.sources.pickles import AllowedCall

_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_MOST_AXES = 8


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype[Any]
    numbers: int


class _Tensor(NamedTuple):
    storage: _Storage
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Dict(dict[Any, Any]):
    """Replaces ``collections.OrderedDict``, whose pickles also contain versions of modules."""

    def __setstate__(self, _state: Any) -> None:
        pass


def read_tensors(file: Path) -> Iterator[tuple[str, Array]]:
    """Yield the tensors of a file as ``layer/variable``, with their values.

    Raises:
        ValueError: the file is not in PyTorch's legacy format, or its tensors do not fit its storages.
        pickle.UnpicklingError: a pickle is damaged, or refers to anything but tensors.
    """
    with file.open("rb") as stream:
        magic, version, facts, tensors, keys = (_Unpickler(stream).load() for _ in range(5))
        if (magic, version) != (_MAGIC, _VERSION) or facts.get("little_endian") is not True:
            raise ValueError("the file is not in PyTorch's legacy format, or not from a little-endian machine")
        named = {name: tensor for name, tensor in tensors.items() if type(name) is str and type(tensor) is _Tensor}
        storages = {tensor.storage.key: tensor.storage for tensor in named.values()}
        if len(named) != len(tensors) or sorted(storages) != sorted(keys):
            raise ValueError("the storages of the file are not exactly those of its dictionary of tensors")
        numbers = {key: _numbers(stream, storages[key]) for key in keys}
        if stream.read(1):
            raise ValueError("bytes follow the last storage")
    for name, tensor in named.items():
        layer, _, variable = name.rpartition(".")
        values = numbers[tensor.storage.key][tensor.first :]
        strides = [stride * values.itemsize for stride in tensor.strides]
        yield f"{layer}/{variable}", as_strided(values, tensor.shape, strides, writeable=False)


def _numbers(stream: BinaryIO, storage: _Storage) -> Array:
    count = int.from_bytes(stream.read(8), "little")
    if count != storage.numbers:
        raise ValueError(f"storage {storage.key[:40]} has {count} numbers, expected {storage.numbers}")
    data = stream.read(min(count * storage.dtype.itemsize, os.fstat(stream.fileno()).st_size))
    return np.frombuffer(data, storage.dtype, count)


def _tensor(storage: Any, first: Any, shape: Any, strides: Any, *_gradient_and_hooks: Any) -> _Tensor:
    """Replace ``torch._utils._rebuild_tensor_v2``; refuse tensors that exceed their storage."""
    if type(storage) is not _Storage or not all(map(_are_sizes, ((first,), shape, strides))):
        kinds = ", ".join(type(value).__name__ for value in (storage, first, shape, strides))
        raise ValueError(f"a tensor is made of {kinds}, expected a storage, and integers as offset, shape and strides")
    last = first + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min(shape, default=1) < 1 or last >= storage.numbers:
        raise ValueError(f"a tensor of shape {shape} is empty, or larger than its storage")
    return _Tensor(storage, first, shape, strides)


def _are_sizes(sizes: Any) -> bool:
    numbers = type(sizes) is tuple and len(sizes) <= _MOST_AXES
    return numbers and all(type(size) is int and 0 <= size < 2**40 for size in sizes)


_ALLOWED: dict[str, Any] = {
    "collections.OrderedDict": AllowedCall(_Dict),
    "torch._utils._rebuild_tensor_v2": AllowedCall(_tensor),
    "torch.FloatStorage": "<f4",
    "torch.LongStorage": "<i8",
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in _ALLOWED:
            raise pickle.UnpicklingError(f"the file refers to {module}.{name}, which is not a tensor; nothing was run")
        return _ALLOWED[f"{module}.{name}"]

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _device, count, view = pid
        if kind != "storage" or dtype not in ("<f4", "<i8") or type(key) is not str or not _are_sizes((count,)) or view:
            raise pickle.UnpicklingError("a storage is not of float32 or int64 numbers")
        return _Storage(key, np.dtype(dtype), count)
