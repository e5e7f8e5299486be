"""The contract by which a kind of task fills its models' reports."""

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
    """The top of a report, as a kind of task fills it.

    Attributes:
        about: the words after the main figure, which say what it measures.
        guessing: sentences about the baselines.
        tiles: the figures beside it.
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
        """Return the kind's own sections of a report, in order."""


def reported_kind(evaluation: AnyEvaluation) -> ReportedKind:
    """Return the kind of an evaluation.

    Raises:
        SettingsError: runs of its kind have no report.
    """
    kind = kind_of(evaluation)
    if isinstance(kind, ReportedKind):
        return kind
    raise SettingsError(f"kind of task {kind.name}: got {type(kind).__name__}, expected a {__name__}.ReportedKind")
