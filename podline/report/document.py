"""Renders a page as one self-contained HTML document."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files

from markupsafe import Markup, escape

from podline.report.blocks import Block

_DOCUMENT = Markup("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{} · Podline</title>
<style>
{}
</style>
</head>
<body>
<main>
<header>
{}
</header>
{}{}
</main>
</body>
</html>
""")
Sections = Iterable[tuple[str | Markup, Iterable[Block]]]


def document(
    title: str, header: Iterable[Block], sections: Sections, styles: Iterable[str] = ("page.css",), rules: str = ""
) -> str:
    """Render a page.

    Args:
        title: title in the browser's tab.
        header: blocks above all sections.
        sections: heading and blocks of each section.
        styles: CSS files of this package.
        rules: further CSS.
    """
    texts = [*(files("podline.report").joinpath(name).read_text() for name in styles), rules]
    css = Markup("\n".join(filter(None, texts)))  # noqa: S704 (not user input)
    shown = [(f"section-{number}", heading, _joined(blocks)) for number, (heading, blocks) in enumerate(sections, 1)]
    parts = (
        Markup('\n<section id="{}">\n<h2>{}</h2>\n{}\n</section>').format(anchor, heading, blocks)
        for anchor, heading, blocks in shown
    )
    links = (Markup('<a href="#{}">{}</a>').format(anchor, escape(heading).striptags()) for anchor, heading, _ in shown)
    contents = Markup('<nav aria-label="Contents">{}</nav>').format(Markup(" · ").join(links)) if shown[3:] else ""
    return _DOCUMENT.format(title, css, _joined(header), contents, _joined(parts))


def _joined(parts: Iterable[Block | Markup]) -> Markup:
    return Markup("\n").join(parts)
