"""docs/reference/limits.md: what an untrusted file may cost."""

from __future__ import annotations

from podline.data import bounds
from reference import constants_of, table


def tables() -> dict[str, str]:
    values = {name: value for name, value in vars(bounds).items() if name.isupper()}
    reasons = constants_of(bounds)
    rows = ((f"`{name}`", f"{value:,}", reasons[name]) for name, value in values.items())
    return {"Bounds": table(("bound", "value", "of what, and why"), rows)}
