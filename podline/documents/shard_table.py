"""A compact table of a split's shards, for memory and for the manifest: a million shards take some 50 MB."""

from __future__ import annotations

import base64
import functools
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from podline.base.frozen import Frozen, Json, JsonObject, is_object, omitted

MANY_COUNTS = 1_000_000
"""A table has class counts for each shard only if shards × classes is at most this number."""
_FIRST = re.compile("-(0{5,})-of-")


class FileInfo(Frozen):
    """A file of a data set."""

    file: str
    bytes: int
    sha256: str


class ShardInfo(FileInfo):
    """One TFRecord file.

    Attributes:
        records: number of records.
        class_counts: number of records of each class. Empty in a manifest with more than
            :data:`podline.documents.manifest.MANY_CLASSES` classes or :data:`MANY_COUNTS` counts, to keep it small.
        index: the file with the byte positions of the records, for records of different lengths; else None.
    """

    records: int
    class_counts: tuple[int, ...] = omitted(())
    index: FileInfo | None = omitted(None)

    @property
    def files(self) -> tuple[FileInfo, ...]:
        """The shard's file, and its index if there is one."""
        return (self, self.index) if self.index else (self,)


def index_file(shard: str) -> str:
    """Return the file name of a shard's index."""
    return f"{shard}.index.npy"


class _ByNumber(ABC):
    """A sequence whose :class:`ShardInfo` objects are made on access."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, number: int) -> ShardInfo: ...

    def __iter__(self) -> Iterator[ShardInfo]:
        return (self[number] for number in range(len(self)))


@dataclass(frozen=True)
class ShardTable(_ByNumber):
    """The shards of one split and version as a table of bytes.

    Attributes:
        file: file name of the first shard; the other names differ only in the shard's number.
        classes: number of class counts in each row.
        indexed: whether each shard has an index.
        rows: one row per shard; see :func:`_row`.
    """

    file: str
    classes: int
    indexed: bool
    rows: bytes

    @classmethod
    def of(cls, shards: Iterable[ShardInfo]) -> ShardTable:
        """Make a table of shards, given in the order of their numbers.

        Raises:
            ValueError: the name of a file has the wrong number, or only some shards have class counts or an index.
        """
        first, form, rows = "", (0, False), bytearray()
        for number, shard in enumerate(shards):
            found = (len(shard.class_counts), shard.index is not None)
            if number == 0:
                first, form = shard.file, found
            elif shard.file != _numbered(first, number):
                raise ValueError(f"shard {number} is {shard.file!r}, expected {_numbered(first, number)!r}")
            elif found != form:
                raise ValueError(
                    f"{shard.file} has (class counts, index) = {found}, expected {form} as {first} has, because all "
                    "shards of a table have the same columns"
                )
            rows += _row(*form).pack(*_values(shard))
        return cls(first, *form, bytes(rows))

    @classmethod
    def from_json(cls, document: JsonObject) -> ShardTable:
        """Parse the output of :meth:`to_json`.

        Raises:
            ValueError: the document is not a table of shards.
        """
        try:
            table = cls(document["file"], document["classes"], document["indexed"], base64.b64decode(document["table"]))
            count, left = divmod(len(table.rows), table._row.size)
        except (KeyError, TypeError, struct.error) as error:
            raise ValueError(f"not a table of shards: {error!r}") from error
        if left or count != document.get("count"):
            raise ValueError(f"got count={document.get('count')}, expected {count} as in the table of shards")
        return table

    def to_json(self) -> JsonObject:
        """Encode the table for a manifest: the concatenated rows, in base64."""
        facts = {"count": len(self), "file": self.file, "classes": self.classes, "indexed": self.indexed}
        return {**facts, "table": base64.b64encode(self.rows).decode()}

    @property
    def bytes(self) -> int:
        """Return the sum of the shards' sizes in bytes, without indexes."""
        return sum(row[1] for row in self._row.iter_unpack(self.rows))

    @property
    def lengths(self) -> list[int]:
        """The number of records of each shard."""
        return [row[0] for row in self._row.iter_unpack(self.rows)]

    @property
    def _row(self) -> struct.Struct:
        return _row(self.classes, self.indexed)

    def __len__(self) -> int:
        return len(self.rows) // self._row.size

    def __getitem__(self, number: int) -> ShardInfo:
        number = range(len(self))[number]
        records, size, sha256, *others = self._row.unpack_from(self.rows, number * self._row.size)
        file, index = _numbered(self.file, number), None
        if self.indexed:
            index_bytes, index_sha256, *others = others
            index = FileInfo(file=index_file(file), bytes=index_bytes, sha256=index_sha256.hex())
        return ShardInfo(
            file=file, records=records, bytes=size, sha256=sha256.hex(), class_counts=tuple(others), index=index
        )


@dataclass(frozen=True)
class JoinedShards(_ByNumber):
    """The concatenation of several tables of shards.

    Attributes:
        tables: pairs of a folder, relative to the data set's folder and with a final slash, and the table of its files.
    """

    tables: tuple[tuple[str, ShardTable], ...]
    classes = 0  # the counts of old shards may include records that the split no longer has

    @property
    def bytes(self) -> int:
        """Return the sum of the shards' sizes in bytes, without indexes."""
        return sum(table.bytes for _, table in self.tables)

    @property
    def lengths(self) -> list[int]:
        """The number of records of each shard."""
        return [length for _, table in self.tables for length in table.lengths]

    def __len__(self) -> int:
        return sum(len(table) for _, table in self.tables)

    def __getitem__(self, number: int) -> ShardInfo:
        for folder, table in self.tables:
            if number < len(table):
                shard = table[number]
                index = shard.index and shard.index.model_copy(update={"file": f"{folder}{shard.index.file}"})
                return shard.model_copy(update={"file": f"{folder}{shard.file}", "index": index, "class_counts": ()})
            number -= len(table)
        raise IndexError(number)


@functools.lru_cache(maxsize=16)
def _row(classes: int, indexed: bool) -> struct.Struct:
    """Return the format of a row, little-endian and unpadded: records, bytes, sha256, index, class counts."""
    return struct.Struct(f"<IQ32s{'I32s' * indexed}{classes}I")


def _values(shard: ShardInfo) -> tuple[Any, ...]:
    index = (shard.index.bytes, bytes.fromhex(shard.index.sha256)) if shard.index else ()
    return (shard.records, shard.bytes, bytes.fromhex(shard.sha256), *index, *shard.class_counts)


def _numbered(first: str, number: int) -> str:
    return _FIRST.sub(lambda zeros: f"-{number:0{len(zeros[1])}d}-of-", first)


def _checked(value: Json) -> ShardTable:
    if isinstance(value, ShardTable):
        return value
    if not is_object(value):
        raise ValueError(f"not a table of shards: {type(value).__name__}")
    return ShardTable.from_json(value)


Shards = Annotated[ShardTable, PlainValidator(_checked), PlainSerializer(ShardTable.to_json)]
"""The type of a pydantic field that holds a :class:`ShardTable`; in JSON, the output of ``to_json``."""
