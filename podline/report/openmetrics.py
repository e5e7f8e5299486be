"""Writes the newest night of each recipe and schedule as OpenMetrics text, for Prometheus's textfile collector."""

from __future__ import annotations

from collections.abc import Iterable

from podline.documents.ledger_entry import Entry

_ABOUT = {
    "podline_night_ended_timestamp_seconds": "when the night ended, Unix time",
    "podline_night_finished": "1 if the night finished, 0 if it failed or was cancelled",
    "podline_night_seconds": "time from the moment at which the night was due to its end, by class",
    "podline_night_result": "value of the main metric",
}
_ENDED, _FINISHED, _SECONDS, _RESULT = _ABOUT


def openmetrics(entries: Iterable[Entry]) -> str:
    """Return the newest night of each recipe and schedule as OpenMetrics text; ``entries`` are oldest first."""
    newest = {(entry.recipe, entry.schedule): entry for entry in entries if entry.is_night}
    lines: list[str] = []
    for name, about in _ABOUT.items():
        lines += [f"# TYPE {name} gauge", f"# HELP {name} {about}"]
        for entry in newest.values():
            for labels, value in _samples(name, entry):
                every = {"recipe": entry.recipe, "schedule": entry.schedule, **labels}
                shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in every.items())
                lines.append(f"{name}{{{shown}}} {value}")
    return "\n".join([*lines, "# EOF\n"])


def _samples(name: str, entry: Entry) -> list[tuple[dict[str, str], float]]:
    outcome = entry.outcome
    found: dict[str, list[tuple[dict[str, str], float]]] = {
        _ENDED: [({}, entry.ended)],
        _FINISHED: [({}, float(entry.state == "finished"))],
        _SECONDS: [({"class": kind}, seconds) for kind, seconds in entry.spent.items()],
        _RESULT: [({"measure": outcome.measure}, outcome.main.value)] if outcome else [],
    }
    return found[name]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
