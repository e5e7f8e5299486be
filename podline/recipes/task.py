"""The section of a recipe for its kind of task, found by the kind's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

from podline.base.errors import SettingsError
from podline.base.frozen import Frozen, Json, JsonObject
from podline.documents.manifest import USUAL_KIND
from podline.recipes import shipped
from podline.recipes.parts import Registry
from podline.recipes.published_weights import Pretrained

COMMON = ("model", "augmentation", "loss")
"""Parts of a recipe that only some kinds use."""


class WithTask(Protocol):
    """A recipe, as its section knows it."""

    @property
    def name(self) -> str:
        """The recipe's name."""
        ...

    @property
    def task(self) -> TaskSettings:
        """The section."""
        ...


class TaskSettings(Frozen):
    """The base of all task sections.

    A field with the name of a common part replaces it: a kind's own ``augmentation`` is applied to its images.

    Attributes:
        common: the parts of :data:`COMMON` that the kind uses.
        may_change: the fields that a phase can change, as ``task.emphasis``, with nested ones.
        judging: fields that affect only an evaluation, and not a run's name.
        beside_loss: the paths whose values do not change the formula of the loss of an evaluation. A search that
            compares losses may vary these.
        has_error: whether an example's answer is right or wrong, so that plateau and annealing can use the ``error``.
        mixes_targets: whether its loss supports several targets with shares (:mod:`podline.input.mixing`).
        kind: name of the kind.
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
            SettingsError: the recipe has another kind.
        """
        if isinstance(recipe.task, cls):
            return recipe.task
        expected = cls.model_fields["kind"].default
        raise SettingsError(f"recipe {recipe.name}: got the kind {recipe.task.kind}, expected {expected}")

    @property
    def image_side(self) -> int | None:
        """Return the required side of the square images, in pixels; None for any."""
        return None

    @property
    def pretrained(self) -> Pretrained | None:
        """Return the trunk of the kind's own network that begins with published weights, or None."""
        return None

    @property
    def asks_for_weights(self) -> str:
        """Return the options by which a network begins with pretrained weights."""
        return "--init FILE"

    @property
    def balanced_by(self) -> str | None:
        """Return the record field whose values an epoch balances; None for no balance."""
        return None

    def conversion(self) -> JsonObject:
        """Return the settings that the kind needs for a conversion, by name."""
        return {}

    def require_fit(self, loss: str) -> None:
        """Raise ValueError if a recipe's loss, by its name, does not fit this section."""

    def trained(self) -> Self:
        """Return this section without the settings that affect only an evaluation."""
        return self.changed(**{name: type(self).model_fields[name].default for name in self.judging})

    def judged(self) -> JsonObject:
        """Return the settings that affect only an evaluation, if they differ from the default."""
        return {
            name: value
            for name in self.judging
            if (value := getattr(self, name)) != type(self).model_fields[name].default
        }


class UnknownTask(TaskSettings, extra="allow"):
    """The unparsed section of a kind whose package is not installed."""

    may_change = ("task",)
    has_error = True
    mixes_targets = True


@dataclass(frozen=True)
class NamedSettings:
    """The facts of a kind that recipes use; :class:`podline.recipes.kind_facts.KindFacts` adds the others.

    Attributes:
        name: name in recipes and data sets.
        settings: the model of a recipe's ``task``.
    """

    name: str
    settings: type[TaskSettings]


KINDS: Registry[NamedSettings] = Registry("kind of task", "podline.kinds", shipped.KINDS)


def task_of(kind: str, given: Mapping[str, Json]) -> TaskSettings:
    """Parse the section of a kind; keep it unchanged if the kind's package is missing or fails.

    Raises:
        ValidationError: a setting is unknown, or its value is invalid.
    """
    try:
        settings = KINDS.load(kind).settings
    except SettingsError:
        settings = UnknownTask
    return settings.model_validate({**given, "kind": kind})


def is_usual(task: TaskSettings) -> bool:
    """Return whether a section has only defaults, so that a recipe's JSON omits it."""
    return task.kind == USUAL_KIND and task == task_of(USUAL_KIND, {})
