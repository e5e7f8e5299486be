"""The interface that a kind of task implements to have reports."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from podline.base.errors import SettingsError
from podline.contract.kind import Kind, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from podline.documents.any_evaluation import AnyEvaluation
    from podline.report.blocks import Tile
    from podline.report.facts import RunFacts
    from podline.report.sections import Section


class Headline(NamedTuple):
    """The top of a report.

    Attributes:
        about: the text after the main metric's value: what is measured, and on which examples.
        guessing: sentences about the baselines.
        tiles: further metrics.
    """

    about: str
    guessing: str
    tiles: Sequence[Tile]


class ReportedKind(Kind):
    """A kind whose runs have a report."""

    @abstractmethod
    def headline(self, run: RunFacts) -> Headline:
        """Return the top of a report."""

    @abstractmethod
    def sections(self) -> Iterable[Section]:
        """Return the sections that only reports of this kind have, in order."""


def reported_kind(evaluation: AnyEvaluation) -> ReportedKind:
    """Return the kind of task of an evaluation.

    Raises:
        SettingsError: the kind does not implement :class:`ReportedKind`.
    """
    kind = kind_of(evaluation)
    if isinstance(kind, ReportedKind):
        return kind
    raise SettingsError(f"kind of task {kind.name}: got {type(kind).__name__}, expected a {__name__}.ReportedKind")
