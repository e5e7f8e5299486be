"""Figures on a page that name their document and field, so that a program can check them.

On the page a quoted figure is a ``data`` element with the full value and its place in a document,
``<data value="0.8123" data-source="evaluation.trained.metrics.top1.value">81.2 %</data>``; in Markdown, and wherever
else text is wanted, it is the text alone. The value is looked up at its place, so that the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup, escape

from podline import figures
from podline.measures import measure_named
from podline.reporting.templates import unbroken


class Quoted(str):
    """Text that has another form on a page.

    Attributes:
        markup: that form.
    """

    __slots__ = ("markup",)
    markup: Markup

    def __new__(cls, text: str, markup: Markup) -> Quoted:
        """Make a text with its form on a page."""
        made = super().__new__(cls, text)
        made.markup = markup
        return made

    def __html__(self) -> Markup:
        return self.markup


class Quotes:
    """Figures of some documents, by their places: the document's name, then keys and positions, with points between."""

    def __init__(self, **documents: Any) -> None:
        self._documents = documents

    def __call__(self, place: str, write: Callable[[Any], str] = figures.count) -> Quoted:
        """Return a number as text; ``write`` writes it."""
        value = self._at(place)
        text = write(value)
        return Quoted(
            text, Markup('<data value="{}" data-source="{}">{}</data>').format(repr(value), place, unbroken(text))
        )

    def metric(self, place: str, name: str = "") -> Quoted:
        """Return a metric with its interval, as :func:`podline.figures.metric_text` writes it.

        Args:
            place: the metric's; its value, low and high are below it.
            name: which metric it is; the last key of its place if none is given.
        """
        metric, value = self._at(place), self.value(place, name)
        return value if metric.low == metric.high else joined(value, " ", self.interval(place, name))

    def value(self, place: str, name: str = "") -> Quoted:
        """Return a metric without its interval; see :meth:`metric`."""
        return self(f"{place}.value", partial(figures.value_text, name or _last(place)))

    def interval(self, place: str, name: str = "") -> Quoted:
        """Return the interval of a metric, without units: ``[79.9, 84.5]``; see :meth:`metric`."""
        write = partial(figures.bound_text, name or _last(place))
        bounds = joined("[", self(f"{place}.low", write), ", ", self(f"{place}.high", write), "]")
        return Quoted(bounds, Markup('<span class="interval">{}</span>').format(bounds))

    def _at(self, place: str) -> Any:
        # A document's name may have points itself.
        name = next(name for name in self._documents if place.startswith(f"{name}."))
        found = self._documents[name]
        for key in place.removeprefix(f"{name}.").split("."):
            if isinstance(found, Mapping):
                found = found[key]
            else:
                found = found[int(key)] if isinstance(found, Sequence) else getattr(found, key)
        return found


def _last(place: str) -> str:
    return place.rpartition(".")[2]


def joined(*parts: str) -> Quoted:
    """Return texts as one text, of which those that are quoted stay so."""
    return Quoted("".join(parts), Markup().join(map(escape, parts)))


def with_name(name: str, figure: Quoted) -> Quoted:
    """Return a metric's figure as it stands alone: what is no share is called by its name, as ``AP 0.815``."""
    measure = measure_named(name)
    return figure if measure.in_percent else joined(f"{measure.label} ", figure)
