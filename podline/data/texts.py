"""Normalises and parses texts from a source: cells, headers, class names and names of files."""

from __future__ import annotations

import ast
import re
import unicodedata
from typing import Any

_OUTER = re.compile("^[\\s\ufeff]+|[\\s\ufeff]+$")


def cleaned(text: str) -> str:
    """Return a text in Unicode's NFC, without outer blanks and byte order marks."""
    return text.strip() if text.isascii() else unicodedata.normalize("NFC", _OUTER.sub("", text))


def cleaned_path(path: str) -> str:
    """Apply :func:`cleaned` to each component of a path."""
    if path.isascii() and path.isprintable() and " " not in path:  # the usual case, which is fast
        return path
    return "/".join(map(cleaned, path.split("/")))


def literal(text: str) -> Any:
    """Return the value that a text of a source has as a Python literal, such as a list of names.

    Raises:
        ValueError: the text is no literal.
    """
    try:
        return ast.literal_eval(text)
    except (TypeError, SyntaxError, MemoryError, RecursionError) as error:  # TypeError: an unhashable key
        raise ValueError(str(error)) from None
