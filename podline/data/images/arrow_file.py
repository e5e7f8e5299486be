"""Stores rows by column in an uncompressed Arrow file, which is mapped into memory: columns take no heap."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute

from podline.store.contract import explained

compute: Any = pyarrow.compute  # its functions are created at import
TEXT = pa.binary()
"""The type of a column of texts, encoded by :func:`encoded`."""
_BATCH = 1 << 14  # rows
Types = Mapping[str, pa.DataType]
"""The types of a table's columns: texts, digests (possibly missing) and numbers."""


def write_rows(path: Path, types: Types, rows: Iterable[Sequence[Any]], about: Mapping[str, str]) -> None:
    """Write rows into a file one batch at a time.

    Args:
        path: path of the file.
        types: types of the columns.
        rows: one value for each column.
        about: metadata of the file.

    Raises:
        StoreError: the file cannot be written.
    """
    stream = iter(rows)
    parts = iter(lambda: list(islice(stream, _BATCH)), [])
    write_parts(path, types, (map(_column, types.values(), zip(*some, strict=True)) for some in parts), about)


def write_parts(path: Path, types: Types, parts: Iterable[Iterable[pa.Array]], about: Mapping[str, str]) -> None:
    """Write consecutive parts of columns into a file; see :func:`write_rows`."""
    schema = pa.schema(types, metadata=about)
    with explained("write", path), path.open("wb") as file, pa.ipc.new_file(file, schema) as writer:
        for columns in parts:
            writer.write_batch(pa.record_batch(list(columns), schema=schema))


def mapped(path: Path) -> Any:
    """Return the table in a file from :func:`write_rows`.

    Raises:
        StoreError: the file cannot be read.
    """
    with explained("read", path), pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
        return reader.read_all()


def start_threads() -> None:
    """Start Arrow's reading threads now, so that their stacks do not count towards a sandbox's limits."""
    with tempfile.TemporaryFile() as file:
        pa.ipc.new_file(file, pa.schema({})).close()
        pa.ipc.open_file(file)


def _column(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    if kind == TEXT:
        with contextlib.suppress(UnicodeEncodeError):  # a tenth of the time
            return pa.array(values, pa.string()).cast(TEXT)
        values = [None if text is None else encoded(text) for text in values]
    elif pa.types.is_fixed_size_binary(kind):
        values = [digest or bytes(kind.byte_width) for digest in values]
    return pa.array(values, kind)


def encoded(text: str) -> bytes:
    """Encode text for a table; file names may be invalid UTF-8. The bytes sort like the letters."""
    return text.encode("utf-8", "surrogatepass")


def decoded(text: bytes) -> str:
    """Return the text that :func:`encoded` encoded."""
    return text.decode("utf-8", "surrogatepass")


def texts_in(column: Any) -> list[str]:
    """Return a column of encoded texts, none of which is missing."""
    try:
        return column.cast(pa.string()).to_pylist()
    except pa.ArrowInvalid:
        return list(map(decoded, column.to_pylist()))
