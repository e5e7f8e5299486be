"""Reads pickles as data: arrays, bytes, strings, numbers and plain containers only.

Python's own unpickler, with an allow-list: a pickle that names anything else is refused before it is run. What NumPy's
arrays are made of are functions of this module, which check their arguments. NumPy's own are never called: a pickle
could give its dtypes fields and flags that make it take bytes for addresses. Memory and time are the sandbox's to limit
(:mod:`podline.sandbox`).

Protocols 0 to 5 are read, as Python 2 and 3 and NumPy 1 and 2 write them.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from podline.data.shown import printable
from podline.errors import SourceError

REMEDY = "unpack the official archive again, or fetch it with `podline data download`"
_PLAIN_DTYPES = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})


def read_pickle(path: Path, shown: str = "") -> Any:
    """Return what a pickle holds: None, numbers, text, bytes and plain containers.

    In a dictionary, arrays are NumPy's, and keys that are byte strings are decoded: Python 2 wrote all keys so.

    Args:
        path: an uncompressed pickle file.
        shown: what errors call it, if not by its path.

    Raises:
        SourceError: it is truncated or damaged, or holds something else than data.
        OSError: it cannot be read.
    """
    shown = shown or str(path)
    with path.open("rb") as stream:
        size = path.stat().st_size
        if not size:
            raise SourceError(f"{shown} is empty: 0 bytes; {REMEDY}")
        try:
            value = _Unpickler(stream, encoding="bytes").load()
        except _RefusedError as error:
            raise SourceError(
                f"{shown}: the pickle asks for {error}, which is not data, and none of it was run; {REMEDY}"
            ) from error
        except (MemoryError, OSError):
            raise
        except Exception as error:  # whatever the unpickler stumbles over is the file's doing
            early = isinstance(error, EOFError) or "truncated" in str(error) or "exhausted" in str(error)
            problem = "ends early" if early else "is damaged"
            what = f"{type(error).__name__}: {printable(error)}"
            raise SourceError(f"{shown}: the pickle {problem} ({what}); {REMEDY}") from error
        if stream.tell() != size:
            raise SourceError(f"{shown}: {size - stream.tell():,} bytes follow the end of the pickle; {REMEDY}")
    if type(value) is not dict:
        return value
    return {
        key.decode("latin-1") if type(key) is bytes else key: item.values if type(item) is _Array else item
        for key, item in value.items()
    }


class _RefusedError(pickle.UnpicklingError):
    """A name that is not in the allow-list."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        allowed = _ALLOWED.get((module, name))
        if allowed is None:
            raise _RefusedError(printable(f"{module}.{name}"))
        return allowed


class _Call:
    """A function that a pickle may call, but not change."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, _state: Any) -> NoReturn:
        raise pickle.UnpicklingError("a state for a function")


class _Dtype:
    """``numpy.dtype``: the pickle gives kind and size first and the byte order afterwards."""

    def __init__(self, code: Any, _align: Any = False, _copy: Any = True) -> None:
        self._code, self._order = _text(code), "="
        if self._code not in _PLAIN_DTYPES:
            raise ValueError(f"an array of dtype {printable(self._code)} vs plain numbers")

    def __setstate__(self, state: Any) -> None:
        order, *compound = state[1:5]
        if _text(order) not in ("<", ">", "|", "=") or any(part is not None for part in compound):
            raise ValueError("a dtype with fields")
        self._order = _text(order).replace("|", "=")

    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self._order + self._code)


class _Array:
    """``numpy.ndarray``: the pickle makes an empty one and gives it its state afterwards."""

    values: npt.NDArray[Any] = np.empty(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        _version, shape, dtype, fortran, data = state
        self.values = _values(data, dtype, shape, "F" if fortran else "C")


def _values(data: Any, dtype: Any, shape: Any, order: Any = "C") -> npt.NDArray[Any]:
    if not isinstance(data, bytes | bytearray):
        raise TypeError(f"an array's elements are a {type(data).__name__} vs bytes")
    if type(shape) is not tuple or len(shape) > 4 or not all(type(n) is int and 0 <= n < 2**48 for n in shape):
        raise ValueError("an array's shape is not a tuple of up to four sizes")
    if type(dtype) is not _Dtype:
        raise TypeError(f"an array's dtype is a {type(dtype).__name__}")
    number = dtype.numpy()
    needed = math.prod(shape) * number.itemsize
    if needed != len(data):
        raise ValueError(f"an array of shape {shape} and dtype {number} needs {needed} bytes vs {len(data)} here")
    return np.frombuffer(data, number).reshape(shape, order="F" if _text(order) == "F" else "C")


def _empty_array(_type: Any, _shape: Any, _typecode: Any) -> _Array:
    """Stand for ``numpy.core.multiarray._reconstruct``."""
    return _Array()


def _array_of(data: Any, dtype: Any, shape: Any, order: Any = "C") -> _Array:
    """Stand for ``numpy.core.numeric._frombuffer``."""
    array = _Array()
    array.values = _values(data, dtype, shape, order)
    return array


def _scalar(dtype: Any, data: Any) -> int | float | bool:
    """Stand for ``numpy.core.multiarray.scalar``."""
    return _values(data, dtype, (1,)).tolist()[0]


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """Stand for ``_codecs.encode``: how Python 3 writes bytes in protocols 0 to 2."""
    if _text(encoding) not in ("latin1", "latin-1"):
        raise ValueError(f"text encoded as {printable(_text(encoding))} vs latin1")
    return text.encode("latin-1")


def _no_bytes() -> bytes:
    """Stand for ``bytes()``: how Python 3 writes empty bytes in protocols 0 to 2."""
    return b""


def _text(value: Any) -> str:
    if type(value) not in (str, bytes):
        raise TypeError(f"a {type(value).__name__} vs text")
    return value.decode("latin-1") if type(value) is bytes else value


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Call(_empty_array),
    ("numpy._core.multiarray", "_reconstruct"): _Call(_empty_array),
    ("numpy.core.multiarray", "scalar"): _Call(_scalar),
    ("numpy._core.multiarray", "scalar"): _Call(_scalar),
    ("numpy.core.numeric", "_frombuffer"): _Call(_array_of),
    ("numpy._core.numeric", "_frombuffer"): _Call(_array_of),
    ("numpy", "dtype"): _Call(_Dtype),
    ("numpy", "ndarray"): "numpy.ndarray",  # an argument, which nothing reads
    ("_codecs", "encode"): _Call(_encode),
    ("__builtin__", "bytes"): _Call(_no_bytes),
    ("builtins", "bytes"): _Call(_no_bytes),
}
