"""Formats untrusted text and values for one line of an error or of the quarantine."""

from __future__ import annotations

import reprlib
from typing import Any

_LETTERS = 120
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80


def printable(text: object, most: int = _LETTERS) -> str:
    """Replace each unprintable character by a question mark, and cut the text after ``most`` characters."""
    text = str(text)[:most]
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


def shortened(value: Any) -> str:
    """Return the :func:`repr` of a value, shortened; the value may be large or deeply nested."""
    return _REPR.repr(value)[:80]
