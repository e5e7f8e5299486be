"""Budgets of retries: each cause has its delays and is counted by itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from podline.errors import TransientError


@dataclass(frozen=True)
class Retry:
    """The next try: after ``delay`` seconds; the ``number``-th of ``most`` that its budget has."""

    delay: float
    number: int
    most: int


@dataclass
class Budgets:
    """What one stage has used up of its budgets."""

    used: Counter[str] = field(default_factory=Counter[str])

    def after(self, error: object) -> Retry | None:
        """Count a failure; return the next try, or None."""
        if not isinstance(error, TransientError) or self.used[error.budget] >= len(error.retry_delays):
            return None
        delay = error.retry_delays[self.used[error.budget]]
        self.used[error.budget] += 1
        return Retry(delay, self.used[error.budget], len(error.retry_delays))
