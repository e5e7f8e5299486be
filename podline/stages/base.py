"""The base classes of specs and results: frozen models that are sent as JSON. A result formats itself as text."""

from __future__ import annotations

import functools
import html
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from pydantic import Field

from podline.base.frozen import Frozen, omitted
from podline.documents.manifest import dataset_folder
from podline.recipes.datasets import DatasetName
from podline.recipes.settings import Recipe
from podline.settings.strategies import WORKERS, StrategyName
from podline.store import digests

# Part of a training run's identity: raise it when a code change alters the result of training.
TRAINING_VERSION = 4
# The split that runs are evaluated on.
JUDGED = "test"
# Field of specs whose result depends on the whole data set.
MANIFEST_DIGEST: Any = omitted("", description="the digest of the data set's manifest; empty accepts any")
Where: TypeAlias = Callable[[str], str]
"""A function from a name in the store to its path or URI, such as :meth:`podline.store.contract.Store.where`."""


R_co = TypeVar("R_co", bound="Result", covariant=True)


class Spec(Frozen, Generic[R_co]):
    """The input of a stage; a subclass names its result, for example ``class ValidateSpec(Spec["ValidateResult"])``.

    The fields in ``not_hashed``, given as dotted paths, do not change the result, such as the number of workers.
    """

    if not TYPE_CHECKING:

        def __class_getitem__(cls, _result: object) -> type[Spec]:
            """Return the class itself: the result's name is only for type checkers."""
            return cls

    not_hashed: ClassVar[frozenset[str]] = frozenset({"root"})

    root: str = Field(description="the store: a folder, or gs://bucket/prefix")

    @property
    def record_folder(self) -> str:
        """Return the folder of the completion record; empty for a stage whose result is never reused."""
        return self.folder

    @property
    def folder(self) -> str:
        """Return the folder of the results in the store; empty without one."""
        return ""

    @property
    def dataset_folder(self) -> str:
        """Return the folder of the data set that the stage uses; empty without one."""
        return ""

    @property
    def model_strategy(self) -> StrategyName | None:
        """Return the distribution strategy of the stage's model; None for a stage without a model."""
        return None

    @property
    def by_workers(self) -> bool:
        """Return whether several processes, each with this spec, do the work together."""
        return self.model_strategy == WORKERS

    @property
    def uses(self) -> tuple[str, ...]:
        """Return the folders in the store of the data set and the run that the stage uses."""
        return tuple(name for name in (self.dataset_folder, self.folder) if name)

    def digest(self) -> str:
        """Return a hash of everything that the result depends on."""
        document = self.model_dump(mode="json")
        for path in self.not_hashed:
            *branches, leaf = path.split(".")
            place: Any = functools.reduce(lambda inner, name: inner.get(name, {}), branches, document)
            place.pop(leaf, None)
        return digests.of_json(document)


class Result(Frozen):
    """The result of a stage.

    Attributes:
        seconds: duration of the work, also if an earlier call did the work.
        reused: whether an earlier call did the work.
        spans: category of time → seconds, as measured by the stage's process; see :mod:`podline.base.stopwatch`.
    """

    seconds: float = 0.0
    reused: bool = False
    spans: dict[str, float] = omitted({})

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def require_sane(self) -> None:
        """Raise a SanityError if the evaluated model failed its check; do nothing for other results."""

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return the result as lines of text for people."""
        return [self.model_dump_json(indent=2)]


class DatasetSpec(Spec[R_co]):
    """The spec of a stage that uses a converted data set."""

    dataset: DatasetName
    fingerprint: str

    @property
    def dataset_folder(self) -> str:
        """Return the folder of the data set."""
        return dataset_folder(self.dataset, self.fingerprint)


class RecipeSpec(Spec[R_co]):
    """The spec of a stage that uses a recipe and its data set."""

    recipe: Recipe
    fingerprint: str

    @property
    def dataset_folder(self) -> str:
        """Return the folder of the data set."""
        return dataset_folder(self.recipe.dataset, self.fingerprint)


class TrainableSpec(RecipeSpec[R_co]):
    """The spec of a stage that runs training steps, with all settings that the steps depend on."""

    not_hashed = frozenset(
        {"root", "strategy", "preflight", "recipe.promotion", "recipe.keep", "recipe.init.file", "lacked_champion"}
    )

    lacked_champion: bool = omitted(
        False, description="whether the training starts from scratch, because further=champion found no champion"
    )
    manifest_digest: str = MANIFEST_DIGEST
    training_version: int = TRAINING_VERSION
    strategy: StrategyName = "auto"

    @property
    def model_strategy(self) -> StrategyName | None:
        """Return the strategy."""
        return self.strategy

    def digest(self) -> str:
        """Return a hash of everything that the result depends on; settings only for evaluations do not count."""
        recipe = self.recipe.model_copy(update={"task": self.recipe.task.trained()})
        return super(TrainableSpec, self.model_copy(update={"recipe": recipe})).digest()


class RunSpec(DatasetSpec[R_co]):
    """The base of the specs of evaluation, promotion and report: a run and its data set."""

    run: str
    split: str = omitted(JUDGED, description="the evaluated split")

    @property
    def folder(self) -> str:
        """Return the run's folder in the store."""
        return f"runs/{self.run}"

    @property
    def record_folder(self) -> str:
        """Return the folder of the completion record: the run's folder, or ``on-SPLIT`` in it for another split."""
        return self.folder if self.split == JUDGED else f"{self.folder}/on-{self.split}"
