"""Numbers of things in messages: ``1 record``, ``2,193 records``, ``0 people``."""

from __future__ import annotations


def plural(number: int, noun: str, many: str = "") -> str:
    """Return a number with its noun, in the singular for one.

    Args:
        number: the number.
        noun: the singular.
        many: the plural; by default ``noun`` with an s.
    """
    return f"{number:,} {noun if number == 1 else many or f'{noun}s'}"
