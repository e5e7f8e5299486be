"""Numbers and names of things in messages: ``1 record``, ``2,193 records``, ``cat, dog and 3 more``."""

from __future__ import annotations

from collections.abc import Sequence


def plural(number: int, noun: str, many: str = "") -> str:
    """Return a number with its noun, in the singular for one.

    Args:
        number: the number.
        noun: the singular.
        many: the plural; by default ``noun`` with an s.
    """
    return f"{number:,} {noun if number == 1 else many or f'{noun}s'}"


def first_few(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first names, and the number of the others.

    Args:
        names: all names.
        most: number of names that are listed.
        separator: text between two names.
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{separator.join(names[:most])}{more}"
