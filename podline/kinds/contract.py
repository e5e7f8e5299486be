"""The contract of a kind of task: the targets in its records, and all operations on its models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

# The contract lies below the layers that call it, so it imports their types for the type checker only.
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import keras  # pyright: ignore[reportMissingTypeStubs]
    import numpy as np
    import numpy.typing as npt

    from podline.arrays import Arrays, Image
    from podline.compare.answers import Answers, LostExamples
    from podline.compare.figures import Compared, Rule
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
    from podline.recipes.settings import Recipe
    from podline.recipes.task import TaskSettings
    from podline.reporting.facts import RunFacts
    from podline.reporting.sections import Section
    from podline.reporting.verdict import Headline
    from podline.stages.specs import TrainSpec
    from podline.stages.tools import ShowSpec
    from podline.store.contract import Store
    from podline.training.objective import Objective


E = TypeVar("E", bound="AnyEvaluation")


class Targets:
    """The targets of a kind: the content of its records beside the image.

    ``records`` are fields of some records by name, (n, …) each, as the reader returns them, with or without the image.
    """

    def census(self, records: Arrays, classes: int) -> npt.NDArray[np.int64]:  # noqa: ARG002 (without classes)
        """Return the number of records of each class, (classes,)."""
        import numpy as np  # noqa: PLC0415

        return np.zeros(classes, np.int64)

    def check(self, records: Arrays, manifest: Manifest) -> tuple[int, str] | None:  # noqa: ARG002 (all are valid)
        """Return the place of the first record with invalid targets, and a phrase for after its name; or None."""
        return None


class TextTargets(Targets, ABC):
    """The targets of a kind whose targets can be given as text; sources of images return a text per image.

    Each target has exactly one text, however a source writes it.

    Attributes:
        least_classes: least number of classes of a data set.
    """

    least_classes: ClassVar[int] = 0

    @abstractmethod
    def text(self, value: Any, class_names: Sequence[str] = ()) -> str:
        """Convert a source's value to the text of its target.

        Args:
            value: a value from a table, from JSON, or from the reader of a user's data set.
            class_names: the class names if known beforehand; an integer is then an index of them.

        Raises:
            ValueError: the value is not a target; the message is a phrase after the image's name.
        """

    def class_names(self, texts: Iterable[str]) -> tuple[str, ...]:  # noqa: ARG002 (without classes)
        """Return the class names in the distinct texts of a data set, in the order of their numbers."""
        return ()

    @abstractmethod
    def fields(self, class_names: Sequence[str]) -> tuple[Feature, ...]:
        """Return the features of a record beside its image."""

    @abstractmethod
    def arrays(self, texts: Sequence[str], class_names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Convert texts to the values of these features, (n, …) each; classes as any unsigned integers."""

    @abstractmethod
    def words(self, records: Arrays, class_names: Sequence[str]) -> list[str]:
        """Return records' targets as text, as in ``train[3] is cat``."""


class Doubt(NamedTuple):
    """A doubt about a test split: no figure on it, or hardly one, can be told from guessing.

    Attributes:
        certain: whether no answers could be shown to be better than guessing.
        words: the reason, the number of test images that would be enough, and the remedy.
    """

    certain: bool
    words: str


class Kind(ABC, Generic[E]):
    """A kind of task, parametrised by its evaluation.

    Its methods import their code on the first call: names, settings and measures need no TensorFlow.

    Attributes:
        name: name in recipes and data sets.
        settings: the model of a recipe's ``task``.
        document: the model of ``evaluation.json``.
        examples: the plural noun for the examples of a split.
        caption: caption of the main measure's chart.
        lost: heading for examples that only the other run got right; ``shown`` and ``lost`` are filled in.
        says: verb for a model's answer to such an example; the run is filled in.
        lost_hint: explanation of the marks in their pictures.
        large_pictures: whether a sheet shows large pictures.
        own_measures: whether installed measures are computed for the kind.
        seed_spreads: measured standard deviations between seeds, luck excluded, of a total and of a part, divided by
            sqrt(4 r (1 - r)) at the share r; each with the least number of classes that it holds for, ascending.
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
    seed_spreads: ClassVar[tuple[tuple[int, float, float], ...]] = ()

    @property
    def measure(self) -> str:
        """The measure that ranks models."""
        return self.document.measure

    @abstractmethod
    def targets(self) -> Targets:
        """Return the targets of its records."""

    @abstractmethod
    def require_fit(self, recipe: Recipe, manifest: Manifest) -> None:
        """Raise SettingsError if a recipe does not fit a data set."""

    def doubt(
        self,
        names: Sequence[str],  # noqa: ARG002 (by default none)
        test: Sequence[int],  # noqa: ARG002
        every: Sequence[int],  # noqa: ARG002
        *,
        is_hashed: bool,  # noqa: ARG002
    ) -> Doubt | None:
        """Return what an evaluation on the test split cannot prove, known before the training; None by default.

        Args:
            names: the classes.
            test: number of test examples of each class.
            every: number of examples of each class in all splits.
            is_hashed: whether a hash of the images may have made the test split, with the share ``test_share``.
        """
        return None

    @abstractmethod
    def objective(self, recipe: Recipe, manifest: Manifest) -> Objective:
        """Build the objective of a recipe on a data set."""

    @abstractmethod
    def model(self, recipe: Recipe, manifest: Manifest) -> keras.Model:
        """Build a recipe's Keras model with fresh weights."""

    @abstractmethod
    def description(
        self, recipe: Recipe, image_shape: tuple[int, int, int], classes: int, facts: JsonObject
    ) -> ModelDescription:
        """Return the layers and costs of a recipe's model.

        Args:
            recipe: the recipe.
            image_shape: (height, width, channels) of every image.
            classes: number of classes of the data set.
            facts: see :attr:`podline.documents.manifest.Manifest.facts`; empty without a data set.
        """

    @abstractmethod
    def judge(self, case: Case) -> Judgement:
        """Evaluate a run's model on a split."""

    @abstractmethod
    def parts(self, document: E) -> dict[str, Metric]:
        """Return the figures of an evaluation's classes or joints, by name."""

    @abstractmethod
    def reader(
        self, store: Store, training: TrainSpec, manifest: Manifest, threshold: float | None, reporter: Reporter
    ) -> PictureReader:
        """Return the reader that prepares pictures for a model and formats its answers."""

    @abstractmethod
    def drawn(self, records: Arrays, manifest: Manifest) -> list[Picture]:
        """Return examples as pictures with their targets.

        Args:
            records: the fields of the objective, (n, …).
            manifest: the manifest of the data set.
        """

    @abstractmethod
    def asked(
        self, spec: ShowSpec, model: keras.Model, store: Store, manifest: Manifest, reporter: Reporter
    ) -> tuple[Block, int, int]:
        """Return a model's answers to test examples, the number of examples, and the number of correct answers.

        Both numbers are 0 for a kind whose answers are not simply right or wrong.
        """

    @abstractmethod
    def headline(self, run: RunFacts) -> Headline:
        """Return the top of a report."""

    @abstractmethod
    def sections(self) -> Iterable[Section]:
        """Return the kind's own sections of a report, in order."""

    @abstractmethod
    def rules(self) -> Sequence[Rule]:
        """Return the kind's own promotion rules."""

    @abstractmethod
    def lost_examples(
        self, compared: Compared, reader: SplitReader, manifest: Manifest, before: E, after: E
    ) -> LostExamples:
        """Return examples that only the first known training got right, and not the candidate.

        Args:
            compared: the answers of both to the same examples.
            reader: the reader of the judged split.
            manifest: the manifest of its data set.
            before: the evaluation of the first run.
            after: the evaluation of the second run.
        """

    def looked_at(self, store: Store, run: str, images: Sequence[Image]) -> Sequence[Image]:  # noqa: ARG002 (by default none)
        """Return pictures that mark where a model looks, uint8 (height, width, 3) per image; empty by default."""
        return ()

    @abstractmethod
    def answers(self) -> Answers:
        """Return the provider of models' answers for promotion rules."""
