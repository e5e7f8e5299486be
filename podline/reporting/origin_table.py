"""The report's table of what produced a model: code and environment."""

from __future__ import annotations

from collections.abc import Iterator

from podline import figures
from podline.documents.ledger_entry import Origin
from podline.reporting.ledger_lines import code_in_words
from podline.reporting.tables import Table, facts

# In the order in which they are shown; only one of the two builds of TensorFlow is there.
_PACKAGES = ("tensorflow", "tensorflow-tpu", "keras", "apache-beam", "prefect", "numpy", "pandas", "matplotlib")


def origin_table(origin: Origin | None) -> Table:
    """Code, machine and the packages that matter most; all of them are in ``origin.json``."""
    return facts(_rows(origin) if origin else [("not known", "the run's folder has no origin.json")])


def _rows(origin: Origin) -> Iterator[tuple[str, str]]:
    where = origin.environment
    yield "code", code_in_words(origin.code)
    yield "podline", origin.code.version
    yield "python", where.python
    for package in _PACKAGES:
        if package in where.packages:
            yield package, where.packages[package]
    yield "platform", where.platform
    yield "cores", str(where.cores)
    yield "memory", figures.size(where.memory)
