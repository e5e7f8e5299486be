"""Blocks of a report, such as paragraphs, tables and charts; each block renders as HTML and as Markdown.

All texts are escaped, since names of classes and files may contain markup.
"""

from __future__ import annotations

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from markupsafe import Markup

from podline.base import figures
from podline.base.drawing.svg import Svg
from podline.base.plain import plain
from podline.compare.settings import NONE
from podline.compare.words import Word
from podline.report.escaping import Markdown, markdown, unbroken

# Length of a table's label for screen readers, in characters.
_LABEL = 120
_HEADER = Markup('<th scope="col">{}</th>')


class Block(ABC):
    """An element of a report's section."""

    @abstractmethod
    def __html__(self) -> Markup:
        """Return the block as HTML; Markup calls this method when it formats or joins blocks."""

    def markdown(self) -> str:
        """Return the block as Markdown; empty if only HTML can show it."""
        return ""


@dataclass(frozen=True)
class Text(Block):
    """A paragraph.

    Attributes:
        style: ``note`` for small text, ``warning`` for highlighted text.
    """

    text: str
    style: Literal["", "note", "warning"] = ""

    def __html__(self) -> Markup:
        attribute = Markup(' class="{}"').format(self.style) if self.style else ""
        return Markup("<p{}>{}</p>").format(attribute, unbroken(self.text))

    def markdown(self) -> str:
        """Return the escaped text."""
        return markdown(self.text)


@dataclass(frozen=True)
class Heading(Block):
    """A heading within a section."""

    text: str

    def __html__(self) -> Markup:
        return Markup("<h3>{}</h3>").format(self.text)

    def markdown(self) -> str:
        """Return a heading of the third level."""
        return f"### {markdown(self.text)}"


@dataclass(frozen=True)
class Table(Block):
    """A table.

    Attributes:
        columns: the names of the columns.
        rows: the rows; the first cell of a row is its header.
        words: number of columns with text, from the left; the other columns have numbers, which are aligned right.
        header: whether to show the names of the columns.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    header: bool = True

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, str]], words: int = 1) -> Table:
        """Make a table from rows (column → text); a missing column becomes a dash."""
        found = [*rows]
        columns = [*dict.fromkeys(column for row in found for column in row)]
        return cls(columns, [[row.get(column, NONE) for column in columns] for row in found], words)

    @classmethod
    def of_facts(cls, pairs: Iterable[tuple[str, str]]) -> Table:
        """Make a table without header from (name, value) pairs."""
        return cls(["", ""], [*pairs], words=2, header=False)

    def __html__(self) -> Markup:
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
    """A chart of :mod:`podline.base.drawing.drawing` or :mod:`podline.report.over_nights`; HTML only."""

    svg: Svg
    title: str = ""
    caption: str = ""
    wide: bool = False

    def __html__(self) -> Markup:
        title = Heading(self.title) if self.title else ""
        caption = Markup("<figcaption>{}</figcaption>").format(unbroken(self.caption)) if self.caption else ""
        svg = self.svg.html()
        if self.wide:
            svg = Markup('<div class="scroll wide" tabindex="0" role="group" aria-label="Chart">{}</div>').format(svg)
        return Markup("<figure>{}{}{}</figure>").format(title, svg, caption)


class Picture(NamedTuple):
    """One image, or two images side by side.

    Attributes:
        images: the ``data:`` address and the alternative text of each image.
        caption: the caption below the images.
        details: lines below the caption.
    """

    images: Sequence[tuple[str, str]]
    caption: str = ""
    details: Sequence[str] = ()


@dataclass(frozen=True)
class Pictures(Block):
    """Images with captions; in Markdown only the captions and details of pictures with details.

    Attributes:
        pictures: at least one picture.
        style: ``small`` for images of a few pixels, ``pairs`` for pairs of photographs, ``panels`` for many heatmaps.
    """

    pictures: Sequence[Picture]
    style: Literal["small", "pairs", "panels"] = "small"

    def __html__(self) -> Markup:
        entries = [self._entry(picture) for picture in self.pictures]
        return Markup('<ul class="pictures {}">\n{}\n</ul>').format(self.style, Markup("\n").join(entries))

    @staticmethod
    def _entry(picture: Picture) -> Markup:
        images = Markup().join(Markup('<img src="{}" alt="{}">').format(*image) for image in picture.images)
        lines = [Markup("<b>{}</b>").format(unbroken(picture.caption))] if picture.caption else []
        lines += [Markup("<span>{}</span>").format(unbroken(line)) for line in picture.details]
        text = Markup("<p>{}</p>").format(Markup("<br>").join(lines)) if lines else ""
        return Markup("<li><div>{}</div>{}</li>").format(images, text)

    def markdown(self) -> str:
        """Return a list with caption and details of each picture that has details."""
        texts = [", ".join((picture.caption, *picture.details)) for picture in self.pictures if picture.details]
        return Items(texts).markdown()


@dataclass(frozen=True)
class Items(Block):
    """A bulleted list of texts."""

    texts: Sequence[str]

    def __html__(self) -> Markup:
        entries = [Markup("<li>{}</li>").format(unbroken(text)) for text in self.texts]
        return Markup("<ul>\n{}\n</ul>").format(Markup("\n").join(entries))

    def markdown(self) -> str:
        """Return a bulleted list."""
        return "\n".join(f"- {markdown(text)}" for text in self.texts)


@dataclass(frozen=True)
class Code(Block):
    """Shell commands to copy."""

    text: str

    @classmethod
    def of(cls, commands: Mapping[str, str]) -> Code:
        """Make a block from command → comment, with aligned comments."""
        width = max(map(len, commands))
        return cls("\n".join(f"{command:{width}}  # {what}" for command, what in commands.items()))

    def __html__(self) -> Markup:
        return Markup('<pre tabindex="0"><code>{}</code></pre>').format(self.text)

    def markdown(self) -> str:
        """Return the commands as a code block."""
        # Three backticks would end the block.
        return f"```\n{plain(self.text).replace('```', '` ` `')}\n```"


@dataclass(frozen=True)
class Key(Block):
    """A legend for colours in pictures: name → (red, green, blue), each 0 … 255; HTML only."""

    colours: Mapping[str, tuple[int, int, int]]

    def __html__(self) -> Markup:
        dot = Markup('<i style="background: #{}"></i>{}')
        dots = [dot.format(bytes(colour).hex(), name) for name, colour in self.colours.items()]
        return Markup('<p class="note key">{}</p>').format(Markup(" ").join(dots))


@dataclass(frozen=True)
class Kicker(Block):
    """The line above a page's headline: the subject of the page, and a link to the index of nights.

    Attributes:
        about: texts of the line.
        index: relative URL of the index of nights; empty for no link.
    """

    about: Sequence[str]
    index: str = ""

    def __html__(self) -> Markup:
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
        figure: the main result, in large letters.
        text: the text after the result.
        small: small text next to the result, such as an interval.
    """

    figure: str
    text: str
    small: str = ""

    def __html__(self) -> Markup:
        small = Markup(" <small>{}</small>").format(unbroken(self.small)) if self.small else ""
        return Markup("<h1><strong>{}{}</strong> {}</h1>").format(unbroken(self.figure), small, unbroken(self.text))

    def markdown(self) -> str:
        """Return a heading of the first level."""
        return f"# {' '.join(markdown(text) for text in (self.figure, self.small, self.text) if text)}"


@dataclass(frozen=True)
class Standing(Block):
    """A highlighted result: a comparison or a decision.

    Attributes:
        strong: the first words, in bold.
        text: the text after the bold words.
        lines: a list below the text.
        style: the verdict, which sets the colour: ``better``, ``worse`` or ``noise``.
        sign: a symbol before the bold words, such as ▲; HTML only.
    """

    strong: str
    text: str
    lines: Sequence[str] = ()
    style: str = "noise"
    sign: str = ""

    def __html__(self) -> Markup:
        lines = Items(self.lines) if self.lines else ""
        return Markup('<div class="standing {}"><p><strong>{}{}</strong>{}</p>{}</div>').format(
            self.style, sign(self.sign), self.strong, unbroken(self.text), lines
        )

    def markdown(self) -> str:
        """Return all texts as one paragraph."""
        if not self.text:
            return markdown(f"{self.strong}: {'; '.join(self.lines)}")
        return markdown("; ".join((f"{self.strong}{self.text}".removesuffix("." if self.lines else ""), *self.lines)))


class Change(NamedTuple):
    """The change of a metric.

    Attributes:
        text: the signed difference, or why there is none; empty without a comparison.
        word: the verdict, see :data:`podline.compare.words.Word`; empty without a verdict.
    """

    text: str = ""
    word: Word | Literal[""] = ""

    def __html__(self) -> Markup:
        arrow = sign(figures.arrow(self.text)) if self.word else ""
        span = Markup('<span class="change {}">{}{}</span>')
        return span.format(self.word, arrow, self.text) if self.text else Markup()


class Tile(NamedTuple):
    """A single metric.

    Attributes:
        name: name of the metric.
        figure: value of the metric, with its interval.
        change: the difference from the compared run.
        line: a sparkline of the last runs, as SVG; empty without earlier runs.
    """

    name: str
    figure: str
    change: Change = Change()
    line: Markup = Markup()

    def __html__(self) -> Markup:
        change = Markup(" {}").format(self.change) if self.change.text else ""
        row = Markup("<div><dt>{}</dt><dd>{}{}{}</dd></div>")
        return row.format(self.name, unbroken(self.figure), change, self.line)


@dataclass(frozen=True)
class Tiles(Block):
    """Metrics side by side; HTML only, since tables have the same values."""

    tiles: Sequence[Tile]
    note: str = ""

    def __html__(self) -> Markup:
        note = Text(self.note, "note") if self.note else ""
        return Markup('<dl class="tiles">\n{}\n</dl>\n{}').format(Markup("\n").join(self.tiles), note)


class Fold(Block):
    """Blocks that the reader of the page unfolds with a click; in Markdown, blocks below a heading."""

    def __init__(self, summary: str, *blocks: Block, opened: bool = False) -> None:
        self.summary, self.blocks, self.opened = summary, blocks, opened

    def __html__(self) -> Markup:
        opened = " open" if self.opened else ""
        return Markup("<details{}><summary>{}</summary>{}</details>").format(
            opened, self.summary, Markup("\n").join(self.blocks)
        )

    def markdown(self) -> str:
        """Return the blocks below a heading; an empty text if no block has Markdown."""
        found = markdown_of(self.blocks)
        return f"{Heading(self.summary).markdown()}\n\n{found}" if found else ""


class Column(Block):
    """Blocks one below the other in a :class:`Grid`."""

    def __init__(self, *blocks: Block) -> None:
        self.blocks = blocks

    def __html__(self) -> Markup:
        return Markup("<div>{}</div>").format(Markup("\n").join(self.blocks))

    def markdown(self) -> str:
        """Return the blocks one after the other."""
        return markdown_of(self.blocks)


class Grid(Column):
    """Blocks side by side if the page is wide enough."""

    def __html__(self) -> Markup:
        return Markup('<div class="grid">\n{}\n</div>').format(Markup("\n").join(self.blocks))


def sign(text: str) -> Markup:
    """Render a symbol that screen readers skip; return empty markup for an empty text."""
    return Markup('<span aria-hidden="true">{}</span> ').format(text) if text else Markup()


def markdown_of(blocks: Iterable[Block]) -> str:
    """Render blocks as Markdown, separated by blank lines; skip blocks without Markdown."""
    return "\n\n".join(filter(None, (block.markdown() for block in blocks)))
