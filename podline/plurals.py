"""Numbers of things in messages: ``1 record``, ``2,193 records``, ``0 people``."""

from __future__ import annotations


def plural(number: int, noun: str, many: str = "") -> str:
    """Return a number with its noun, in the singular after a one.

    Args:
        number: how many.
        noun: what one of them is called.
        many: what several are called; ``noun`` with an s by default.
    """
    return f"{number:,} {noun if number == 1 else many or f'{noun}s'}"
