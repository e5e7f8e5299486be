"""The interface of a kind of task: all operations on its models."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from podline.base import entry_points
from podline.base.errors import SettingsError
from podline.recipes.kind_table import facts_named
from podline.recipes.task import KINDS

# For the type checker only, so that looking up a kind imports neither Keras nor matplotlib.
if TYPE_CHECKING:
    from collections.abc import Sequence

    import keras  # pyright: ignore[reportMissingTypeStubs]

    from podline.base.arrays import Array, Arrays, Image
    from podline.base.drawing.picture_sheet import SheetBlock, SheetPicture
    from podline.base.frozen import JsonObject
    from podline.base.progress import Reporter
    from podline.contract.answers import AnyAnswers, LostExamples
    from podline.contract.case import Case, Judgement
    from podline.contract.objective import Objective
    from podline.contract.picture_reader import PictureReader
    from podline.contract.rules import Compared, Rule
    from podline.data.reader import SplitReader
    from podline.documents.any_evaluation import AnyEvaluation
    from podline.documents.manifest import Manifest
    from podline.documents.model_description import ModelDescription
    from podline.recipes.kind_facts import KindFacts
    from podline.recipes.measures import Measure
    from podline.recipes.settings import Recipe
    from podline.stages.specs import TrainSpec
    from podline.stages.tools import ShowSpec
    from podline.store.contract import Store


class Kind(ABC):
    """The operations on the models of a kind of task.

    Attributes:
        facts: name and properties of the kind.
        target: the record field with the targets, with which the kind's measures compare answers; empty for a kind that
            computes its metrics itself.
    """

    target: ClassVar[str] = ""

    def __init__(self, facts: KindFacts) -> None:
        self.facts = facts

    @property
    def name(self) -> str:
        """The kind's name in recipes and data sets."""
        return self.facts.name

    @property
    def measure(self) -> str:
        """The name of the main metric, which ranks models."""
        return self.facts.measure

    @abstractmethod
    def require_fit(self, recipe: Recipe, manifest: Manifest) -> None:
        """Raise SettingsError if a recipe does not fit a data set."""

    @abstractmethod
    def objective(self, recipe: Recipe, manifest: Manifest) -> Objective:
        """Build the objective of a recipe on a data set."""

    @abstractmethod
    def model(self, recipe: Recipe, manifest: Manifest) -> keras.Model:
        """Build a recipe's Keras model with randomly initialized weights."""

    @abstractmethod
    def description(
        self, recipe: Recipe, image_shape: tuple[int, int, int], classes: int, facts: JsonObject
    ) -> ModelDescription:
        """Return the layers and costs of a recipe's model.

        ``image_shape`` is (height, width, channels). ``facts`` are :attr:`podline.documents.manifest.Manifest.facts`,
        empty without a data set.
        """

    def measured(
        self,
        outputs: Array,  # noqa: ARG002 (by default none)
        targets: Array,  # noqa: ARG002
        measures: Sequence[Measure],  # noqa: ARG002
        recipe: Recipe,  # noqa: ARG002
    ) -> dict[str, float]:
        """Return the value of each measure by name, for outputs and targets of n examples, (n, …); none by default."""
        return {}

    @abstractmethod
    def judge(self, case: Case) -> Judgement:
        """Evaluate a run's model on a split."""

    @abstractmethod
    def reader(
        self, store: Store, training: TrainSpec, manifest: Manifest, threshold: float | None, reporter: Reporter
    ) -> PictureReader:
        """Return an object that prepares pictures for a trained model and formats the model's answers.

        ``threshold`` is the least score of people or probability of labels; with None, the thresholds are those that
        the run's evaluation chose. Other kinds have none.
        """

    @abstractmethod
    def drawn(self, records: Arrays, manifest: Manifest) -> list[SheetPicture]:
        """Return pictures of n examples with their targets.

        ``records`` has field → values (n, …) for the fields that the objective reads.
        """

    @abstractmethod
    def sheet_block(
        self, spec: ShowSpec, model: keras.Model, store: Store, manifest: Manifest, reporter: Reporter
    ) -> tuple[SheetBlock, int, int]:
        """Return pictures of answers to test examples, the number of these examples, and the number of right answers.

        Both numbers are 0 for a kind whose answers are not simply right or wrong.
        """

    @abstractmethod
    def rules(self) -> Sequence[Rule]:
        """Return the kind's own promotion rules."""

    @abstractmethod
    def lost_examples(
        self,
        compared: Compared[Any],
        reader: SplitReader,
        manifest: Manifest,
        before: AnyEvaluation,
        after: AnyEvaluation,
    ) -> LostExamples:
        """Return examples that only the first of two runs got right.

        ``compared`` has the answers of both runs to the same examples, those of the first run as ``known[0]``;
        ``reader`` reads the evaluated split.
        """

    def saliency(self, store: Store, run: str, images: Sequence[Image]) -> Sequence[Image]:  # noqa: ARG002 (by default none)
        """Return a saliency map drawn on each image, uint8 (height, width, 3); empty by default."""
        return ()

    @abstractmethod
    def answers(self) -> AnyAnswers:
        """Return an object that reads and computes models' answers, for promotion rules."""


@functools.cache
def kind_named(name: str) -> Kind:
    """Return the kind with this name.

    Raises:
        SettingsError: the kind does not exist, its code cannot be imported or is not a kind, or a method is missing.
    """
    facts = facts_named(name)
    with entry_points.explained(KINDS.title(name)):
        found: object = entry_points.load(facts.kind)
        if not (isinstance(found, type) and issubclass(found, Kind)):
            raise SettingsError(f"{KINDS.title(name)}: got {facts.kind}, expected a {Kind.__module__}.Kind")
        return found(facts)  # a method may be missing


def kind_of(judged: Recipe | AnyEvaluation) -> Kind:
    """Return the kind of a recipe, or of an evaluation."""
    return kind_named(judged.kind)
