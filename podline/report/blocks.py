"""The blocks of a report's section; each block renders as HTML and as Markdown.

Texts are escaped, since names of classes and files may contain markup.
"""

from __future__ import annotations

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from markupsafe import Markup, escape

from podline.base import figures
from podline.base.drawing.svg import Svg
from podline.compare.settings import NONE
from podline.report.escaping import Markdown, code, markdown, unbroken

# Length of a table's label for screen readers, in characters.
_LABEL = 120
_HEADER = Markup('<th scope="col">{}</th>')


class Block(ABC):
    """A part of a section."""

    @abstractmethod
    def html(self) -> Markup:
        """Return the block as HTML."""

    def markdown(self) -> str:
        """Return the block as Markdown; empty if only HTML can show it."""
        return ""


@dataclass(frozen=True)
class Text(Block):
    """A paragraph.

    Attributes:
        text: the text of the paragraph.
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
class Heading(Block):
    """A heading within a section."""

    text: str

    def html(self) -> Markup:
        """Return a heading of the third level."""
        return Markup("<h3>{}</h3>").format(self.text)

    def markdown(self) -> str:
        """Return a heading of the third level."""
        return f"### {markdown(self.text)}"


@dataclass(frozen=True)
class Table(Block):
    """A table.

    Attributes:
        columns: the names of the columns.
        rows: the rows; the first cell names the subject of its row.
        words: number of columns, from the left, with words; the others have figures, which are aligned right.
        header: whether the names of the columns are shown.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    header: bool = True

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, str]], words: int = 1) -> Table:
        """Make a table from rows, column → text; a dash stands for a missing column."""
        found = [*rows]
        columns = [*dict.fromkeys(column for row in found for column in row)]
        return cls(columns, [[row.get(column, NONE) for column in columns] for row in found], words)

    @classmethod
    def of_facts(cls, pairs: Iterable[tuple[str, str]]) -> Table:
        """Make a table of facts from (name, value) pairs."""
        return cls(["", ""], [*pairs], words=2, header=False)

    def html(self) -> Markup:
        """Return the table in a frame that scrolls on narrow pages."""
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
        """Return the number of rows."""
        return len(self.rows)


@dataclass(frozen=True)
class Chart(Block):
    """A chart of :mod:`podline.base.drawing.drawing`; HTML only, as its figures are in a table."""

    svg: Svg
    title: str = ""
    caption: str = ""
    wide: bool = False

    def html(self) -> Markup:
        """Return a figure of the page."""
        title = Heading(self.title).html() if self.title else ""
        caption = Markup("<figcaption>{}</figcaption>").format(unbroken(self.caption)) if self.caption else ""
        svg = self.svg.html()
        if self.wide:
            svg = Markup('<div class="scroll wide" tabindex="0" role="group" aria-label="Chart">{}</div>').format(svg)
        return Markup("<figure>{}{}{}</figure>").format(title, svg, caption)


class Picture(NamedTuple):
    """One image, or two images side by side.

    Attributes:
        images: the ``data:`` address and the alternative text of each image.
        caption: the caption below.
        details: lines below the caption.
    """

    images: Sequence[tuple[str, str]]
    caption: str = ""
    details: Sequence[str] = ()


@dataclass(frozen=True)
class Pictures(Block):
    """Images with captions; Markdown has only the captions.

    Attributes:
        pictures: one picture or more.
        style: ``small`` for images of a few pixels, ``pairs`` for two photographs each, ``panels`` for many maps.
    """

    pictures: Sequence[Picture]
    style: Literal["small", "pairs", "panels"] = "small"

    def html(self) -> Markup:
        """Return a list for the page."""
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
        """Return a list of the captions with details."""
        told = [", ".join((picture.caption, *picture.details)) for picture in self.pictures if picture.details]
        return Items(told).markdown()


@dataclass(frozen=True)
class Items(Block):
    """A list of texts."""

    texts: Sequence[str]

    def html(self) -> Markup:
        """Return a list for the page."""
        entries = [Markup("<li>{}</li>").format(unbroken(text)) for text in self.texts]
        return Markup("<ul>\n{}\n</ul>").format(Markup("\n").join(entries))

    def markdown(self) -> str:
        """Return a list."""
        return "\n".join(f"- {markdown(text)}" for text in self.texts)


@dataclass(frozen=True)
class Code(Block):
    """A command to copy."""

    text: str

    @classmethod
    def of(cls, commands: Mapping[str, str]) -> Code:
        """Make a list of commands, command → what it does."""
        width = max(map(len, commands))
        return cls("\n".join(f"{command:{width}}  # {what}" for command, what in commands.items()))

    def html(self) -> Markup:
        """Return a frame that scrolls."""
        return Markup('<pre tabindex="0"><code>{}</code></pre>').format(self.text)

    def markdown(self) -> str:
        """Return a block of code."""
        return f"```\n{code(self.text)}\n```"


@dataclass(frozen=True)
class Key(Block):
    """The meaning of colours in pictures: name → red, green, blue; HTML only."""

    colours: Mapping[str, tuple[int, int, int]]

    def html(self) -> Markup:
        """Return a line with a dot in each colour."""
        dot = Markup('<i style="background: #{}"></i>{}')
        dots = [dot.format(bytes(colour).hex(), name) for name, colour in self.colours.items()]
        return Markup('<p class="note key">{}</p>').format(Markup(" ").join(dots))


@dataclass(frozen=True)
class Kicker(Block):
    """The line above a page's headline: the subject of the page, and a link to the index of nights.

    Attributes:
        about: texts of the line.
        index: the address of the index; empty for none.
    """

    about: Sequence[str]
    index: str = ""

    def html(self) -> Markup:
        """Return a line for the page."""
        parts = [Markup("Podline"), *(Markup("<b>{}</b>").format(unbroken(text)) for text in self.about)]
        if self.index:
            parts.append(Markup('<a href="{}">all nights</a>').format(self.index))
        return Markup('<p class="kicker">{}</p>').format(Markup(" · ").join(parts))

    def markdown(self) -> str:
        """Return the texts as one line."""
        return " · ".join(map(markdown, self.about))


@dataclass(frozen=True)
class Title(Block):
    """A page's headline.

    Attributes:
        figure: the figure, in large letters.
        text: the text after the figure.
        small: small text beside the figure.
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
class Standing(Block):
    """A highlighted result: a comparison or a decision.

    Attributes:
        strong: its first words.
        text: the text after them.
        lines: texts below.
        style: the verdict: ``better``, ``worse`` or ``noise``.
        sign: a sign before the first words, HTML only.
    """

    strong: str
    text: str
    lines: Sequence[str] = ()
    style: str = "noise"
    sign: str = ""

    def html(self) -> Markup:
        """Return a framed part of the page."""
        lines = Items(self.lines).html() if self.lines else ""
        return Markup('<div class="standing {}"><p><strong>{}{}</strong>{}</p>{}</div>').format(
            self.style, sign(self.sign), self.strong, unbroken(self.text), lines
        )

    def markdown(self) -> str:
        """Return all texts as one paragraph."""
        if not self.text:
            return markdown(f"{self.strong}: {'; '.join(self.lines)}")
        return markdown("; ".join((f"{self.strong}{self.text}".removesuffix("." if self.lines else ""), *self.lines)))


class Tile(NamedTuple):
    """A single figure.

    Attributes:
        name: name of the figure.
        figure: its value with interval.
        change: the signed difference from the compared run; empty without one.
        word: the verdict on the change: ``better``, ``worse``, ``noise``; empty without one.
        line: a line of the last nights.
    """

    name: str
    figure: str
    change: str = ""
    word: str = ""
    line: Markup = Markup()

    def html(self) -> Markup:
        """Return an entry of a list of terms."""
        changed = Markup(' <span class="change {}">{}{}</span>')
        change = changed.format(self.word, sign(figures.arrow(self.change)), self.change) if self.change else ""
        return Markup("<div><dt>{}</dt><dd>{}{}{}</dd></div>").format(
            self.name, unbroken(self.figure), change, self.line
        )


@dataclass(frozen=True)
class Tiles(Block):
    """Figures side by side; HTML only, as tables have them too."""

    tiles: Sequence[Tile]
    note: str = ""

    def html(self) -> Markup:
        """Return a list of terms."""
        note = Text(self.note, "note").html() if self.note else ""
        tiles = Markup("\n").join(tile.html() for tile in self.tiles)
        return Markup('<dl class="tiles">\n{}\n</dl>\n{}').format(tiles, note)


class Fold(Block):
    """Blocks that are folded on the page, unless ``opened``; in Markdown they follow a heading."""

    def __init__(self, summary: str, *blocks: Block, opened: bool = False) -> None:
        self.summary, self.blocks, self.opened = summary, blocks, opened

    def html(self) -> Markup:
        """Return an element that opens on a click; in print it is open."""
        opened = " open" if self.opened else ""
        return Markup("<details{}><summary>{}</summary>{}</details>").format(opened, self.summary, html_of(self.blocks))

    def markdown(self) -> str:
        """Return the blocks below a heading; an empty text if the blocks are empty."""
        found = markdown_of(self.blocks)
        return f"{Heading(self.summary).markdown()}\n\n{found}" if found else ""


class Column(Block):
    """Blocks one below the other in a :class:`Grid`."""

    def __init__(self, *blocks: Block) -> None:
        self.blocks = blocks

    def html(self) -> Markup:
        """Return one element with the blocks."""
        return Markup("<div>{}</div>").format(html_of(self.blocks))

    def markdown(self) -> str:
        """Return the blocks one after the other."""
        return markdown_of(self.blocks)


class Grid(Column):
    """Blocks side by side if the page is wide enough."""

    def html(self) -> Markup:
        """Return one element with the blocks."""
        return Markup('<div class="grid">\n{}\n</div>').format(html_of(self.blocks))


def sign(text: str) -> Markup:
    """Render a sign that screen readers leave out; nothing for an empty one."""
    return Markup('<span aria-hidden="true">{}</span> ').format(text) if text else Markup()


def html_of(blocks: Iterable[Block]) -> Markup:
    """Render blocks as elements of the page."""
    return Markup("\n").join(escape(block.html()) for block in blocks)


def markdown_of(blocks: Iterable[Block]) -> str:
    """Render blocks as Markdown."""
    return "\n\n".join(filter(None, (block.markdown() for block in blocks)))
