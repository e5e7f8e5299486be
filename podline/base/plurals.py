"""Formats counts and lists for messages: ``1 record``, ``2,193 records``, ``cat, dog and 3 more``."""

from __future__ import annotations

from collections.abc import Sequence


def plural(number: int, noun: str, many: str = "") -> str:
    """Return a number and its noun, singular for 1: ``1 record``, ``2,193 records``.

    Args:
        number: the number.
        noun: the noun in the singular.
        many: the noun in the plural; by default ``noun`` with an s.
    """
    return f"{number:,} {noun if number == 1 else many or f'{noun}s'}"


def first_few(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first names, and how many names are left out: ``cat, dog and 3 more``.

    Args:
        names: all names.
        most: number of names that are listed.
        separator: text between two names.
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{separator.join(names[:most])}{more}"
