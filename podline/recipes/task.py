"""Defines the section ``task`` of a recipe, whose class depends on the kind of task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self

from podline.base.errors import SettingsError
from podline.base.frozen import Frozen, Json, JsonObject
from podline.documents.manifest import USUAL_KIND
from podline.recipes import shipped
from podline.recipes.parts import Registry
from podline.recipes.published_weights import Pretrained

COMMON = ("model", "augmentation", "loss")
"""Sections of a recipe that only some kinds of task use."""


class WithTask(Protocol):
    """A recipe with a section ``task``."""

    @property
    def name(self) -> str:
        """The recipe's name."""
        ...

    @property
    def task(self) -> TaskSettings:
        """The section of the kind of task."""
        ...


class TaskSettings(Frozen):
    """The base class of all task sections.

    A field ``model``, ``augmentation`` or ``loss`` replaces the recipe's section of this name.

    Attributes:
        common: the sections of :data:`COMMON` that the kind uses.
        may_change: dotted paths that a phase can change, for example ``task.emphasis``; includes nested settings.
        judging: fields that affect only an evaluation, so they are not part of a run's name.
        beside_loss: dotted paths that do not change the formula of the evaluation's loss. A search that compares losses
            may vary them.
        has_error: whether an answer is right or wrong, so that plateau, early stop and annealing can use ``error``.
        mixes_targets: whether the loss supports several targets with shares (:mod:`podline.input.mixing`).
        kind: name of the kind of task.
    """

    common: ClassVar[tuple[str, ...]] = COMMON
    may_change: ClassVar[tuple[str, ...]] = ()
    judging: ClassVar[tuple[str, ...]] = ()
    beside_loss: ClassVar[tuple[str, ...]] = ("task.augmentation",)
    has_error: ClassVar[bool] = False
    mixes_targets: ClassVar[bool] = False

    kind: str

    @classmethod
    def of(cls, recipe: WithTask) -> Self:
        """Return the section of a recipe of this kind.

        Raises:
            SettingsError: the recipe's kind is not the kind of this class.
        """
        if isinstance(recipe.task, cls):
            return recipe.task
        expected = cls.model_fields["kind"].default
        raise SettingsError(f"recipe {recipe.name}: got the kind {recipe.task.kind}, expected {expected}")

    @property
    def image_side(self) -> int | None:
        """Return the side in pixels of the square images that the kind needs; None for any shape."""
        return None

    @property
    def pretrained(self) -> Pretrained | None:
        """Return the trunk of the kind's own network if the trunk begins with published weights; else None."""
        return None

    @property
    def asks_for_weights(self) -> str:
        """Return the command-line options by which a network begins with pretrained weights."""
        return "--init FILE"

    @property
    def balanced_by(self) -> str | None:
        """Return the field by whose values examples are sampled in equal numbers; None for no balancing."""
        return None

    def conversion(self) -> JsonObject:
        """Return name → value of the conversion settings that the kind needs."""
        return {}

    def require_fit(self, loss: str) -> None:
        """Raise ValueError if the recipe's loss of this name does not fit the section."""

    def trained(self) -> Self:
        """Return this section without the settings that affect only an evaluation."""
        return self.changed(**{name: type(self).model_fields[name].default for name in self.judging})

    def judged(self) -> JsonObject:
        """Return name → value of the settings that affect only an evaluation and differ from the default."""
        return {
            name: value
            for name in self.judging
            if (value := getattr(self, name)) != type(self).model_fields[name].default
        }


class UnknownTask(TaskSettings, extra="allow"):
    """The unparsed section of a kind of task whose package is not installed."""

    may_change = ("task",)
    has_error = True
    mixes_targets = True


KINDS: Registry[Any] = Registry("kind of task", "podline.kinds", shipped.KINDS)
"""The registered kinds; :func:`podline.recipes.kind_table.facts_named` checks that each is a KindFacts."""


def task_of(kind: str, given: Mapping[str, Json]) -> TaskSettings:
    """Parse the section of a kind of task; keep it unparsed if the kind's package is missing or fails.

    Raises:
        ValidationError: a setting is unknown, or its value is invalid.
    """
    try:
        settings = KINDS.load(kind).settings
    except SettingsError:
        settings = UnknownTask
    return settings.model_validate({**given, "kind": kind})


def is_usual(task: TaskSettings) -> bool:
    """Return whether a section has only defaults, so that a recipe's JSON omits the section."""
    return task.kind == USUAL_KIND and task == task_of(USUAL_KIND, {})
