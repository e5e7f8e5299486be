"""The contract of a kind of task: what its records hold, and all that is done with its models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

# The contract lies below the layers that call it, and names their types for the type checker alone.
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import keras  # pyright: ignore[reportMissingTypeStubs]
    import numpy as np
    import numpy.typing as npt

    from podline.arrays import Arrays, Image
    from podline.data.reader import SplitReader
    from podline.data.records import Feature
    from podline.documents.any_evaluation import AnyEvaluation
    from podline.documents.manifest import Manifest
    from podline.documents.metric import Metric
    from podline.documents.model_description import ModelDescription
    from podline.drawing.picture_sheet import Block, Picture
    from podline.evaluation.case import Case, Judgement
    from podline.evaluation.predicting import PictureReader
    from podline.frozen import JsonObject
    from podline.progress import Reporter
    from podline.promotion.answers import Answers
    from podline.promotion.figure import Rule
    from podline.recipes.settings import Recipe
    from podline.recipes.task import TaskSettings
    from podline.reporting.facts import RunFacts
    from podline.reporting.pairs import Judged, LostExamples, Pair
    from podline.reporting.sections import Section
    from podline.reporting.verdict import Headline
    from podline.stages.specs import TrainSpec
    from podline.stages.tools import ShowSpec
    from podline.store.contract import Store
    from podline.training.objective import Objective


E = TypeVar("E", bound="AnyEvaluation")
P = TypeVar("P", bound="Pair")


class Targets:
    """The targets of a kind: what its records hold beside the image.

    ``records`` are fields of some records by name, (n, …) each, as the reader gives them; the image may be left out.
    """

    def census(self, records: Arrays, classes: int) -> npt.NDArray[np.int64]:  # noqa: ARG002 (without classes)
        """Return how many records there are of each class, (classes,)."""
        import numpy as np  # noqa: PLC0415

        return np.zeros(classes, np.int64)

    def check(self, records: Arrays, manifest: Manifest) -> tuple[int, str] | None:  # noqa: ARG002 (any may be)
        """Return the place of the first record whose targets cannot be, and a phrase that follows its name; or None."""
        return None

    def contradict(self, records: Arrays) -> bool:
        """Return whether records with one and the same image have targets that cannot all be right."""
        return any((values != values[:1]).any() for values in records.values())


class TextTargets(Targets, ABC):
    """The targets of a kind of which a text says an image's: sources of images give a text for each of them.

    One target has one text, however a source writes it.

    Attributes:
        least_classes: that a data set needs.
    """

    least_classes: ClassVar[int] = 0

    @abstractmethod
    def text(self, value: Any, class_names: Sequence[str] = ()) -> str:
        """Return the text for a value as a source holds it.

        Args:
            value: of a table's column, of JSON, or what reads a data set's own files.
            class_names: where these are known beforehand; a whole number then stands for one of them.

        Raises:
            ValueError: it is no target; a phrase that follows the image's name.
        """

    def class_names(self, texts: Iterable[str]) -> tuple[str, ...]:  # noqa: ARG002 (without classes)
        """Return the names of the classes in the different texts of a data set, in the order of their numbers."""
        return ()

    @abstractmethod
    def fields(self, class_names: Sequence[str]) -> tuple[Feature, ...]:
        """Return the features of a record beside its image."""

    @abstractmethod
    def arrays(self, texts: Sequence[str], class_names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Return the values of these features for some texts, (n, …) each; classes as any unsigned integers."""

    @abstractmethod
    def words(self, records: Arrays, class_names: Sequence[str]) -> list[str]:
        """Return records' targets in words, as in ``train[3] is cat``."""


class Kind(ABC, Generic[E, P]):
    """A kind of task, by its evaluation and by what two runs are compared with.

    Its methods import their code when they are called: names, settings and measures need no TensorFlow.

    Attributes:
        name: as recipes and data sets say it.
        settings: the model of a recipe's ``task``.
        document: the model of ``evaluation.json``.
        examples: what a split counts, in words.
        caption: of the main measure's chart.
        lost: heading of examples that another run got right; ``shown`` and ``lost`` are filled in.
        says: what a model does with such an example; its run is filled in.
        lost_hint: what to see in their pictures.
        large_pictures: whether pictures of a sheet are large.
        own_measures: whether installed measures are computed for it.
    """

    name: ClassVar[str]
    settings: ClassVar[type[TaskSettings]]
    document: type[E]
    examples: ClassVar[str]
    caption: ClassVar[str]
    lost: ClassVar[str]
    says: ClassVar[str]
    lost_hint: ClassVar[str] = ""
    large_pictures: ClassVar[bool] = False
    own_measures: ClassVar[bool] = False

    @property
    def measure(self) -> str:
        """The measure that says how good a model is."""
        return self.document.measure

    @abstractmethod
    def targets(self) -> Targets:
        """Return the targets of its records."""

    @abstractmethod
    def require_fit(self, recipe: Recipe, manifest: Manifest) -> None:
        """Raise SettingsError if a recipe does not fit a data set."""

    @abstractmethod
    def objective(self, recipe: Recipe, manifest: Manifest) -> Objective:
        """Return what a recipe trains for on a data set."""

    @abstractmethod
    def model(self, recipe: Recipe, manifest: Manifest) -> keras.Model:
        """Return a recipe's Keras model with fresh weights."""

    @abstractmethod
    def description(
        self, recipe: Recipe, image_shape: tuple[int, int, int], classes: int, facts: JsonObject
    ) -> ModelDescription:
        """Return the layers and costs of a recipe's model.

        Args:
            recipe: which.
            image_shape: (height, width, channels) of every image.
            classes: how many the data set has.
            facts: see :attr:`podline.documents.manifest.Manifest.facts`; none where there is no data set yet.
        """

    @abstractmethod
    def judge(self, case: Case) -> Judgement:
        """Judge a run's model on a split."""

    @abstractmethod
    def parts(self, document: E) -> dict[str, Metric]:
        """Return the figures of an evaluation's classes or joints, by name."""

    @abstractmethod
    def reader(
        self, store: Store, training: TrainSpec, manifest: Manifest, threshold: float | None, reporter: Reporter
    ) -> PictureReader:
        """Return what prepares pictures for a model and formats its answers."""

    @abstractmethod
    def drawn(self, records: Arrays, manifest: Manifest) -> list[Picture]:
        """Return examples as pictures with their targets.

        Args:
            records: the fields of the objective, (n, …).
            manifest: of their data set.
        """

    @abstractmethod
    def asked(
        self, spec: ShowSpec, model: keras.Model, store: Store, manifest: Manifest, reporter: Reporter
    ) -> tuple[Block, int, int]:
        """Return a model's answers to test examples, their number, and how many are right.

        Both counts are 0 where answers are not right or wrong.
        """

    @abstractmethod
    def headline(self, run: RunFacts) -> Headline:
        """Return the top of a report."""

    @abstractmethod
    def sections(self) -> Iterable[Section]:
        """Return its own sections of a report, in their order."""

    @abstractmethod
    def rules(self) -> Sequence[Rule]:
        """Return its own rules of promotion."""

    @abstractmethod
    def pair(self, store: Store, before: Judged, after: Judged) -> P:
        """Return two runs on the same examples."""

    @abstractmethod
    def lost_examples(self, pair: P, reader: SplitReader, before: E, after: E) -> LostExamples:
        """Return examples that only the first of a pair got right.

        Args:
            pair: from :meth:`pair`.
            reader: of the split that both were judged on.
            before: the evaluation of the first.
            after: that of the second.
        """

    def looked_at(self, store: Store, run: str, images: Sequence[Image]) -> Sequence[Image]:  # noqa: ARG002 (by default none)
        """Return where a model looks, uint8 (height, width, 3) for each image, or nothing."""
        return ()

    @abstractmethod
    def answers(self) -> Answers:
        """Return how rules of promotion read answers and ask for them."""
