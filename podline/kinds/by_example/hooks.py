"""The methods that a kind of separately answered images implements: answers, their text and their figures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from podline.base.arrays import Array, Floats, Tensor
from podline.contract.per_example import PerExample
from podline.data.shown import shortened
from podline.documents.any_evaluation import AnyEvaluation
from podline.documents.manifest import Manifest
from podline.documents.metric import Metric
from podline.kinds.by_example.document import ImageFigures
from podline.kinds.by_example.measures import figures_of, gains_of
from podline.recipes.measures import measure_named
from podline.recipes.settings import Recipe
from podline.recipes.targets import TextTargets
from podline.report.kind_report import ReportedKind
from podline.stages.tools import ClassShare, PicturePrediction

if TYPE_CHECKING:
    import keras  # pyright: ignore[reportMissingTypeStubs]

A = TypeVar("A", bound=PerExample)


class Views(NamedTuple):
    """The number of views of each image, and a model that averages its answers over them."""

    number: int
    model: Callable[..., Tensor]


@dataclass(frozen=True)
class Judged(Generic[A]):
    """The answers of a run's trained model, from which the evaluation's fields are computed.

    Attributes:
        class_names: the class names of the data set.
        trained: the answers to the judged split.
        held_out: the answers to the examples on which thresholds are chosen, before the thresholds are applied.
        thresholds: the thresholds, (classes,); empty for kinds without thresholds.
        chosen_on: ``validation`` if ``held_out`` is a validation split or examples held out of the training split;
            ``train`` if it is examples that were trained on.
    """

    class_names: Sequence[str]
    trained: A
    held_out: A
    thresholds: Floats
    chosen_on: str


class ExampleHooks(ReportedKind, Generic[A]):
    """The methods of an :class:`podline.kinds.by_example.kind.ExampleKind` that a kind implements or overrides.

    Attributes:
        target: the record field that the answer is compared with.
        read_by: the class that stores the models' answers.
        tells: see :attr:`podline.contract.picture_reader.PictureReader.tells`.
        about: the text after the main figure in a report; ``{split}`` and ``{dataset}`` are replaced.
        guess: the text before the figure of guessing.
    """

    target: ClassVar[str]
    read_by: type[A]
    tells: ClassVar[Literal["classes", "labels", "answer"]] = "answer"
    about: ClassVar[str] = "on the {split} split of {dataset}"
    guess: ClassVar[str] = "The best answer that ignores the image gives"

    def outputs(self, classes: int) -> int:
        """Return the number of outputs of a model: by default one per class."""
        return classes

    def network(self, recipe: Recipe, image_shape: tuple[int, int, int], classes: int) -> keras.Model | None:
        """Build the kind's own network, from normalised images to one output; return None to use the recipe's model.

        Args:
            recipe: the recipe whose network to build.
            image_shape: (height, width, channels) of every image.
            classes: number of classes in the data set.
        """
        return None

    @abstractmethod
    def answered(self, outputs: Array, targets: Array, recipe: Recipe) -> A:
        """Return a model's answers to some examples, together with the targets.

        Args:
            outputs: the model's outputs, float32, (n, …).
            targets: the targets, (n, …).
            recipe: the model's recipe.
        """

    @abstractmethod
    def guessing(self, trained: A) -> Metric:
        """Return the main figure of guessing (answers that do not depend on the image), with its 95 % range."""

    @abstractmethod
    def words(self, answers: A, manifest: Manifest) -> list[str]:
        """Return the answer to each example as text."""

    @abstractmethod
    def prediction(
        self, picture: PicturePrediction, output: Array, recipe: Recipe, manifest: Manifest, thresholds: Floats
    ) -> PicturePrediction:
        """Return a picture's prediction with the answer filled in; classes are listed most probable first.

        Args:
            picture: the prediction without an answer.
            output: the model's output for the picture, float32, (…).
            recipe: the model's recipe.
            manifest: the manifest of the model's data set.
            thresholds: the threshold of each class, (classes,); empty for kinds without thresholds.
        """

    def figures(self, answers: A, classes: int, failed: Callable[[str], object] | None = None) -> ImageFigures:
        """Return every measure of the answers.

        Args:
            answers: a model's answers, with the targets.
            classes: number of classes; 0 for a data set without classes.
            failed: called with the reason if a measure is left out because it fails.
        """
        return ImageFigures(
            examples=len(answers.labels), metrics=figures_of(answers, self.name, classes or None, failed)
        )

    def fields(self, judged: Judged[A]) -> Mapping[str, object]:
        """Return the fields that the kind adds to the evaluation; none by default."""
        return {}

    def over_views(self, model: Callable[..., Tensor], recipe: Recipe) -> Views | None:
        """Return a model for test-time augmentation, which averages its answers over views of each image; or None."""
        return None

    def thresholds_in(self, evaluation: AnyEvaluation) -> Floats:
        """Return the thresholds that an evaluation chose, (classes,); empty for kinds without thresholds."""
        return np.empty(0)

    def lost_order(self, before: A, after: A) -> Floats:
        """Return a sort key for each example, (n,), by default the main measure's gain; reports show low keys first."""
        gains = gains_of(measure_named(self.measure), before, after)
        return gains if len(gains) else np.zeros(len(after.labels))

    def truths(self, labels: Array, manifest: Manifest) -> list[str]:
        """Return the target of each example as text; a Python literal if the kind's targets have no text."""
        targets = self.facts.targets
        if isinstance(targets, TextTargets):
            return targets.words({self.target: labels}, manifest.class_names)
        return [shortened(label.tolist()) for label in labels]


def shares_of(class_names: Sequence[str], shares: Floats, labels: Sequence[int]) -> tuple[ClassShare, ...]:
    """Return some classes with their names and probabilities.

    Args:
        class_names: names of all classes.
        shares: the probability of each class, (classes,).
        labels: indices of the classes to list, in the order of the result.
    """
    return tuple(ClassShare(name=class_names[label], probability=float(shares[label])) for label in labels)
