"""The blocks of a report's section: each has a form in HTML and one in Markdown.

A text is shown as it is, whatever it holds: names of classes and files may be anybody's.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from markupsafe import Markup, escape

from podline import figures
from podline.drawing.svg import Svg
from podline.ledger.differences import NONE
from podline.reporting.escaping import Markdown, code, markdown, unbroken

# Characters of what a table is called for those who hear it.
_LABEL = 120
_HEADER = Markup('<th scope="col">{}</th>')


class Block(Protocol):
    """A part of a section."""

    def html(self) -> Markup:
        """Return the block as HTML."""
        ...

    def markdown(self) -> str:
        """Return the block as Markdown; empty if only HTML can show it."""
        ...


@dataclass(frozen=True)
class Text:
    """A paragraph.

    Attributes:
        text: of it.
        style: ``note`` is small, ``warning`` stands out.
    """

    text: str
    style: Literal["", "note", "warning"] = ""

    def html(self) -> Markup:
        """Return a paragraph of the page."""
        attribute = Markup(' class="{}"').format(self.style) if self.style else ""
        return Markup("<p{}>{}</p>").format(attribute, unbroken(self.text))

    def markdown(self) -> str:
        """Return the text, escaped."""
        return markdown(self.text)


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str

    def html(self) -> Markup:
        """Return a heading of the third level."""
        return Markup("<h3>{}</h3>").format(self.text)

    def markdown(self) -> str:
        """Return a heading of the third level."""
        return f"### {markdown(self.text)}"


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        columns: their names.
        rows: the first of a row says what the row is about.
        words: how many columns, from the left, hold words; the others hold figures, which are aligned right.
        header: whether the columns' names are shown.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    header: bool = True

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, str]], words: int = 1) -> Table:
        """Return rows, column → text, as a table; a dash is where a row lacks a column that another one has."""
        found = [*rows]
        columns = [*dict.fromkeys(column for row in found for column in row)]
        return cls(columns, [[row.get(column, NONE) for column in columns] for row in found], words)

    @classmethod
    def of_facts(cls, pairs: Iterable[tuple[str, str]]) -> Table:
        """Return facts, each with its name before it."""
        return cls(["", ""], [*pairs], words=2, header=False)

    def html(self) -> Markup:
        """Return the table in a frame that scrolls where the page is too narrow for it."""
        style = "facts" if self.words == len(self.columns) else f"figures words-{self.words}"
        names = filter(None, self.columns if self.header else (row[0] for row in self.rows))
        head = [_HEADER.format(name) if name else Markup("<td></td>") for name in self.columns]
        return Markup(
            '<div class="scroll" tabindex="0" role="group" aria-label="Table: {}">\n'
            '<table class="{}">\n{}<tbody>\n{}\n</tbody>\n</table></div>'
        ).format(
            textwrap.shorten(", ".join(names), _LABEL, placeholder="…"),
            style,
            Markup("<thead><tr>{}</tr></thead>\n").format(Markup().join(head)) if self.header else "",
            Markup("\n").join(map(self._row, self.rows)),
        )

    @staticmethod
    def _row(texts: Sequence[str]) -> Markup:
        first, *others = map(unbroken, texts)
        cells = Markup().join(Markup("<td>{}</td>").format(cell) for cell in others)
        return Markup('<tr><th scope="row">{}</th>{}</tr>').format(first, cells)

    def markdown(self) -> Markdown:
        """Return the table in GitHub's Markdown."""
        rules = [":--" if place < self.words else "--:" for place in range(len(self.columns))]
        rows = [self.columns, rules, *self.rows]
        return Markdown("\n".join("| " + " | ".join(map(markdown, row)) + " |" for row in rows))

    def __len__(self) -> int:
        """Rows."""
        return len(self.rows)


@dataclass(frozen=True)
class Chart:
    """A chart of :mod:`podline.drawing.drawing`, on the page alone; its figures are in a table."""

    svg: Svg
    title: str = ""
    caption: str = ""
    wide: bool = False

    def html(self) -> Markup:
        """Return a figure of the page."""
        title = Markup("<h3>{}</h3>").format(self.title) if self.title else ""
        caption = Markup("<figcaption>{}</figcaption>").format(unbroken(self.caption)) if self.caption else ""
        svg = self.svg.html()
        if self.wide:
            svg = Markup('<div class="scroll wide" tabindex="0" role="group" aria-label="Chart">{}</div>').format(svg)
        return Markup("<figure>{}{}{}</figure>").format(title, svg, caption)

    def markdown(self) -> str:
        """Return nothing."""
        return ""


class Picture(NamedTuple):
    """One image, or two beside each other.

    Attributes:
        images: the ``data:`` address and the alternative text of each.
        caption: below them.
        details: lines below the caption.
    """

    images: Sequence[tuple[str, str]]
    caption: str = ""
    details: Sequence[str] = ()


@dataclass(frozen=True)
class Pictures:
    """Images with captions; in Markdown the captions alone.

    Attributes:
        pictures: at least one.
        style: ``small`` for images of a few pixels, ``pairs`` for two photographs each, ``panels`` for many maps.
    """

    pictures: Sequence[Picture]
    style: Literal["small", "pairs", "panels"] = "small"

    def html(self) -> Markup:
        """Return a list of the page."""
        entries = [self._entry(picture) for picture in self.pictures]
        return Markup('<ul class="pictures {}">\n{}\n</ul>').format(self.style, Markup("\n").join(entries))

    @staticmethod
    def _entry(picture: Picture) -> Markup:
        images = Markup().join(Markup('<img src="{}" alt="{}">').format(*image) for image in picture.images)
        lines = [Markup("<b>{}</b>").format(unbroken(picture.caption))] if picture.caption else []
        lines += [Markup("<span>{}</span>").format(unbroken(line)) for line in picture.details]
        words = Markup("<p>{}</p>").format(Markup("<br>").join(lines)) if lines else ""
        return Markup("<li><div>{}</div>{}</li>").format(images, words)

    def markdown(self) -> str:
        """Return a list of those with details."""
        told = [", ".join((picture.caption, *picture.details)) for picture in self.pictures if picture.details]
        return Items(told).markdown()


@dataclass(frozen=True)
class Items:
    """A list of texts."""

    texts: Sequence[str]

    def html(self) -> Markup:
        """Return a list of the page."""
        entries = [Markup("<li>{}</li>").format(unbroken(text)) for text in self.texts]
        return Markup("<ul>\n{}\n</ul>").format(Markup("\n").join(entries))

    def markdown(self) -> str:
        """Return a list."""
        return "\n".join(f"- {markdown(text)}" for text in self.texts)


@dataclass(frozen=True)
class Code:
    """A command, to be copied."""

    text: str

    def html(self) -> Markup:
        """Return a frame that scrolls."""
        return Markup('<pre tabindex="0"><code>{}</code></pre>').format(self.text)

    def markdown(self) -> str:
        """Return a block of code."""
        return f"```\n{code(self.text)}\n```"


@dataclass(frozen=True)
class Key:
    """The meaning of colours in pictures: name → red, green, blue; on the page alone."""

    colours: Mapping[str, tuple[int, int, int]]

    def html(self) -> Markup:
        """Return a line with a dot of each colour."""
        dot = Markup('<i style="background: #{}"></i>{}')
        dots = [dot.format(bytes(colour).hex(), name) for name, colour in self.colours.items()]
        return Markup('<p class="note key">{}</p>').format(Markup(" ").join(dots))

    def markdown(self) -> str:
        """Return nothing."""
        return ""


@dataclass(frozen=True)
class Kicker:
    """The line above a page's headline: what the page is about, and the way to the index of nights.

    Attributes:
        about: texts.
        index: the index's address; empty for none.
    """

    about: Sequence[str]
    index: str = ""

    def html(self) -> Markup:
        """Return a line of the page."""
        parts = [Markup("Podline"), *(Markup("<b>{}</b>").format(unbroken(text)) for text in self.about)]
        if self.index:
            parts.append(Markup('<a href="{}">all nights</a>').format(self.index))
        return Markup('<p class="kicker">{}</p>').format(Markup(" · ").join(parts))

    def markdown(self) -> str:
        """Return the texts in a line."""
        return " · ".join(map(markdown, self.about))


@dataclass(frozen=True)
class Title:
    """A page's headline.

    Attributes:
        figure: in large letters.
        text: what goes on from it.
        small: beside the figure, in small letters.
    """

    figure: str
    text: str
    small: str = ""

    def html(self) -> Markup:
        """Return a heading of the first level."""
        small = Markup(" <small>{}</small>").format(unbroken(self.small)) if self.small else ""
        return Markup("<h1><strong>{}{}</strong> {}</h1>").format(unbroken(self.figure), small, unbroken(self.text))

    def markdown(self) -> str:
        """Return a heading of the first level."""
        return f"# {' '.join(markdown(text) for text in (self.figure, self.small, self.text) if text)}"


@dataclass(frozen=True)
class Standing:
    """A result that stands out: a comparison, a decision.

    Attributes:
        strong: its first words.
        text: what goes on from them.
        lines: below it.
        style: what to think of it: ``better``, ``worse`` or ``noise``.
        sign: before the first words, on the page alone.
    """

    strong: str
    text: str
    lines: Sequence[str] = ()
    style: str = "noise"
    sign: str = ""

    def html(self) -> Markup:
        """Return a framed part of the page."""
        sign = Markup('<span aria-hidden="true">{}</span> ').format(self.sign) if self.sign else ""
        return Markup('<div class="standing {}"><p><strong>{}{}</strong>{}</p>{}</div>').format(
            self.style, sign, self.strong, unbroken(self.text), Items(self.lines).html() if self.lines else ""
        )

    def markdown(self) -> str:
        """Return all of it in a paragraph."""
        return markdown("; ".join((f"{self.strong}{self.text}".removesuffix("." if self.lines else ""), *self.lines)))


class Tile(NamedTuple):
    """A figure by itself.

    Attributes:
        name: what it is.
        figure: with its interval.
        change: since the run that it is held against, with its sign; empty where there is none.
        word: what to think of the change: ``better``, ``worse``, ``noise``; empty where nothing can be thought.
        line: of the last nights.
    """

    name: str
    figure: str
    change: str = ""
    word: str = ""
    line: Markup = Markup()

    def html(self) -> Markup:
        """Return an entry of a list of terms."""
        changed = Markup(' <span class="change {}"><span aria-hidden="true">{}</span> {}</span>')
        change = changed.format(self.word, figures.arrow(self.change), self.change) if self.change else ""
        return Markup("<div><dt>{}</dt><dd>{}{}{}</dd></div>").format(
            self.name, unbroken(self.figure), change, self.line
        )


@dataclass(frozen=True)
class Tiles:
    """Figures beside each other, on the page alone: tables have them too."""

    tiles: Sequence[Tile]
    note: str = ""

    def html(self) -> Markup:
        """Return a list of terms."""
        note = Text(self.note, "note").html() if self.note else ""
        tiles = Markup("\n").join(tile.html() for tile in self.tiles)
        return Markup('<dl class="tiles">\n{}\n</dl>\n{}').format(tiles, note)

    def markdown(self) -> str:
        """Return nothing."""
        return ""


class Fold:
    """Blocks that are folded away on the page; in Markdown they are below a heading."""

    def __init__(self, summary: str, *blocks: Block) -> None:
        self.summary, self.blocks = summary, blocks

    def html(self) -> Markup:
        """Return an element that opens; print shows it open."""
        return Markup("<details><summary>{}</summary>{}</details>").format(self.summary, html_of(self.blocks))

    def markdown(self) -> str:
        """Return the blocks below a heading; an empty text if the blocks are empty."""
        found = markdown_of(self.blocks)
        return f"{Heading(self.summary).markdown()}\n\n{found}" if found else ""


class Column:
    """Blocks below each other in a :class:`Grid`."""

    def __init__(self, *blocks: Block) -> None:
        self.blocks = blocks

    def html(self) -> Markup:
        """Return one element."""
        return Markup("<div>{}</div>").format(html_of(self.blocks))

    def markdown(self) -> str:
        """Return the blocks, one after the other."""
        return markdown_of(self.blocks)


class Grid(Column):
    """Blocks beside each other, where the page is wide enough."""

    def html(self) -> Markup:
        """Return one element."""
        return Markup('<div class="grid">\n{}\n</div>').format(html_of(self.blocks))


def html_of(blocks: Iterable[Block]) -> Markup:
    """Return blocks as elements of the page."""
    return Markup("\n").join(escape(block.html()) for block in blocks)


def markdown_of(blocks: Iterable[Block]) -> str:
    """Return blocks in Markdown."""
    return "\n\n".join(filter(None, (block.markdown() for block in blocks)))


def charts_of(blocks: Iterable[Block]) -> Iterator[Svg]:
    """Yield the charts among blocks, also those in other blocks."""
    for block in blocks:
        if isinstance(block, Chart):
            yield block.svg
        elif isinstance(block, Fold | Column):
            yield from charts_of(block.blocks)
