"""Makes text from files and networks safe to print: no control characters, no passwords of URLs."""

from __future__ import annotations

import re

# Control characters (except line breaks and tabs), which a terminal would obey; surrogates, which cannot be written;
# and characters that change the reading direction, or are line breaks to some programs.
_UNSHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# User and password in a URL. A password may contain an unescaped @ or /. Text after a colon may also be a port.
# The bounds keep the search linear in the length of a text.
_LOGIN = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,30}://)(?:[^\s/?#]+|[^\s/:@]{0,1000}:(?!\d+[/?#])[^\s@]{0,1000})@")


def plain(text: str) -> str:
    r"""Return a text with escaped control characters: ``\x1b[31m`` is then printed, and changes no colour.

    Tabs and line feeds stay; surrogates and marks of direction are escaped too.
    User and password in a URL become ``***``: ``https://***@host/path``.
    """
    return _LOGIN.sub(r"\1***@", _UNSHOWN.sub(_escaped, text))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
