"""Tables that several pages have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podline import figures
from podline.reporting.blocks import Table
from podline.settings import flat


def in_words(document: Mapping[str, Any]) -> dict[str, str]:
    """Return every value of a document in words, nested ones by their path, but those that are not given."""
    return {path: _in_words(value) for path, value in flat(document).items() if value not in (None, [])}


def _in_words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return figures.rounded(value) if isinstance(value, float) else str(value)


def by_run(names: Sequence[str], rows: Mapping[str, Sequence[str]]) -> Table:
    """Return what is told of several runs: a column for each run."""
    return Table.of({"": what, **dict(zip(names, texts, strict=True))} for what, texts in rows.items())
