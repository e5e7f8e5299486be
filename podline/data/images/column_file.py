"""Stores table rows by column in an Arrow file, which is read a few thousand rows at a time."""

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

compute: Any = pyarrow.compute  # its functions are created at import
BATCH = 1 << 14  # rows
SHA256_BYTES = 32
TEXT, DIGEST = pa.binary(), pa.binary(SHA256_BYTES)
Types = Mapping[str, pa.DataType]
"""The types of a table's columns: texts, checksums (possibly empty) and numbers."""


def write_rows(
    path: Path, types: Types, rows: Iterable[Sequence[Any]], about: Mapping[str, str], compression: str | None = None
) -> None:
    """Write rows into a file one batch at a time.

    Args:
        path: path of the file.
        types: types of the columns.
        rows: one value for each column.
        about: metadata of the file, see :attr:`ColumnFile.about`.
        compression: ``zstd`` for files that are not mapped into memory.

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
    """Start Arrow's reading threads now, so that their stacks do not count towards a sandbox's limits."""
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
    """Encode text for a table; file names may be invalid UTF-8. The bytes sort like the letters."""
    return text.encode("utf-8", "surrogatepass")


def decoded(text: bytes) -> str:
    """Return the text that :func:`encoded` encoded."""
    return text.decode("utf-8", "surrogatepass")


def array(column: pa.Array) -> npt.NDArray[Any]:
    """Return a column of numbers or checksums as an array; checksums compare as bytes, an empty one is missing."""
    if column.type == DIGEST:
        return np.frombuffer(column.buffers()[1], f"S{SHA256_BYTES}", len(column))
    return column.to_numpy(zero_copy_only=False)


class ColumnFile:
    """A file with rows, stored by column.

    Args:
        path: path of a file from :func:`write_rows`.
        types: types of its columns.

    Attributes:
        about: metadata of the file.
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
        """Yield some columns in batches of :data:`BATCH` rows, each with the number of its first row.

        Args:
            names: names of the columns.
            only: numbers of the batches to read; all by default.

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
