"""Store a table in an uncompressed Arrow file, which is memory-mapped, so that columns take no heap memory."""

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
"""The Arrow type of a column of texts, each encoded by :func:`encoded`."""
_BATCH = 1 << 14  # rows
Types = Mapping[str, pa.DataType]
"""Column name → Arrow type: ``TEXT``, or a type of numbers."""


def write_rows(path: Path, types: Types, rows: Iterable[Sequence[Any]]) -> None:
    """Write rows to an Arrow file, in batches, so that memory stays constant.

    Args:
        path: path of the file.
        types: types of the columns.
        rows: for each row, one value per column, in the order of ``types``.

    Raises:
        StoreError: the file cannot be written.
    """
    stream = iter(rows)
    parts = iter(lambda: list(islice(stream, _BATCH)), [])
    write_parts(path, types, (map(_column, types.values(), zip(*some, strict=True)) for some in parts), {})


def write_parts(path: Path, types: Types, parts: Iterable[Iterable[pa.Array]], about: Mapping[str, str]) -> None:
    """Write a table batch by batch, with the metadata ``about``; see :func:`write_rows`.

    A batch consists of one array per column, in the order of ``types``.
    """
    schema = pa.schema(types, metadata=about)
    with explained("write", path), path.open("wb") as file, pa.ipc.new_file(file, schema) as writer:
        for columns in parts:
            writer.write_batch(pa.record_batch(list(columns), schema=schema))


def mapped(path: Path) -> Any:
    """Return the memory-mapped table in a file written by :func:`write_rows` or :func:`write_parts`.

    Raises:
        StoreError: the file cannot be read.
    """
    with explained("read", path), pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
        return reader.read_all()


def start_threads() -> None:
    """Start Arrow's I/O threads now, so that their stacks do not count towards a sandbox's memory limit."""
    with tempfile.TemporaryFile() as file:
        pa.ipc.new_file(file, pa.schema({})).close()
        pa.ipc.open_file(file)


def _column(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    if kind == TEXT:
        with contextlib.suppress(UnicodeEncodeError):  # ten times as fast as encoding each text
            return pa.array(values, pa.string()).cast(TEXT)
        values = [None if text is None else encoded(text) for text in values]
    return pa.array(values, kind)


def encoded(text: str) -> bytes:
    """Encode text for a table, including file names that are not valid UTF-8; the bytes sort like the text."""
    return text.encode("utf-8", "surrogatepass")


def decoded(text: bytes) -> str:
    """Decode bytes written by :func:`encoded`."""
    return text.decode("utf-8", "surrogatepass")


def texts_in(column: Any) -> list[str]:
    """Return the texts in an Arrow column of type ``TEXT`` without nulls."""
    try:
        return column.cast(pa.string()).to_pylist()
    except pa.ArrowInvalid:
        return list(map(decoded, column.to_pylist()))
