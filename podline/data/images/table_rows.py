"""Read the rows of a table: CSV, TSV, JSON Lines or Parquet; folders such as ``label=cat`` (Hive) are columns too."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from podline.base.errors import SourceError
from podline.base.frozen import is_object
from podline.base.plurals import plural
from podline.data import bounds
from podline.data.images.layout import opened
from podline.data.images.listing import ListedFile
from podline.data.rawfiles import reading
from podline.data.shown import shortened
from podline.data.texts import cleaned

PARQUET = ".parquet"
ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", PARQUET)
_MARKS = ",;\t|"
_FIRST = 20  # lines in which the separator is detected
_FIRST_ROWS = 200  # rows of JSON Lines in which columns are detected, since a row may omit some
_SEP = re.compile(r'"?sep=(.)"?[,;\t]*\s*')  # a first line by which Excel names the separator
ROWS_AT_ONCE = 10_000
"""Number of rows of a Parquet file that are read at a time, unless they have images."""
_BUFFER = 1 << 20  # bytes of a column that are read at a time, instead of a row group
_PART = re.compile(r"([^/=]+)=([^/]*)/")
_NULL = "__HIVE_DEFAULT_PARTITION__"


class Row(NamedTuple):
    """A row: its location in the table, its values by column, and why it is invalid; empty if it is valid."""

    key: str
    values: Mapping[str, Any]
    reason: str = ""


def header_of(table: ListedFile) -> list[str]:
    """Return the names of a table's columns; those from folder names, such as ``label=cat`` (Hive), come last.

    The columns of JSON Lines are those of the first row, and those of most of the first :data:`_FIRST_ROWS` rows.
    """
    if table.ends(PARQUET):
        names = schema_of(table).names
    elif table.ends(".csv", ".tsv"):
        names = next((names for _, names in _lines(table)), [])
    else:
        rows = [row.values for row in islice(_objects(table), _FIRST_ROWS)]
        counts = Counter(name for row in rows for name in row)
        names = [name for name, count in counts.items() if name in rows[0] or 2 * count > len(rows)]
    return [*map(cleaned, names), *_folders(table)]


def rows_of(table: ListedFile, columns: Sequence[str], at_once: int = ROWS_AT_ONCE) -> Iterator[Row]:
    """Yield the rows of a table, with at least those of the given columns that the table has."""
    if table.ends(PARQUET):
        rows = (Row(f"{table.name}[{at}]", values) for at, values in enumerate(parquet_rows(table, columns, at_once)))
    elif table.ends(".csv", ".tsv"):
        rows = _records(table)
    else:
        rows = _objects(table)
    folders = _folders(table)
    yield from (row._replace(values={**row.values, **folders}) for row in rows) if folders else rows


def schema_of(file: ListedFile) -> pa.Schema:
    """Return the schema of a Parquet file."""
    with opened(file, "Parquet"), pq.ParquetFile(file.path) as parquet:
        return parquet.schema_arrow


def parquet_rows(file: ListedFile, columns: Sequence[str], at_once: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file, with some columns and those of its folders; a list of bytes becomes ``bytes``.

    Names are cleaned, as in :func:`header_of`; columns that the file lacks are omitted.
    """
    folders = _folders(file)
    wanted = [column for column in columns if column and column not in folders]
    with opened(file, "Parquet"), pq.ParquetFile(file.path, buffer_size=_BUFFER, pre_buffer=False) as parquet:
        stored = {cleaned(name): name for name in parquet.schema_arrow.names}
        wanted = [stored.get(column, column) for column in wanted]
        for batch in parquet.iter_batches(at_once, columns=wanted, use_threads=False):
            values, names = map(_values, batch.columns), [*map(cleaned, batch.schema.names)]
            for row in zip(*values, strict=True) if wanted else [()] * batch.num_rows:
                yield {**dict(zip(names, row, strict=True)), **folders}


def holds_bytes(kind: pa.DataType) -> bool:
    """Return whether values of a Parquet type may be encoded images; a part without values may lack the type."""
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0 and holds_bytes(kind.field("bytes").type)
    return _is_list_of_numbers(kind) or any(
        test(kind) for test in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_null)
    )


def _is_list_of_numbers(kind: Any) -> bool:
    return (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_integer(kind.value_type)


def _values(column: Any) -> list[Any]:
    """Return the values of a column; lists of 8-bit numbers become ``bytes``, since lists would take much memory."""
    if not (_is_list_of_numbers(column.type) and column.type.value_type.bit_width == 8):
        return column.to_pylist()
    return [each.values.to_numpy(zero_copy_only=False).tobytes() if each.is_valid else None for each in column]


def _folders(table: ListedFile) -> dict[str, str | None]:
    """Return the columns that the names of a table's folders give, with their value; None for Hive's null."""
    return {unquote(name): None if text == _NULL else unquote(text) for name, text in _PART.findall(table.name)}


def _records(table: ListedFile) -> Iterator[Row]:
    lines = _lines(table)
    names = [cleaned(name) for name in next(lines, (0, []))[1]]
    for number, values in lines:
        while len(values) > len(names) and not values[-1].strip():
            values.pop()
        wrong = (
            f"has {plural(len(values), 'value')} vs {plural(len(names), 'column')}" if len(values) != len(names) else ""
        )
        yield Row(f"{table.name}:{number}", dict(zip(names, values, strict=False)), wrong)


def _lines(table: ListedFile) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the last line and the values of each non-empty row in a CSV or TSV file."""
    with (
        opened(table, "a table", "save it as CSV in UTF-8"),
        Path(table.path).open(encoding="utf-8-sig", newline="") as stream,
    ):
        first = stream.readline(bounds.CLASS_FILE_BYTES)
        if len(first) == bounds.CLASS_FILE_BYTES:
            raise SourceError(
                f"{table.path}: the first line has more than {len(first):,} characters, expected the names of columns; "
                "give a CSV or TSV file"
            )
        said = _SEP.fullmatch(first)
        start = stream.tell() if said else 0
        stream.seek(start)
        some = [line for line in islice(stream, _FIRST) if line.strip(f"{_MARKS}\r\n ")]
        mark = said[1] if said else "\t" if table.ends(".tsv") else mark_of(some)
        stream.seek(start)
        lines = csv.reader(map(_without_blanks, stream), delimiter=mark, skipinitialspace=True, strict=True)
        for values in lines:
            if any(map(str.strip, values)):
                yield lines.line_num + bool(said), values


def _without_blanks(line: str) -> str:
    """Return a line without blanks between a closing quote and a separator."""
    return re.sub(r'" +(?=[,;\t|\r\n]|$)', '"', line) if '" ' in line else line


def mark_of(lines: Sequence[str]) -> str:
    """Return the separator with which most lines have as many values as the first, at least two; a comma if none."""

    def fitting(mark: str) -> tuple[int, int]:
        try:
            rows = [*csv.reader(map(_without_blanks, lines), delimiter=mark, skipinitialspace=True)]
        except csv.Error:
            return 0, 0
        width = len(rows[0]) if rows else 0
        return sum(len(row) == width for row in rows) if width > 1 else 0, width

    return max(_MARKS, key=fitting)


def _objects(table: ListedFile) -> Iterator[Row]:
    """Yield the non-empty lines of a JSON Lines file as rows."""
    with opened(table, "JSON Lines"), Path(table.path).open("rb") as stream:
        number = 0
        while line := stream.readline(bounds.ENTRY_LETTERS):
            number += 1
            if line.strip():
                with reading(f"{table.path}: line {number}", "JSON", "correct the line"):
                    values = json.loads(line)
                if not is_object(values):
                    raise SourceError(
                        f"{table.path}: line {number} is {shortened(values)}, expected an object; correct the line"
                    )
                yield Row(f"{table.name}:{number}", {cleaned(name): value for name, value in values.items()})
