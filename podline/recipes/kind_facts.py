"""Defines the facts about a kind of task that need no TensorFlow: its name, settings, records, document and nouns."""

from __future__ import annotations

from dataclasses import dataclass

from podline.documents.any_evaluation import AnyEvaluation
from podline.recipes.targets import Targets
from podline.recipes.task import NamedSettings


@dataclass(frozen=True)
class KindFacts(NamedSettings):
    """The facts about a kind of task; an entry point ``podline.kinds`` names them.

    Attributes:
        name: name in recipes and data sets.
        settings: the model of a recipe's ``task``.
        document: the model of ``evaluation.json``.
        targets: the targets of its records.
        kind: the :class:`podline.contract.kind.Kind`, as ``module:name``.
        examples: the plural noun for the examples of a split.
        caption: caption of the main measure's chart.
        lost: heading for lost examples, with places for the numbers ``shown`` and ``lost``.
        says: sentence on what a run answers, with a place for the run's name.
        lost_hint: explanation of the marks in their pictures.
        large_pictures: whether a sheet shows large pictures.
        own_measures: whether installed measures are computed.
        seed_spreads: least number of classes; standard deviations between seeds, luck excluded, of a total and a part,
            divided by sqrt(4 r (1 - r)) at the share r.
    """

    document: type[AnyEvaluation]
    targets: Targets
    kind: str
    examples: str = "examples"
    caption: str = "Bars are 95 % intervals."
    lost: str = "Better answered before: {shown} of {lost}"
    says: str = "what {} answers"
    lost_hint: str = ""
    large_pictures: bool = False
    own_measures: bool = True
    seed_spreads: tuple[tuple[int, float, float], ...] = ()

    @property
    def measure(self) -> str:
        """The measure that ranks models."""
        return self.document.measure
