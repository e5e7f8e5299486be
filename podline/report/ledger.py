"""The ledger as a table with a row for each entry, a run that ended. Needs no TensorFlow.

    from podline.report import ledger
    nights = ledger.load("podline-root", recipe="cifar10")
    nights.plot(x="ended", y="top1")

Missing values are NaN, NA or NaT. The columns are those of :func:`columns`.
:func:`podline.ledger.ledger.entries` has all other values (every setting, every package, every class).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel

from podline.documents.ledger_entry import Entry, State
from podline.ledger.ledger import entries, names
from podline.ledger.time_spent import CLASSES
from podline.recipes.measures import known
from podline.stages.table import CHAIN
from podline.store.opening import open_store

if TYPE_CHECKING:
    import pandas as pd

_MOMENT = "datetime64[us, UTC]"
_DTYPES = {str: "str", float: "float64", int: "Int64", bool: "boolean"}
_SHORT = {
    "code.commit": "commit",
    "data.dataset": "dataset",
    "data.fingerprint": "fingerprint",
    "data.splits.train.records": "train_records",
    "seeds.recipe": "seed",
    "training.examples_per_second": "examples_per_second",
    "training.pflop": "pflop",
    "outcome.measure": "measure",
    "outcome.parameters": "parameters",
    "promotion.verdict": "verdict",
}


class LedgerColumn(NamedTuple):
    """A column of the table.

    Attributes:
        name: name of the column: the field's dotted name, or a shorter name.
        dtype: pandas dtype of the column. Durations are in seconds, times in UTC, shares in 0…1.
        get: a function from an entry to the value, or the field's dotted name; None and an empty text are missing
            values.
    """

    name: str
    dtype: str
    get: str | Callable[[Entry], Any]

    def of(self, entry: Entry) -> Any:
        """Return the column's value for an entry, with times as Unix times; None if missing."""
        found = _at(entry, self.get) if isinstance(self.get, str) else self.get(entry)
        return None if found == "" else found


def _at(found: Any, path: str) -> Any:
    for name in path.split("."):
        if found is None:
            return None
        found = found.get(name) if isinstance(found, Mapping) else getattr(found, name)
    return found


def _worst(entry: Entry) -> tuple[str | None, float | None]:
    parts = entry.outcome.parts if entry.outcome else {}
    return min(((name, part.value) for name, part in parts.items()), key=lambda part: part[1], default=(None, None))


_COMPUTED = (
    LedgerColumn("seconds", "float64", "seconds"),
    LedgerColumn("waiting", "float64", "waiting.total"),
    LedgerColumn("retries", "Int64", lambda entry: len(entry.retries)),
    LedgerColumn(
        "overridden", "str", lambda entry: ", ".join(f"{path}={value}" for path, value in entry.overridden.items())
    ),
    *(LedgerColumn(end, "float64", f"outcome.main.{end}") for end in ("value", "low", "high")),
    LedgerColumn("worst_part", "str", lambda entry: _worst(entry)[0]),
    LedgerColumn("worst_part_value", "float64", lambda entry: _worst(entry)[1]),
)


def columns() -> list[LedgerColumn]:
    """Return all columns: scalar fields, selected keys of dictionaries, each metric, and computed values."""
    keys = {
        "seeds": ("recipe", "data"),
        "stages": [stage.name for stage in CHAIN],
        "spent": CLASSES,
        "data.splits": ("train", "test"),
        "data.change.splits": ("train", "test"),
        "outcome.metrics": known(),
    }
    found, taken = list[LedgerColumn](), {column.name for column in _COMPUTED}
    for path, dtype in _fields(Entry, "", keys):
        metric = path.removeprefix("outcome.metrics.").replace(".value", "").replace(".", "_")
        short = _SHORT.get(path, metric if path.startswith("outcome.metrics.") else path)
        name = path if short in taken else short
        taken.add(name)
        found.append(LedgerColumn(name, _MOMENT if path in ("began", "ended") else dtype, path))
    return [*found, *_COMPUTED]


def _fields(of: Any, path: str, keys: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str]]:
    """Yield dotted name and dtype of each scalar field, and of the given keys of dictionaries."""
    of = next((each for each in get_args(of) if each is not NoneType), of) if isinstance(of, UnionType) else of
    if get_origin(of) is dict:
        for key in keys.get(path, ()):
            yield from _fields(get_args(of)[1], f"{path}.{key}", keys)
    elif get_origin(of) is Literal:
        yield path, "category"
    elif of in _DTYPES:
        yield path, _DTYPES[of]
    elif isinstance(of, type) and issubclass(of, BaseModel):
        for name, field in of.model_fields.items():
            yield from _fields(field.annotation, f"{path}.{name}".removeprefix("."), keys)


def load(
    root: str | Path,
    *,
    recipe: str | None = None,
    dataset: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    commit: str | None = None,
    state: State | None = None,
) -> pd.DataFrame:
    """Load the runs of a store that ended, in whatever state, as a table, oldest first.

    Args:
        root: the store: a folder, or ``gs://bucket/prefix``.
        recipe: only runs of this recipe.
        dataset: only runs on this data set: its name, or the start of its fingerprint.
        since: only runs that ended at this time or later.
        until: only runs that ended before this time.
        commit: only runs of code whose commit begins with this text.
        state: only runs that ended in this state.

    Raises:
        StoreError: the store cannot be read.
        ArtifactError: an entry is damaged.
    """
    store = open_store(root)
    wanted = names(store, recipe=recipe, state=state, since=since, until=until)
    return frame_of(entries(store, reversed(wanted), dataset=dataset, commit=commit))


def frame_of(found: Iterable[Entry]) -> pd.DataFrame:
    """Return entries as a table with the columns of :func:`columns`, in the given order."""
    # Imported here: pandas takes half a second, which only tables need.
    import pandas as pd  # noqa: PLC0415

    every = columns()
    rows = [[column.of(entry) for column in every] for entry in found]
    frame = pd.DataFrame(rows, columns=[column.name for column in every], dtype="object")
    for column in every:
        if column.dtype == _MOMENT:
            frame[column.name] = pd.to_datetime(frame[column.name].astype("float64"), unit="s", utc=True)
    return frame.astype({column.name: column.dtype for column in every})


def row_of(entry: Entry) -> dict[str, Any]:
    """Return column → value for an entry, with times as Unix times; None for a missing value."""
    return {column.name: column.of(entry) for column in columns()}
