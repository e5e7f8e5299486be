"""The table for a review: written with suspects, filled in by a person, read and checked."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from podline.base.errors import SettingsError
from podline.documents.corrections import Correction
from podline.documents.suspects import Suspect, SuspectsDocument
from podline.store.contract import explained

DECISIONS = ("keep", "relabel", "drop")
# The columns to fill in come first; `label` is the present label.
_OF_SUSPECTS = ("file", "split", "record", "repeats", "image")
COLUMNS = ("decision", "new_label", "number", "label", "wrong", *_OF_SUSPECTS, "dataset")
_IMAGE = re.compile("[0-9a-f]{32}|[0-9a-f]{64}")


class Filled(NamedTuple):
    """A completed review.

    Attributes:
        dataset: name of the data set.
        corrections: decisions by the identity of an image.
        undecided: number of rows without a decision; these labels stay unchanged.
    """

    dataset: str
    corrections: dict[str, Correction]
    undecided: int


def write_review(document: SuspectsDocument, suspects: Iterable[Suspect], file: Path) -> int:
    """Write the table of some suspects; return its number of rows.

    Raises:
        SettingsError: the file exists, and a person may have filled it in.
        StoreError: the file cannot be written.
    """
    if file.exists():
        raise SettingsError(f"{file} exists, and may be filled in; give another --out, or delete it")
    rows: list[dict[Any, Any]] = [
        {
            "decision": "",
            "new_label": suspect.suggested,
            "number": number,
            "wrong": f"{suspect.wrong:.2f}",
            **suspect.model_dump(include={"label", *_OF_SUSPECTS}),
            "dataset": document.dataset,
        }
        for number, suspect in enumerate(suspects, start=1)
    ]
    with explained("write", file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
    return len(rows)


def read_review(file: Path, class_names: Iterable[str] | None = None) -> Filled:
    """Read a completed review.

    Args:
        file: the table.
        class_names: class names of the data set; other new labels are refused. None accepts any label but an empty one.

    Raises:
        SettingsError: the file is not a table in UTF-8, a row is invalid, or there is not exactly one data set.
        StoreError: the file cannot be read.
    """
    try:
        with explained("read", file), file.open(newline="", encoding="utf-8-sig") as stream:
            rows = list(csv.DictReader(stream))
    except (UnicodeDecodeError, csv.Error) as error:
        raise SettingsError(f"{file} is not a CSV file in UTF-8 ({error}); save the table as CSV in UTF-8") from error
    datasets, corrections, undecided = set[str](), dict[str, Correction](), 0
    known = None if class_names is None else set(class_names)
    for number, row in enumerate(rows, start=2):
        where = f"{file}, line {number}"
        if missing := [
            name for name in ("decision", "new_label", "label", "image", "dataset") if row.get(name) is None
        ]:
            raise SettingsError(
                f"{where}: got no column {missing[0]}, expected one; take the table of `podline data review`"
            )
        decision, label = row["decision"].strip().lower(), row["new_label"].strip()
        datasets.add(row["dataset"])
        if not decision:
            undecided += 1
            continue
        if decision not in DECISIONS:
            raise SettingsError(
                f"{where}: got decision={decision!r}, expected {', '.join(DECISIONS)}; or leave it empty"
            )
        if not _IMAGE.fullmatch(row["image"]):
            raise SettingsError(f"{where}: got image={row['image']!r}, expected an identity; do not change this column")
        if decision == "relabel" and (not label or (known is not None and label not in known)):
            expected = "a label" if known is None else f"one of {', '.join(sorted(known))}"
            raise SettingsError(f"{where}: got new_label={label!r}, expected {expected}; correct it, or drop the image")
        found = Correction(decision=decision, label=label if decision == "relabel" else "")
        if corrections.setdefault(row["image"], found) != found:
            raise SettingsError(f"{where}: got a second decision on an image, expected one; delete one of the rows")
    if not datasets:
        raise SettingsError(f"{file} has no rows; take the table of `podline data review`")
    if len(datasets) > 1:
        raise SettingsError(f"{file}: got rows of {len(datasets)} data sets, expected one; split the table")
    return Filled(datasets.pop(), corrections, undecided)
