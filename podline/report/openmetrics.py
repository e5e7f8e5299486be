"""Writes the newest night of each recipe and schedule as OpenMetrics text, for Prometheus's textfile collector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from podline.documents.ledger_entry import Entry


def openmetrics(entries: Iterable[Entry]) -> str:
    """Return the metrics of the newest night of each recipe and schedule as OpenMetrics text.

    Args:
        entries: the entries, oldest first.
    """
    newest = {(entry.recipe, entry.schedule): entry for entry in entries if entry.is_night}
    families = {
        "podline_night_ended_timestamp_seconds": ("when the night ended, Unix time", _ended),
        "podline_night_finished": ("1 if the night finished, 0 if it failed or was cancelled", _finished),
        "podline_night_seconds": ("time from the moment at which the night was due, by class", _spent),
        "podline_night_result": ("the metric that counts", _result),
    }
    lines: list[str] = []
    for name, (about, samples) in families.items():
        lines += [f"# TYPE {name} gauge", f"# HELP {name} {about}"]
        for entry in newest.values():
            for labels, value in samples(entry):
                every = {"recipe": entry.recipe, "schedule": entry.schedule, **labels}
                shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in every.items())
                lines.append(f"{name}{{{shown}}} {value}")
    return "\n".join([*lines, "# EOF\n"])


def _ended(entry: Entry) -> Iterator[tuple[dict[str, str], float]]:
    yield {}, entry.ended


def _finished(entry: Entry) -> Iterator[tuple[dict[str, str], float]]:
    yield {}, float(entry.state == "finished")


def _spent(entry: Entry) -> Iterator[tuple[dict[str, str], float]]:
    for kind, seconds in entry.spent.items():
        yield {"class": kind}, seconds


def _result(entry: Entry) -> Iterator[tuple[dict[str, str], float]]:
    if entry.outcome:
        yield {"measure": entry.outcome.measure}, entry.outcome.main.value


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
