"""Charts of pages that are left empty, where they are no subject: a page takes a third of the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from matplotlib.figure import Figure


@contextmanager
def empty_charts() -> Iterator[None]:
    """In the body a figure that is saved as SVG has its size alone."""
    save = Figure.savefig

    def savefig(figure: Figure, file: Any, *, format: str, **options: Any) -> None:  # noqa: A002 (matplotlib's name)
        if format != "svg":
            save(figure, file, format=format, **options)
            return
        width, height = 72 * figure.get_size_inches()
        file.write(f'<svg width="{width}pt" height="{height}pt"></svg>')

    with mock.patch.object(Figure, "savefig", savefig):
        yield
