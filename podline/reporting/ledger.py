"""The ledger as a table with a row for every run. Needs no TensorFlow.

    from podline.reporting import ledger
    nights = ledger.load("podline-root", recipe="cifar10")
    nights.plot(x="ended", y="top1")

What a run has not is missing (NaN, NA or NaT). The columns, and what pandas holds them as, are :data:`COLUMNS`; all
that an entry has beside them (every setting, every package, every class) is in :func:`podline.ledger.ledger.entries`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podline.documents.ledger_entry import Entry, State
from podline.ledger.ledger import entries, names
from podline.measures import known
from podline.store.opening import open_store

if TYPE_CHECKING:
    import pandas as pd

_MOMENT, _TEXT, _NUMBER, _COUNT, _TRUTH = "datetime64[us, UTC]", "str", "float64", "Int64", "boolean"
_KIND = "category"
# Of a flow from archive to report.
_STAGES = ("convert", "validate", "train", "evaluate", "promote", "report")

COLUMNS: dict[str, str] = {
    # Which run it is, how and when it ended.
    "name": _TEXT,
    "run": _TEXT,
    "recipe": _KIND,
    "state": _KIND,
    "way": _KIND,
    "flow_run": _TEXT,
    "attempt": _COUNT,
    "started": _KIND,
    "schedule": _KIND,
    "began": _MOMENT,
    "ended": _MOMENT,
    "seconds": _NUMBER,
    "error": _KIND,
    "cause": _TEXT,
    "report": _TEXT,
    # What produced it.
    "commit": _TEXT,
    "clean": _TRUTH,
    "version": _KIND,
    "dataset": _KIND,
    "fingerprint": _TEXT,
    "train_records": _COUNT,
    "test_records": _COUNT,
    "quarantined": _COUNT,
    "data_added": _COUNT,
    "data_removed": _COUNT,
    "data_relabelled": _COUNT,
    "seed": _COUNT,
    "overridden": _TEXT,
    "machine": _KIND,
    "strategy": _KIND,
    "devices": _KIND,
    "python": _KIND,
    "tensorflow": _KIND,
    # How it went.
    **{f"{stage}_seconds": _NUMBER for stage in _STAGES},
    **{f"{stage}_reused": _TRUTH for stage in _STAGES},
    "waiting": _NUMBER,
    "waiting_start": _NUMBER,
    "waiting_turn": _NUMBER,
    "waiting_tpu": _NUMBER,
    "waiting_repairs": _NUMBER,
    "waiting_retries": _NUMBER,
    "retries": _COUNT,
    "steps": _COUNT,
    "epochs": _NUMBER,
    "training_loss": _NUMBER,
    "training_seconds": _NUMBER,
    "examples_per_second": _NUMBER,
    "waiting_for_input": _NUMBER,
    "energy": _NUMBER,
    "rejected_states": _COUNT,
    # What came of it: the metric that counts under one name, and each metric under its own.
    "measure": _KIND,
    "value": _NUMBER,
    "low": _NUMBER,
    "high": _NUMBER,
    "untrained": _NUMBER,
    "examples": _COUNT,
    **{f"{metric}{end}": _NUMBER for metric in known() for end in ("", "_low", "_high")},
    "worst_part": _TEXT,
    "worst_part_value": _NUMBER,
    "parameters": _COUNT,
    "model_bytes": _COUNT,
    "weights_sha256": _TEXT,
    "verdict": _KIND,
    "verdict_reason": _TEXT,
}
"""Column → its pandas dtype. Times are in seconds, moments in universal time, shares in 0…1."""


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
    """All runs of a store that ended, the oldest first.

    Args:
        root: the store: a folder, or ``gs://bucket/prefix``.
        recipe: only those of this recipe.
        dataset: only those of this data set: its name, or how its fingerprint begins.
        since: only those that ended at this moment or later.
        until: only those that ended before this moment.
        commit: only those of the code whose commit begins so.
        state: only those that ended so.

    Raises:
        StoreError: the store cannot be read.
        ArtifactError: an entry is damaged.
    """
    store = open_store(root)
    wanted = names(store, recipe=recipe, state=state, since=since, until=until)
    return frame_of(entries(store, reversed(wanted), dataset=dataset, commit=commit))


def frame_of(found: Iterable[Entry]) -> pd.DataFrame:
    """Entries as a table with the columns :data:`COLUMNS`, a row for each, in the order given."""
    # Half a second, for those alone who want a table.
    import pandas as pd  # noqa: PLC0415

    columns: dict[str, list[Any]] = {column: [] for column in COLUMNS}
    for entry in found:
        row = row_of(entry)
        for column, values in columns.items():
            values.append(row.get(column))
    frame = pd.DataFrame({column: pd.Series(values, dtype="object") for column, values in columns.items()})
    for column in ("began", "ended"):
        frame[column] = pd.to_datetime(frame[column].astype("float64"), unit="s", utc=True)
    return frame.astype(COLUMNS)


def row_of(entry: Entry) -> dict[str, Any]:
    """An entry's row: column → value, ``began`` and ``ended`` as Unix times; what it has not is left out."""
    row: dict[str, Any] = {
        "name": entry.name,
        "run": entry.run or None,
        "recipe": entry.recipe,
        "state": entry.state,
        "way": entry.way,
        "flow_run": entry.flow_run or None,
        "attempt": entry.attempt,
        "started": entry.started or None,
        "schedule": entry.schedule or None,
        "began": entry.began,
        "ended": entry.ended,
        "seconds": entry.seconds,
        "error": entry.error or None,
        "cause": entry.cause or None,
        "report": entry.report or None,
        "commit": entry.code.commit or None,
        "clean": entry.code.clean,
        "version": entry.code.version,
        "seed": entry.seeds.get("recipe"),
        "overridden": ", ".join(f"{path}={value}" for path, value in entry.overridden.items()) or None,
        "machine": entry.environment.machine,
        "strategy": entry.environment.strategy or None,
        "devices": entry.environment.devices or None,
        "python": entry.environment.python,
        "tensorflow": entry.environment.packages.get("tensorflow") or entry.environment.packages.get("tensorflow-tpu"),
        "waiting": entry.waiting.total,
        **{f"waiting_{what}": seconds for what, seconds in entry.waiting},
        "retries": len(entry.retries),
    }
    if entry.promotion is not None:
        row |= {"verdict": entry.promotion.verdict, "verdict_reason": entry.promotion.reason or None}
    for stage, took in entry.stages.items():
        row |= {f"{stage}_seconds": took.seconds, f"{stage}_reused": took.reused}
    return row | _of_data(entry) | _of_training(entry) | _of_outcome(entry)


def _of_data(entry: Entry) -> dict[str, Any]:
    data = entry.data
    if data is None:
        return {}
    row: dict[str, Any] = {"dataset": data.dataset, "fingerprint": data.fingerprint, "quarantined": data.quarantined}
    row |= {f"{name}_records": split.records for name, split in data.splits.items()}
    if data.change is not None and not data.change.unknown:
        changes = data.change.splits.values()
        row |= {
            "data_added": sum(change.added.count for change in changes),
            "data_removed": sum(change.removed.count for change in changes),
            "data_relabelled": sum(change.relabelled.count for change in changes),
        }
    return row


def _of_training(entry: Entry) -> dict[str, Any]:
    training = entry.training
    if training is None:
        return {}
    row: dict[str, Any] = {
        "steps": training.steps,
        "epochs": training.epochs,
        "training_loss": training.loss,
        "training_seconds": training.seconds,
        "examples_per_second": training.examples_per_second,
        "waiting_for_input": training.waiting_for_input,
    }
    if training.annealing is not None:
        row |= {"energy": training.annealing.final, "rejected_states": training.annealing.rejected}
    return row


def _of_outcome(entry: Entry) -> dict[str, Any]:
    outcome = entry.outcome
    if outcome is None:
        return {}
    row: dict[str, Any] = {
        "measure": outcome.measure,
        "value": outcome.main.value,
        "low": outcome.main.low,
        "high": outcome.main.high,
        "untrained": outcome.untrained,
        "examples": outcome.examples,
        "parameters": outcome.parameters,
        "model_bytes": outcome.model_bytes,
        "weights_sha256": outcome.weights_sha256,
    }
    for name, metric in outcome.metrics.items():
        row |= {name: metric.value, f"{name}_low": metric.low, f"{name}_high": metric.high}
    if outcome.parts:
        worst = min(outcome.parts, key=lambda part: outcome.parts[part].value)
        row |= {"worst_part": worst, "worst_part_value": outcome.parts[worst].value}
    return row
