"""The ledger as a table with one row per run. Needs no TensorFlow.

    from podline.reporting import ledger
    nights = ledger.load("podline-root", recipe="cifar10")
    nights.plot(x="ended", y="top1")

Missing values are NaN, NA or NaT. The columns are those of :func:`columns`.
:func:`podline.ledger.ledger.entries` has all other values (every setting, every package, every class).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from podline.documents.ledger_entry import Entry, SplitChange, State, Waiting
from podline.documents.metric import Metric
from podline.ledger.ledger import entries, names
from podline.ledger.time_spent import CLASSES
from podline.measures import known
from podline.stages.table import CHAIN
from podline.store.opening import open_store

if TYPE_CHECKING:
    import pandas as pd

_MOMENT, _TEXT, _NUMBER, _COUNT, _TRUTH = "datetime64[us, UTC]", "str", "float64", "Int64", "boolean"
_KIND = "category"
_STAGES = [stage.name for stage in CHAIN]
_ENDS = {"": "value", "_low": "low", "_high": "high"}


class Column(NamedTuple):
    """A column of the table.

    Attributes:
        name: name of the column.
        dtype: its pandas dtype. Durations are in seconds, times in UTC, shares in 0…1.
        get: how to read it from an entry: a function, or dotted names; None and an empty text are missing values.
    """

    name: str
    dtype: str
    get: str | Callable[[Entry], Any]

    def of(self, entry: Entry) -> Any:
        """Return the entry's value, with times as Unix times; None if missing."""
        found = _at(entry, self.get) if isinstance(self.get, str) else self.get(entry)
        return None if found == "" else found


def _at(found: Any, path: str) -> Any:
    for name in path.split("."):
        if found is None:
            return None
        found = found.get(name) if isinstance(found, Mapping) else getattr(found, name)
    return found


def _tensorflow(entry: Entry) -> str | None:
    packages = entry.environment.packages
    return packages.get("tensorflow") or packages.get("tensorflow-tpu")


def _changed(what: str) -> Callable[[Entry], int | None]:
    def get(entry: Entry) -> int | None:
        change = entry.data.change if entry.data else None
        if change is None or change.unknown:
            return None
        return sum(getattr(split, what).count for split in change.splits.values())

    return get


def _overridden(entry: Entry) -> str:
    return ", ".join(f"{path}={value}" for path, value in entry.overridden.items())


def _worst(entry: Entry) -> tuple[str, Metric] | None:
    parts = entry.outcome.parts if entry.outcome else {}
    return min(parts.items(), key=lambda part: part[1].value, default=None)


_FIXED: tuple[Column, ...] = (
    # The run, how and when it ended.
    Column("name", _TEXT, "name"),
    Column("run", _TEXT, "run"),
    Column("recipe", _KIND, "recipe"),
    Column("state", _KIND, "state"),
    Column("way", _KIND, "way"),
    Column("flow_run", _TEXT, "flow_run"),
    Column("attempt", _COUNT, "attempt"),
    Column("started", _KIND, "started"),
    Column("schedule", _KIND, "schedule"),
    Column("began", _MOMENT, "began"),
    Column("ended", _MOMENT, "ended"),
    Column("seconds", _NUMBER, "seconds"),
    Column("error", _KIND, "error"),
    Column("cause", _TEXT, "cause"),
    Column("report", _TEXT, "report"),
    # The inputs that produced it.
    Column("commit", _TEXT, "code.commit"),
    Column("clean", _TRUTH, "code.clean"),
    Column("version", _KIND, "code.version"),
    Column("dataset", _KIND, "data.dataset"),
    Column("fingerprint", _TEXT, "data.fingerprint"),
    Column("train_records", _COUNT, "data.splits.train.records"),
    Column("test_records", _COUNT, "data.splits.test.records"),
    Column("quarantined", _COUNT, "data.quarantined"),
    *(Column(f"data_{what}", _COUNT, _changed(what)) for what in SplitChange.model_fields),
    Column("seed", _COUNT, "seeds.recipe"),
    Column("overridden", _TEXT, _overridden),
    Column("machine", _KIND, "environment.machine"),
    Column("strategy", _KIND, "environment.strategy"),
    Column("devices", _KIND, "environment.devices"),
    Column("python", _KIND, "environment.python"),
    Column("tensorflow", _KIND, _tensorflow),
    # Its training.
    *(Column(f"{stage}_seconds", _NUMBER, f"stages.{stage}.seconds") for stage in _STAGES),
    *(Column(f"{stage}_reused", _TRUTH, f"stages.{stage}.reused") for stage in _STAGES),
    Column("waiting", _NUMBER, "waiting.total"),
    *(Column(f"waiting_{what}", _NUMBER, f"waiting.{what}") for what in Waiting.model_fields),
    *(Column(f"spent_{kind}", _NUMBER, f"spent.{kind}") for kind in CLASSES),
    Column("retries", _COUNT, lambda entry: len(entry.retries)),
    Column("steps", _COUNT, "training.steps"),
    Column("epochs", _NUMBER, "training.epochs"),
    Column("training_loss", _NUMBER, "training.loss"),
    Column("training_seconds", _NUMBER, "training.seconds"),
    Column("examples_per_second", _NUMBER, "training.examples_per_second"),
    Column("pflop", _NUMBER, "training.pflop"),
    Column("waiting_for_input", _NUMBER, "training.waiting_for_input"),
    *(Column(f"load_{what}", _NUMBER, f"training.load.{what}") for what in ("own", "others", "stolen", "throttled")),
    Column("energy", _NUMBER, "training.annealing.final"),
    Column("rejected_states", _COUNT, "training.annealing.rejected"),
    # Its result: the main metric under a common name, and each metric under its own name.
    Column("measure", _KIND, "outcome.measure"),
    *(Column(end, _NUMBER, f"outcome.main.{end}") for end in ("value", "low", "high")),
    Column("untrained", _NUMBER, "outcome.untrained"),
    Column("examples", _COUNT, "outcome.examples"),
    Column("worst_part", _TEXT, lambda entry: (worst := _worst(entry)) and worst[0]),
    Column("worst_part_value", _NUMBER, lambda entry: (worst := _worst(entry)) and worst[1].value),
    Column("parameters", _COUNT, "outcome.parameters"),
    Column("model_bytes", _COUNT, "outcome.model_bytes"),
    Column("weights_sha256", _TEXT, "outcome.weights_sha256"),
    Column("verdict", _KIND, "promotion.verdict"),
    Column("verdict_reason", _TEXT, "promotion.reason"),
)


def columns() -> list[Column]:
    """Return all columns in order; a metric with the name of another column has the prefix ``metric_``."""
    taken = {column.name for column in _FIXED}
    metrics = [
        Column(f"{'metric_' if taken & {metric + each for each in _ENDS} else ''}{metric}{suffix}", _NUMBER, path)
        for metric in known()
        for suffix, end in _ENDS.items()
        for path in [f"outcome.metrics.{metric}.{end}"]
    ]
    place = [column.name for column in _FIXED].index("worst_part")
    return [*_FIXED[:place], *metrics, *_FIXED[place:]]


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
    """Load all finished runs of a store as a table, oldest first.

    Args:
        root: the store: a folder, or ``gs://bucket/prefix``.
        recipe: only runs of this recipe.
        dataset: only runs on this data set: its name, or the start of its fingerprint.
        since: only runs that ended at this time or later.
        until: only runs that ended before this time.
        commit: only runs of the code with this start of a commit.
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
    """Return an entry's row: column → value, with times as Unix times; None is missing."""
    return {column.name: column.of(entry) for column in columns()}
