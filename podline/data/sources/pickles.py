"""Reads CIFAR's pickles as data in a child process: arrays, bytes, strings, numbers and plain containers only.

Python's own unpickler runs with an allow-list: a pickle that refers to any other object is refused before it calls
this object. Functions of this module, which check their arguments, replace the functions that build NumPy's arrays.
NumPy's functions are never called, because a pickle could create dtypes with fields and flags that make NumPy read
bytes as addresses. The sandbox limits memory and time (:mod:`podline.data.sandbox`).

The formats are protocols 0 to 5, as written by Python 2 and 3 and by NumPy 1 and 2.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.base.errors import SourceError
from podline.base.plurals import plural
from podline.data.shown import printable

REMEDY = "unpack the official archive again, or fetch it with `podline data download`"
ROW = 3072
_PLAIN_DTYPES = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})
_LONGEST = 256  # bits of the longest number that an error shows

Labels = npt.NDArray[np.uint8]


class Label(NamedTuple):
    """One label of every image.

    Attributes:
        feature: name of the label in the records.
        key: key of the label in a pickled batch.
        names: the official class names.
        names_file: the file of class names beside the ``.bin`` files.
    """

    feature: str
    key: str
    names: tuple[str, ...]
    names_file: str = ""

    @property
    def names_key(self) -> str:
        """The key of the class names in the pickled meta file."""
        return f"{self.key.removesuffix('s')}_names"


def read_batch(path: Path, title: str, labels: Sequence[Label]) -> tuple[npt.NDArray[np.uint8], Labels]:
    """Return the pixels, uint8 (rows, 3072), and the labels, uint8 (rows, number of labels), of a pickled batch.

    Args:
        path: path of the batch.
        title: title of its data set.
        labels: the labels of each image.

    Raises:
        SourceError: the batch is invalid.
    """
    found = read_pickle(path)
    needed = ["data", *(label.key for label in labels)]
    if not isinstance(found, dict) or not all(key in found for key in needed):
        keys = sorted(str(key)[:40] for key in list(found)[:8]) if isinstance(found, dict) else []
        what = f"keys {keys}" if isinstance(found, dict) else f"a {type(found).__name__}"
        raise SourceError(f"{path} is not a batch of {title}: found {what}, expected the keys {needed}; {REMEDY}")
    data = found["data"]
    if not isinstance(data, np.ndarray):
        raise SourceError(f"{path}: data is of type {type(data).__name__}, expected an array of uint8; {REMEDY}")
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != ROW:
        raise SourceError(
            f"{path}: data has shape {data.shape} and dtype {data.dtype}, expected (rows, {ROW}) and uint8; {REMEDY}"
        )
    columns = [_labels(found[label.key], label, len(data), path) for label in labels]
    return data, np.stack(columns, axis=1)


def read_names(path: Path, keys: Sequence[str]) -> dict[str, list[str]]:
    """Return the lists of class names in a pickled meta file, by key.

    Raises:
        SourceError: the file is invalid.
    """
    meta = read_pickle(path)
    if not isinstance(meta, dict):
        raise SourceError(f"{path}: found a {type(meta).__name__}, expected a dictionary of class names; {REMEDY}")
    return {key: _texts(meta[key], path) for key in keys if key in meta}


def checked_labels(values: list[int] | npt.NDArray[Any], rows: int, label: Label, path: Path) -> Labels:
    """Check labels and return them as uint8 (rows,).

    Raises:
        SourceError: the number of labels differs from the number of images, or a label is not a class number.
    """
    if len(values) != rows:
        raise SourceError(f"{path}: {len(values):,} {label.key} vs {plural(rows, 'image')}; {REMEDY}")
    classes = len(label.names)
    if rows and not 0 <= min(values) <= max(values) < classes:
        row, value = next((row, int(value)) for row, value in enumerate(values) if not 0 <= value < classes)
        what = str(value) if value.bit_length() < _LONGEST else f"a number of {value.bit_length():,} bits"
        raise SourceError(f"{path}: {label.key}[{row}] is {what} vs 0 to {classes - 1}; {REMEDY}")
    return np.array(values, np.uint8)


def _labels(values: Any, label: Label, rows: int, path: Path) -> Labels:
    """Return a batch's labels from its pickle: a list of numbers, or an array."""
    numbers = isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.ndim == 1
    if not numbers and (type(values) is not list or not all(type(value) is int for value in values)):
        raise SourceError(f"{path}: {label.key!r} is not a list of whole numbers; {REMEDY}")
    return checked_labels(values, rows, label, path)


def _texts(values: Any, path: Path) -> list[str]:
    if type(values) is not list or not all(type(value) in (str, bytes) for value in values):
        raise SourceError(f"{path}: the class names are not a list of strings; {REMEDY}")
    return [value.decode("utf-8", "replace") if type(value) is bytes else value for value in values]


def read_pickle(path: Path) -> Any:
    """Return the content of a pickle: None, numbers, text, bytes and plain containers.

    Dictionary values may be NumPy arrays. Byte strings as keys are decoded, since Python 2 wrote all keys as bytes.

    Raises:
        SourceError: the pickle is truncated or damaged, or contains more than data.
        OSError: the file cannot be read.
    """
    with path.open("rb") as stream:
        size = path.stat().st_size
        if not size:
            raise SourceError(f"{path} is empty: 0 bytes; {REMEDY}")
        try:
            value = _Unpickler(stream, encoding="bytes").load()
        except _RefusedError as error:
            raise SourceError(
                f"{path}: the pickle refers to {error}, expected only data; none of it was run; {REMEDY}"
            ) from error
        except (MemoryError, OSError):
            raise
        except Exception as error:  # every error of the unpickler comes from the file
            early = isinstance(error, EOFError) or "truncated" in str(error) or "exhausted" in str(error)
            problem = "ends early" if early else "is damaged"
            what = f"{type(error).__name__}: {printable(error)}"
            raise SourceError(f"{path}: the pickle {problem} ({what}); {REMEDY}") from error
        if stream.tell() != size:
            raise SourceError(f"{path}: {size - stream.tell():,} bytes follow the end of the pickle; {REMEDY}")
    if type(value) is not dict:
        return value
    return {
        key.decode("latin-1") if type(key) is bytes else key: item.values if type(item) is _Array else item
        for key, item in value.items()
    }


class _RefusedError(pickle.UnpicklingError):
    """A pickle refers to an object outside the allow-list."""


class AllowedCall(NamedTuple):
    """A function that a pickle may call; as a tuple, it has no attributes that a pickle could set."""

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self.function(*arguments)


class _Dtype:
    """Replaces ``numpy.dtype``: a pickle sets type and size first, and the byte order afterwards."""

    def __init__(self, code: Any, _align: Any = False, _copy: Any = True) -> None:
        self._code, self._order = _text(code), "="
        if self._code not in _PLAIN_DTYPES:
            raise ValueError(f"an array has dtype {printable(self._code)}, expected plain numbers")

    def __setstate__(self, state: Any) -> None:
        order, *compound = state[1:5]
        if _text(order) not in ("<", ">", "|", "=") or any(part is not None for part in compound):
            raise ValueError("a dtype has fields, expected plain numbers")
        self._order = _text(order).replace("|", "=")

    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self._order + self._code)


class _Array:
    """Replaces ``numpy.ndarray``: a pickle creates an empty array and sets its state afterwards."""

    values: npt.NDArray[Any] = np.empty(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        _version, shape, dtype, fortran, data = state
        if not isinstance(data, bytes | bytearray):
            raise TypeError(f"an array has data of type {type(data).__name__}, expected bytes")
        if type(dtype) is not _Dtype:
            raise TypeError(f"an array has a dtype of type {type(dtype).__name__}, expected a plain numeric dtype")
        if type(shape) is not tuple or len(shape) > 4 or not all(type(n) is int and 0 <= n < 2**48 for n in shape):
            raise ValueError("an array's shape is not a tuple of up to four sizes")
        number = dtype.numpy()
        needed = math.prod(shape) * number.itemsize
        if needed != len(data):
            raise ValueError(f"an array of shape {shape} and dtype {number} needs {needed} bytes vs {len(data)} here")
        self.values = np.frombuffer(data, number).reshape(shape, order="F" if fortran else "C")


def _array_of(data: Any, dtype: Any, shape: Any, order: Any = "C") -> _Array:
    """Replace ``numpy.core.numeric._frombuffer``."""
    array = _Array()
    array.__setstate__((1, shape, dtype, _text(order) == "F", data))
    return array


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """Replace ``_codecs.encode``, which Python 3 uses to pickle bytes in protocols 0 to 2."""
    if _text(encoding) not in ("latin1", "latin-1"):
        raise ValueError(f"text is encoded as {printable(_text(encoding))}, expected latin1")
    return text.encode("latin-1")


def _text(value: Any) -> str:
    if type(value) not in (str, bytes):
        raise TypeError(f"found a {type(value).__name__}, expected text")
    return value.decode("latin-1") if type(value) is bytes else value


_ALLOWED: dict[str, Any] = {
    "numpy.core.multiarray._reconstruct": AllowedCall(lambda _type, _shape, _code: _Array()),
    "numpy.core.numeric._frombuffer": AllowedCall(_array_of),
    "numpy.dtype": AllowedCall(_Dtype),
    "numpy.ndarray": "numpy.ndarray",  # an argument that is not used
    "_codecs.encode": AllowedCall(_encode),
    "builtins.bytes": AllowedCall(lambda: b""),  # empty bytes in protocols 0 to 2 of Python 3
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = module.replace("numpy._core", "numpy.core").replace("__builtin__", "builtins")
        if f"{known}.{name}" not in _ALLOWED:
            raise _RefusedError(printable(f"{module}.{name}"))
        return _ALLOWED[f"{known}.{name}"]
