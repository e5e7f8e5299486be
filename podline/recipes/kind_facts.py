"""Defines the facts about a kind of task that need no TensorFlow: name, settings, targets, document and texts."""

from __future__ import annotations

from dataclasses import dataclass

from podline.documents.any_evaluation import AnyEvaluation
from podline.recipes.targets import Targets
from podline.recipes.task import TaskSettings


@dataclass(frozen=True)
class KindFacts:
    """The facts about a kind of task; a package adds a kind by an entry point ``podline.kinds`` for this object.

    Attributes:
        name: name in recipes and data sets.
        settings: the model of a recipe's ``task``.
        document: the model of ``evaluation.json``.
        targets: the targets of its examples.
        kind: the :class:`podline.contract.kind.Kind`, as ``module:name``.
        examples: the plural noun for the examples of a split.
        caption: caption of the main measure's chart.
        lost: heading for the examples that a run answered worse than the run with which it is compared; a format string
            with ``{shown}``, the number of pictures, and ``{lost}``, the number of these examples.
        says: heading for a run's answers; a format string with ``{}`` for the run's name.
        lost_hint: explanation of what is drawn into the pictures below the heading ``lost``.
        large_pictures: whether a sheet has fewer and larger pictures, for example of people in photographs.
        own_measures: whether measures of installed packages are computed.
        seed_spreads: rows (least number of classes, standard deviation of the main measure between seeds, standard
            deviation of a class or joint). The deviations exclude the noise of sampling test examples, and are for a
            share of one half: a deviation that was measured at the share r is divided by sqrt(4 r (1 - r)).
    """

    name: str
    settings: type[TaskSettings]
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
