"""Rows as columns in an Arrow file, of which a machine reads a few thousand rows at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from podline.store.contract import explained

compute: Any = pyarrow.compute  # its functions are made when it is imported
BATCH = 1 << 14  # rows
SHA256_BYTES = 32
TEXT, DIGEST = pa.binary(), pa.binary(SHA256_BYTES)
Types = Mapping[str, pa.DataType]
"""A table's columns: texts, checksums, which may be empty, and numbers."""


def write_rows(
    path: Path, types: Types, rows: Iterable[Sequence[Any]], about: Mapping[str, str], compression: str | None = None
) -> None:
    """Write rows into a file, as they come.

    Args:
        path: of the file.
        types: of the columns.
        rows: a value for each column.
        about: all of them, for :attr:`ColumnFile.about`.
        compression: ``zstd``, of what is not mapped into memory.

    Raises:
        StoreError: the file cannot be written.
    """
    schema, stream = pa.schema(types, metadata=about), iter(rows)
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with explained("write", path), path.open("wb") as file, pa.ipc.new_file(file, schema, options=options) as writer:
        while some := list(islice(stream, BATCH)):
            columns = map(_column, types.values(), zip(*some, strict=True))
            writer.write_batch(pa.record_batch(list(columns), schema=schema))


def start_threads() -> None:
    """Start the threads by which Arrow reads files: their stacks would count towards a sandbox's limits."""
    with tempfile.TemporaryFile() as file:
        pa.ipc.new_file(file, pa.schema({})).close()
        pa.ipc.open_file(file)


def _column(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    if kind == TEXT:
        values = [None if text is None else encoded(text) for text in values]
    elif kind == DIGEST:
        values = [digest or bytes(SHA256_BYTES) for digest in values]
    return pa.array(values, kind)


def encoded(text: str) -> bytes:
    """Return a text as the table has it: a file's name may be no UTF-8; bytes have the order of the letters."""
    return text.encode("utf-8", "surrogatepass")


def decoded(text: bytes) -> str:
    """Return the text that :func:`encoded` was given."""
    return text.decode("utf-8", "surrogatepass")


def array(column: pa.Array) -> npt.NDArray[Any]:
    """Return numbers, or checksums, which compare as their bytes do; an empty one is none."""
    if column.type == DIGEST:
        return np.frombuffer(column.buffers()[1], f"S{SHA256_BYTES}", len(column))
    return column.to_numpy(zero_copy_only=False)


class ColumnFile:
    """The rows in a file.

    Args:
        path: of what :func:`write_rows` wrote.
        types: of its columns.

    Attributes:
        about: all of them.
    """

    def __init__(self, path: Path, types: Types) -> None:
        self._path, self._types = path, types
        with explained("read", path), pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
            last = reader.num_record_batches - 1
            self._count = last * BATCH + len(reader.get_batch(last)) if last >= 0 else 0
            self.about = {name.decode(): text.decode() for name, text in (reader.schema.metadata or {}).items()}

    def __len__(self) -> int:
        return self._count

    def batches(self, *names: str, only: Iterable[int] | None = None) -> Iterator[tuple[int, Any]]:
        """Yield some columns, :data:`BATCH` rows at a time, each with its first row's number.

        Args:
            names: of columns.
            only: the numbers of some batches.

        Raises:
            StoreError: the file cannot be read.
        """
        places = [list(self._types).index(name) for name in names]
        options = pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)
        with (
            explained("read", self._path),
            pa.OSFile(str(self._path)) as file,
            pa.ipc.open_file(file, options=options) as reader,
        ):
            for number in range(reader.num_record_batches) if only is None else only:
                yield number * BATCH, reader.get_batch(number)
