"""The shards of a split: one table in memory and in a manifest, so that a million of them take some 50 MB."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, overload

import numpy as np
import numpy.typing as npt
from pydantic import Field, PlainSerializer, PlainValidator

from podline.frozen import Frozen, Json, JsonObject, is_object

MANY_COUNTS = 1_000_000
"""Shards × classes; with more, a table has no class counts of each shard."""
_FIRST = "-00000-of-"


class FileInfo(Frozen):
    """A file of a data set."""

    file: str
    bytes: int
    sha256: str


class ShardInfo(FileInfo):
    """One TFRecord file.

    ``class_counts`` are left out of a manifest of more than :data:`podline.documents.manifest.MANY_CLASSES`, or of more
    than :data:`MANY_COUNTS` in all: it would be mostly numbers; the split has their sums. ``index`` is the array of
    where its records begin, where they have no fixed length.
    """

    records: int
    class_counts: tuple[int, ...] = Field(default=(), exclude_if=lambda counts: not counts)
    index: FileInfo | None = Field(default=None, exclude_if=lambda index: index is None)

    @property
    def files(self) -> tuple[FileInfo, ...]:
        """The shard and its index."""
        return (self, self.index) if self.index else (self,)


def index_file(shard: str) -> str:
    """Return the name of a shard's index."""
    return f"{shard}.index.npy"


@dataclass(frozen=True, eq=False)
class ShardTable(Sequence[ShardInfo]):
    """Shards, each made when it is asked for.

    Attributes:
        file: the first one's name; the others have their own numbers in it.
        rows: one a shard; see :func:`_row`.
    """

    file: str
    rows: npt.NDArray[np.void]

    @classmethod
    def of(cls, shards: Iterable[ShardInfo]) -> ShardTable:
        """Return the table of shards in the order of their numbers.

        Raises:
            ValueError: a file's name is not that of its number, or some shards have class counts or an index and others
                not.
        """
        each = iter(shards)
        first = next(each, None)
        if first is None:
            return cls("", np.empty(0, _row(0, indexed=False)))
        row = _row(len(first.class_counts), indexed=first.index is not None)

        def values() -> Iterable[tuple[Any, ...]]:
            yield _values(first)
            for number, shard in enumerate(each, 1):
                if shard.file != _numbered(first.file, number):
                    raise ValueError(f"shard {number} is {shard.file!r} vs {_numbered(first.file, number)!r}")
                if (len(shard.class_counts), shard.index is None) != (len(first.class_counts), first.index is None):
                    raise ValueError(f"{shard.file} has other facts than {first.file}")
                yield _values(shard)

        return cls(first.file, np.fromiter(values(), row))

    @classmethod
    def from_json(cls, document: JsonObject) -> ShardTable:
        """Return what :meth:`to_json` wrote.

        Raises:
            ValueError: it is something else.
        """
        try:
            row = _row(document["classes"], indexed=document["indexed"])
            table = cls(document["file"], np.frombuffer(base64.b64decode(document["table"]), row))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no table of shards: {error!r}") from error
        if len(table) != document.get("count"):
            raise ValueError(f"count={document.get('count')} vs {len(table)} shards in the table")
        return table

    def to_json(self) -> JsonObject:
        """Return the table as a manifest has it: the rows one after another, in base64."""
        names = self.rows.dtype.names or ()
        return {
            "count": len(self),
            "file": self.file,
            "classes": self.rows["class_counts"].shape[1] if "class_counts" in names else 0,
            "indexed": "index_sha256" in names,
            "table": base64.b64encode(self.rows.tobytes()).decode(),
        }

    @property
    def bytes(self) -> int:
        """Those of all files, without indexes."""
        return int(self.rows["bytes"].sum())

    @property
    def records(self) -> int:
        """Those of all shards."""
        return int(self.rows["records"].sum())

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, number: int) -> ShardInfo: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[ShardInfo]: ...
    def __getitem__(self, number: int | slice) -> ShardInfo | Sequence[ShardInfo]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        place = range(len(self))[number]
        row, file = self.rows[place], _numbered(self.file, place)
        names, index = self.rows.dtype.names or (), None
        if "index_sha256" in names:
            index = FileInfo(file=index_file(file), bytes=int(row["index_bytes"]), sha256=_hex(row["index_sha256"]))
        return ShardInfo(
            file=file,
            records=int(row["records"]),
            bytes=int(row["bytes"]),
            sha256=_hex(row["sha256"]),
            class_counts=tuple(row["class_counts"].tolist()) if "class_counts" in names else (),
            index=index,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShardTable) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str, bytes]:
        return self.file, str(self.rows.dtype), self.rows.tobytes()


def _row(classes: int, *, indexed: bool) -> np.dtype[np.void]:
    """Return what is known of a shard, little-endian and unpadded."""
    fields: list[Any] = [("records", "<u4"), ("bytes", "<u8"), ("sha256", "V32")]
    if indexed:
        fields += [("index_bytes", "<u4"), ("index_sha256", "V32")]
    if classes:
        fields += [("class_counts", "<u4", (classes,))]
    return np.dtype(fields)


def _values(shard: ShardInfo) -> tuple[Any, ...]:
    index = (shard.index.bytes, bytes.fromhex(shard.index.sha256)) if shard.index else ()
    counts = (shard.class_counts,) if shard.class_counts else ()
    return (shard.records, shard.bytes, bytes.fromhex(shard.sha256), *index, *counts)


def _numbered(first: str, number: int) -> str:
    return first.replace(_FIRST, f"-{number:05d}-of-")


def _hex(digest: np.void) -> str:
    return digest.tobytes().hex()


def _checked(value: Json) -> ShardTable:
    if isinstance(value, ShardTable):
        return value
    if not is_object(value):
        raise ValueError(f"no table of shards: {type(value).__name__}")
    return ShardTable.from_json(value)


Shards = Annotated[ShardTable, PlainValidator(_checked), PlainSerializer(ShardTable.to_json)]
"""The field of a document."""
