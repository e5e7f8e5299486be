"""docs/reference/states.md: exit codes, kinds of failure, and when a stage is tried again."""

from __future__ import annotations

from podline.base.errors import PodlineError, TransientError, exit_codes, headed
from reference import table


def tables() -> dict[str, str]:
    rows = [(str(code), kind) for code, kind in exit_codes().items()]
    kinds = [(f"*{error.heading}:*", str(error.exit_code), meaning(error), delays(error)) for error in headed()]
    head = ("message begins with", "exit code", "meaning", "tried again after")
    return {"Exit codes": table(("code", "kind of failure"), rows), "Kinds of failure": table(head, kinds)}


def meaning(error: type[PodlineError]) -> str:
    return " ".join((error.__doc__ or "").split("\n\n")[0].split())


def delays(error: type[PodlineError]) -> str:
    """The seconds before each further attempt."""
    if not issubclass(error, TransientError):
        return ""
    budget = "" if error.budget == "failures" else f" ({error.budget})"
    return ", ".join(f"{delay:g}" for delay in error.retry_delays) + f" s{budget}"
