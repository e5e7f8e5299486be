"""The section of a recipe that its kind of task alone has, found by the kind's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from podline.errors import SettingsError
from podline.frozen import Frozen, Json, JsonObject
from podline.kinds import shipped
from podline.recipes.parts import Registry

if TYPE_CHECKING:
    from podline.recipes.settings import Recipe

COMMON = ("model", "augmentation", "loss")
"""Parts of a recipe that several kinds use, and others do not."""


class TaskSettings(Frozen):
    """The base of all such sections.

    A field with the name of a common part takes that part's place: the images of a kind with ``augmentation`` are
    augmented by it.

    Attributes:
        common: which of :data:`COMMON` the kind uses.
        may_change: what a phase can change, as ``task.emphasis``, and what is below it.
        judging: fields that only an evaluation depends on; they are no part of a run's name.
        has_error: whether an answer is right or wrong, so that plateau and annealing can go by the ``error``.
        mixes_targets: whether its loss is of several targets by shares (:mod:`podline.input.mixing`).
        kind: the name of the kind.
    """

    common: ClassVar[tuple[str, ...]] = COMMON
    may_change: ClassVar[tuple[str, ...]] = ()
    judging: ClassVar[tuple[str, ...]] = ()
    has_error: ClassVar[bool] = False
    mixes_targets: ClassVar[bool] = False

    kind: str

    @classmethod
    def of(cls, recipe: Recipe) -> Self:
        """Return the section of a recipe of this kind.

        Raises:
            SettingsError: the recipe is of another kind.
        """
        if isinstance(recipe.task, cls):
            return recipe.task
        expected = cls.model_fields["kind"].default
        raise SettingsError(f"recipe {recipe.name}: got the kind {recipe.task.kind}, expected {expected}")

    @property
    def image_side(self) -> int | None:
        """Return the side of the square images that are needed, in pixels; None is any."""
        return None

    @property
    def balanced_by(self) -> str | None:
        """Return the field of a record of whose values an epoch has equally many; None is as they come."""
        return None

    def conversion(self) -> JsonObject:
        """Return what it asks of a conversion: settings of the data set, by name."""
        return {}

    def require_fit(self, recipe: Recipe) -> None:
        """Raise ValueError if the rest of a recipe does not fit this section."""

    def trained(self) -> Self:
        """Return this section without the settings that only an evaluation depends on."""
        return self.changed(**{name: type(self).model_fields[name].default for name in self.judging})

    def judged(self) -> JsonObject:
        """Return the settings that only an evaluation depends on, where they differ from the default."""
        return {
            name: value
            for name in self.judging
            if (value := getattr(self, name)) != type(self).model_fields[name].default
        }


class UnknownTask(TaskSettings, extra="allow"):
    """The section of a kind whose package is not installed, as it was written."""

    may_change = ("task",)
    has_error = True
    mixes_targets = True


class WithSettings(Protocol):
    """A kind of task, as far as recipes are concerned; the whole is :class:`podline.kinds.contract.Kind`."""

    settings: ClassVar[type[TaskSettings]]


KINDS: Registry[type[WithSettings]] = Registry("kind of task", "podline.kinds", shipped.KINDS)


def task_of(kind: str, given: Mapping[str, Json]) -> TaskSettings:
    """Return the section of a kind; as it is where the kind's package is gone, or cannot be loaded.

    Raises:
        ValidationError: the kind has no such setting, or a value cannot be.
    """
    try:
        settings = KINDS.load(kind).settings
    except SettingsError:
        settings = UnknownTask
    return settings.model_validate({**given, "kind": kind})


def is_usual(task: TaskSettings) -> bool:
    """Return whether a section says nothing: a recipe's JSON leaves it out."""
    return task.kind == shipped.USUAL_KIND and task == task_of(shipped.USUAL_KIND, {})
