"""The templates of this package's pages: HTML, of which what is filled in is escaped, and Markdown."""

from __future__ import annotations

import re

import jinja2

TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("podline", "reporting"),
    autoescape=jinja2.select_autoescape(("html",)),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def unbroken(page: str) -> str:
    """A page on which a figure and its unit are never on two lines."""
    # A figure and its unit stay on one line, and so do the ends of an interval.
    page = re.sub(r"(\d) %", "\\1\N{NO-BREAK SPACE}%", page)
    return re.sub(r"(\[[\d.]+,) ([\d.]+\])", "\\1\N{NO-BREAK SPACE}\\2", page)
