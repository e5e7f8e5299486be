"""Figures on a page that name their document and field, so that a program can check them.

On the page a quoted figure is a ``data`` element with the full value and its place in a document,
``<data value="0.8123" data-source="evaluation.trained.metrics.top1.value">81.2 %</data>``; in Markdown, and wherever
else text is wanted, it is the text alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from markupsafe import Markup, escape

from podline import figures
from podline.documents.metric import Metric
from podline.measures import measure_named


class Quoted(str):
    """Text that has another form on a page.

    Attributes:
        markup: that form.
    """

    __slots__ = ("markup",)
    markup: Markup

    def __new__(cls, text: str, markup: Markup) -> Quoted:
        """A text with its form on a page."""
        made = super().__new__(cls, text)
        made.markup = markup
        return made

    def __html__(self) -> Markup:
        return self.markup


def number(source: str, value: float, write: Callable[[Any], str] = figures.count) -> Quoted:
    """A number of a document.

    Args:
        source: its place: the document's name, then keys and positions, with points between.
        value: in full.
        write: how it is written.
    """
    text = write(value)
    return Quoted(text, Markup('<data value="{}" data-source="{}">{}</data>').format(repr(value), source, text))


def joined(*parts: str) -> Quoted:
    """Texts as one text, of which those that are quoted stay so."""
    return Quoted("".join(parts), Markup().join(map(escape, parts)))


def interval(source: str, name: str, metric: Metric) -> Quoted:
    """The interval of a metric, without units: ``[79.9, 84.5]``; see :func:`metric`."""
    low, high = (
        number(f"{source}.{end}", getattr(metric, end), lambda value: figures.bound_text(name, value))
        for end in ("low", "high")
    )
    bounds = joined("[", low, ", ", high, "]")
    return Quoted(bounds, Markup('<span class="interval">{}</span>').format(bounds))


def value(source: str, name: str, metric: Metric) -> Quoted:
    """A metric without its interval; see :func:`metric`."""
    return number(f"{source}.value", metric.value, lambda value: figures.value_text(name, value))


def metric(source: str, name: str, metric: Metric) -> Quoted:
    """A metric with its interval, as :func:`podline.figures.metric_text` writes it.

    Args:
        source: the metric's place; its value, low and high are below it.
        name: which metric it is.
        metric: its figures.
    """
    known = metric.low != metric.high
    return (
        joined(value(source, name, metric), " ", interval(source, name, metric))
        if known
        else value(source, name, metric)
    )


def metric_of(source: str, name: str, metrics: Mapping[str, Metric]) -> Quoted:
    """The metric of a name among several, with its interval; ``source`` is the place of all of them."""
    return metric(f"{source}.{name}", name, metrics[name])


def with_name(name: str, figure: Quoted) -> Quoted:
    """A metric's figure as it stands alone: what is no share is called by its name, as ``AP 0.815``."""
    measure = measure_named(name)
    return figure if measure.in_percent else joined(f"{measure.label} ", figure)
