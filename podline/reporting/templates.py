"""The templates of this package's pages: HTML, of which what is filled in is escaped, and Markdown."""

from __future__ import annotations

import jinja2

TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("podline", "reporting"),
    autoescape=jinja2.select_autoescape(("html",)),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
