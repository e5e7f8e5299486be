"""Escapes texts for HTML and Markdown."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from podline.base.plain import plain

_MEANS_SOMETHING = re.compile(
    r"[\\`*|]|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[:])"
    # Characters by which GitHub recognizes a URL or mail address: the slash after http:, the dot after www, the @.
    r"|(?i:(?<=http:)|(?<=https:)|(?<=ftp:))/|(?i:(?<=\bwww))\.|(?<=[\w.+-])@"
)


_INTERVAL = r"\[[-+−]?[\d.]+, [-+−]?[\d.]+\]"


class Markdown(str):
    """Text that is already Markdown."""

    __slots__ = ()


def markdown(text: object) -> Markdown:
    """Escape a text for Markdown, since names of classes and files may contain markup.

    Only characters with a meaning in Markdown or HTML are escaped. URLs are escaped too, since GitHub's Markdown, which
    Prefect's UI uses, would make them links.
    """
    if isinstance(text, Markdown):
        return text
    line = re.sub(r"\s*\n\s*", " ", plain(str(text)))
    line = _MEANS_SOMETHING.sub(r"\\\g<0>", line)
    return Markdown(re.sub(r"&(?=#?\w+;)", "&amp;", line).replace("<", "&lt;"))


def unbroken(text: object) -> object:
    """Escape a text for HTML without line breaks in ``82.3 %`` and in intervals; return markup unchanged."""
    if not isinstance(text, str) or hasattr(text, "__html__"):
        return text
    text = re.sub(r"(\d) %", "\\1\N{NO-BREAK SPACE}%", str(escape(text)))
    return Markup(re.sub(_INTERVAL, r'<span class="interval">\g<0></span>', text))  # noqa: S704 (escaped above)
