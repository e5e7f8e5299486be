"""docs/reference/states.md: exit codes, kinds of failure, and when a stage is tried again."""

from __future__ import annotations

from collections.abc import Iterator

from podline.base.errors import PodlineError, TransientError
from reference import table

OTHERS = [
    ("0", "done"),
    ("1", "a bug, or an unforeseen error"),
    ("130", "interrupted with Ctrl-C"),
]


def classes(root: type[PodlineError] = PodlineError) -> Iterator[type[PodlineError]]:
    """Podline's own errors with a heading, those of tests left out."""
    for error in root.__subclasses__():
        if error.__module__ == PodlineError.__module__:
            if "heading" in error.__dict__:
                yield error
            yield from classes(error)


def tables() -> dict[str, str]:
    """Exit codes, and kinds of failure."""
    codes: dict[int, list[str]] = {}
    for error in classes():
        codes.setdefault(error.exit_code, []).append(error.heading)
    retried = "a failure that may be gone later: all below with delays and this code"
    rows = [*OTHERS, *((str(code), retried if code == 75 else ", ".join(kinds)) for code, kinds in codes.items())]
    rows.sort(key=lambda row: int(row[0]))
    kinds = [(f"*{error.heading}:*", str(error.exit_code), meaning(error), delays(error)) for error in classes()]
    head = ("message begins with", "exit code", "meaning", "tried again after")
    return {"Exit codes": table(("code", "kind of failure"), rows), "Kinds of failure": table(head, kinds)}


def meaning(error: type[PodlineError]) -> str:
    """What the class says of itself."""
    return " ".join((error.__doc__ or "").split("\n\n")[0].split())


def delays(error: type[PodlineError]) -> str:
    """The seconds before each further attempt."""
    if not issubclass(error, TransientError):
        return ""
    budget = "" if error.budget == "failures" else f" ({error.budget})"
    return ", ".join(f"{delay:g}" for delay in error.retry_delays) + f" s{budget}"
