"""Rebuilds NumPy arrays from pickle opcodes without calling anything.

NumPy writes an array as a call of one of its functions and a state. :data:`RULES` has an entry for each name that may
occur in that; what it does is to check the arguments and to note down what they say.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from podline.data.sources import bounds
from podline.data.sources.shown import printable

_PLAIN_DTYPES = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})


@dataclass(frozen=True)
class Span:
    """Bytes that lie in the pickle's file as they are, from ``offset`` on."""

    offset: int
    size: int


@dataclass
class PickledArray:
    """A NumPy array as its pickle describes it; the element count and the byte count agree.

    Attributes:
        dtype: a plain number's or bool's.
        shape: as pickled.
        fortran: the bytes are in column-major order.
        data: the elements: a place in the file, or short bytes.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    data: Span | bytes

    def load(self, path: Path) -> np.ndarray:
        """The array itself; a long one is mapped from the pickle's file, read-only."""
        raw = self._bytes(self.data, path) if isinstance(self.data, Span) else self.data
        return np.frombuffer(raw, self.dtype).reshape(self.shape, order="F" if self.fortran else "C")

    @staticmethod
    def _bytes(span: Span, path: Path) -> Any:
        return np.memmap(path, np.uint8, "r", span.offset, (span.size,)) if span.size else b""


@dataclass(frozen=True)
class Name:
    """A module's name that a pickle refers to: a token, never the thing itself."""

    module: str
    name: str


@dataclass
class DtypeNote:
    """A ``numpy.dtype`` in the making: the pickle gives kind and size first and the byte order afterwards."""

    code: str
    order: str = "|"

    def dtype(self) -> np.dtype[Any]:
        """What has been noted, as NumPy's own."""
        return np.dtype(self.order.replace("|", "=") + self.code)


def text_of(value: Any) -> str:
    """A name, as str, or Python 2's byte string."""
    if type(value) not in (str, bytes):
        raise TypeError(f"a {type(value).__name__} vs text")
    if len(value) > bounds.PICKLE_WORD_BYTES:
        raise ValueError(f"a name of {len(value):,} letters")
    return value.decode("latin-1") if type(value) is bytes else value


def array_of(data: Any, dtype: Any, shape: Any, order: Any = "C") -> PickledArray:
    """An array's description, once its parts are known to fit each other."""
    if not isinstance(data, Span | bytes):
        raise TypeError(f"an array's elements are a {type(data).__name__} vs bytes")
    if type(shape) is not tuple or len(shape) > 4 or not all(type(n) is int and 0 <= n < 2**48 for n in shape):
        raise ValueError("an array's shape is not a tuple of up to four sizes")
    number, available = dtype.dtype(), data.size if isinstance(data, Span) else len(data)
    needed = math.prod(shape) * number.itemsize
    if needed != available:
        raise ValueError(f"an array of shape {shape} and dtype {number} needs {needed} bytes vs {available} here")
    return PickledArray(number, shape, text_of(order) == "F", data)


def _empty_array(_type: Name, _shape: Any, _typecode: Any) -> PickledArray:
    """``numpy.core.multiarray._reconstruct``: an array that ``BUILD`` will describe."""
    return PickledArray(np.dtype(np.uint8), (0,), False, b"")


def _dtype(code: Any, _align: Any = False, _copy: Any = True) -> DtypeNote:
    if text_of(code) not in _PLAIN_DTYPES:
        raise ValueError(f"an array of dtype {printable(text_of(code))} vs plain numbers")
    return DtypeNote(text_of(code))


def _scalar(dtype: DtypeNote, data: bytes) -> int | float | bool:
    """``numpy.core.multiarray.scalar``: one number."""
    number = dtype.dtype()
    if len(data) != number.itemsize:
        raise ValueError(f"a number of {len(data):,} bytes vs {number.itemsize}")
    (value,) = np.frombuffer(data, number).tolist()
    return value


def _encode(text: str, encoding: Any = "latin1") -> bytes:
    """``_codecs.encode``: how Python 3 writes bytes in protocols 0 to 2."""
    if text_of(encoding) not in ("latin1", "latin-1"):
        raise ValueError(f"text encoded as {printable(text_of(encoding))} vs latin1")
    return text.encode("latin-1")


def _no_bytes() -> bytes:
    """``bytes()``: how Python 3 writes empty bytes in protocols 0 to 2."""
    return b""


NDARRAY = Name("numpy", "ndarray")
# The names that a pickled array is made of, under NumPy 1 and 2, and what is done in their place.
RULES: dict[Name, Callable[..., Any]] = {
    Name("numpy.core.multiarray", "_reconstruct"): _empty_array,
    Name("numpy._core.multiarray", "_reconstruct"): _empty_array,
    Name("numpy.core.multiarray", "scalar"): _scalar,
    Name("numpy._core.multiarray", "scalar"): _scalar,
    Name("numpy.core.numeric", "_frombuffer"): array_of,
    Name("numpy._core.numeric", "_frombuffer"): array_of,
    Name("numpy", "dtype"): _dtype,
    Name("_codecs", "encode"): _encode,
    Name("__builtin__", "bytes"): _no_bytes,
    Name("builtins", "bytes"): _no_bytes,
}
