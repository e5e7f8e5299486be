"""Writes a model's answers to many pictures as a table with a row per picture, in the order of the source."""

# pyright: standard
from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv, parquet

from podline.base.plurals import plural
from podline.documents.intervals import wilson_interval
from podline.evaluation.pictures import Batch
from podline.recipes.measures import metric_text
from podline.stages.tools import PicturePrediction
from podline.store.local_files import appearing

_REASONS = 3
_TEXT, _REAL = pa.string(), pa.float64()


def _schema(tells: str, classes: int) -> Any:
    columns = {"file": _TEXT, "label": _TEXT}
    match tells:
        case "people":
            columns |= {"found": pa.int64(), "people": _TEXT}
        case "answer":
            columns |= {"answer": _TEXT}
        case _:
            for place in range(1, classes + 1):
                columns |= {_numbered("answer", place): _TEXT, _numbered("confidence", place): _REAL}
    return pa.schema({**columns, "reason": _TEXT})


def write_table(
    path: Path,
    batches: Iterable[Batch],
    answers_to: Callable[[Batch], Iterator[PicturePrediction]],
    tells: str,
    class_names: Sequence[str],
    most: int | None,
) -> tuple[str, ...]:
    """Write the answers into a ``.csv`` or ``.parquet`` file; the file appears only when it is complete.

    Args:
        path: the file.
        batches: the pictures.
        answers_to: yields the answers for the decoded pictures of a batch.
        tells: see :attr:`podline.contract.picture_reader.PictureReader.tells`.
        class_names: names of all classes.
        most: largest number of classes or labels in a row, the most probable first; None for all.

    Returns:
        Lines of text: the number of answered pictures, the number of left-out pictures if there are any, and a
        classifier's accuracy if the source's labels are its classes.

    Raises:
        StoreError: the file cannot be written.
        SourceError: see :func:`podline.evaluation.pictures.decoded`.
    """
    known, schema = frozenset(class_names), _schema(tells, len(class_names[:most]))
    counts, reasons = Counter[str](), Counter[str]()
    with appearing(path) as temporary, _writer(temporary, path.suffix.lower(), schema) as writer:
        for rows in _rows(batches, answers_to):
            for row in rows:
                counts["pictures"] += 1
                reasons[row["reason"] or ""] += 1
                is_labelled = not row["reason"] and row["label"] in known
                counts["labelled"] += is_labelled
                counts["correct"] += is_labelled and row["label"] == row.get("answer")
            writer.write_table(pa.Table.from_pylist(rows, schema))
    return tuple(_lines(counts, reasons, is_judged=tells == "classes"))


def _writer(path: Path, suffix: str, schema: Any) -> Any:
    return csv.CSVWriter(path, schema) if suffix == ".csv" else parquet.ParquetWriter(path, schema)


def _rows(
    batches: Iterable[Batch], answers_to: Callable[[Batch], Iterator[PicturePrediction]]
) -> Iterator[list[dict[str, Any]]]:
    for batch in batches:
        answers = answers_to(batch)
        yield [
            {"file": picture.name, "label": picture.label, "reason": look.reason or None}
            | ({} if look.reason else _cells(next(answers)))
            for picture, look in zip(batch.asked, batch.looks, strict=True)
        ]


def _cells(answer: PicturePrediction) -> dict[str, Any]:
    if answer.people is not None:
        return {"found": len(answer.people), "people": json.dumps(answer.people)}
    if answer.classes is None:
        return {"answer": json.dumps(answer.answer)}
    cells = dict[str, Any]()
    for place, share in enumerate(answer.classes, 1):
        cells |= {_numbered("answer", place): share.name, _numbered("confidence", place): share.probability}
    return cells


def _numbered(name: str, place: int) -> str:
    return name if place == 1 else f"{name}_{place}"


def _lines(counts: Mapping[str, int], reasons: Counter[str], *, is_judged: bool) -> Iterator[str]:
    left_out = counts["pictures"] - reasons.pop("", 0)
    yield f"{plural(counts['pictures'] - left_out, 'picture')} answered"
    if left_out:
        named = "; ".join(f"{count:,}: {reason}" for reason, count in reasons.most_common(_REASONS))
        yield f"{plural(left_out, 'picture')} left out, see the column reason ({named})"
    if is_judged and counts["labelled"]:
        share = wilson_interval(counts["correct"], counts["labelled"])
        yield f"accuracy {metric_text('top1', share)} on {plural(counts['labelled'], 'picture')} with a label"
