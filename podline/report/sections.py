"""Finds the sections of a run's report: functions from the run to blocks, including those of installed packages.

A package adds a section by the entry point ``podline.sections``; docs/how-to/section.md has an example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType

from podline.base import entry_points
from podline.base.errors import PermanentError
from podline.report.blocks import Block, Text
from podline.report.facts import RunFacts


@dataclass(frozen=True)
class Section:
    """A section of the report.

    Attributes:
        heading: heading of the section.
        kind: the kind of task whose reports have the section; empty for every kind.
        blocks: returns the blocks for a run; if there are none, the section is left out.
    """

    heading: str
    kind: str
    blocks: Callable[[RunFacts], Iterable[Block]]


def section(heading: str, kind: str = "") -> Callable[[Callable[[RunFacts], Iterable[Block]]], Section]:
    """Make a section from a function; see :class:`Section`."""
    return lambda blocks: Section(heading, kind, blocks)


def sections_in(module: ModuleType) -> Iterator[Section]:
    """Yield the sections that a module defines, in order of definition."""
    yield from (found for found in vars(module).values() if isinstance(found, Section))


def blocks_of(found: Section, run: RunFacts) -> list[Block]:
    """Return a section's blocks for a run; if an installed section raises an exception, a warning with the reason."""
    if found.blocks.__module__.startswith("podline."):
        return list(found.blocks(run))
    title = f"section {found.heading} ({found.blocks.__module__})"
    try:
        with entry_points.explained(title):
            return list(found.blocks(run))
    except PermanentError as error:
        message = str(error)
        return [Text(message if message.startswith(title) else f"{title}: {message}", "warning")]
