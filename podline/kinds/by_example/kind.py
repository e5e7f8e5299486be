"""The base of kinds whose models answer each image separately: one output with one array per image.

The methods that run a model import the code that needs TensorFlow.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from podline.base.arrays import Array, Arrays, Image, Tensor
from podline.base.frozen import JsonObject
from podline.base.progress import Reporter
from podline.contract.answers import LostExample, LostExamples
from podline.contract.noise import Floats
from podline.contract.per_example import PerExample
from podline.contract.rules import Compared, Rule
from podline.data.reader import SplitReader
from podline.documents.any_evaluation import EVALUATION, AnyEvaluation
from podline.documents.manifest import Manifest
from podline.documents.metric import Metric
from podline.documents.model_description import ModelDescription
from podline.kinds.by_example import rules
from podline.kinds.by_example.answered import Answered
from podline.kinds.by_example.document import ImageFigures
from podline.kinds.by_example.measures import figure_of, figures_of, gains_of, value_of
from podline.recipes.kind_table import read_evaluation
from podline.recipes.measures import Measure, measure_named
from podline.recipes.settings import Recipe
from podline.recipes.targets import TextTargets
from podline.report.kind_report import ReportedKind
from podline.stages.specs import TrainSpec
from podline.stages.tools import ClassShare, PicturePrediction, ShowSpec
from podline.store.contract import Store

if TYPE_CHECKING:
    import keras  # pyright: ignore[reportMissingTypeStubs]

    from podline.base.drawing.picture_sheet import SheetBlock, SheetPicture
    from podline.contract.case import Case, Judgement
    from podline.contract.picture_reader import PictureReader
    from podline.kinds.by_example.answers import ExampleAnswers
    from podline.report.facts import RunFacts
    from podline.report.kind_report import Headline
    from podline.report.sections import Section

A = TypeVar("A", bound=PerExample)
MOST_LOST = 24
"""The number of lost examples that are listed and shown."""


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
        held_out: the answers to the examples on which thresholds are chosen: held-out or training examples.
        thresholds: the thresholds, (classes,); empty for kinds without thresholds.
        chosen_on: the split of ``held_out``.
    """

    class_names: Sequence[str]
    trained: A
    held_out: A
    thresholds: Floats
    chosen_on: str


class ExampleKind(ReportedKind, Generic[A]):
    """A kind whose models answer each image separately; its figures are measures of the answers.

    A kind implements or overrides the methods up to :meth:`truths`.

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
            recipe: the recipe.
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
        """Return the main figure of guessing without the images, and the range that chance gives it."""

    @abstractmethod
    def words(self, answers: A, manifest: Manifest) -> list[str]:
        """Return answers as text."""

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
            answers: the answers.
            classes: number of classes.
            failed: called with the reason if a measure is left out.
        """
        return ImageFigures(
            examples=len(answers.labels), metrics=figures_of(answers, self.name, classes or None, failed)
        )

    def fields(self, judged: Judged[A]) -> Mapping[str, object]:
        """Return the fields that the kind adds to the evaluation."""
        return {}

    def over_views(self, model: Callable[..., Tensor], recipe: Recipe) -> Views | None:
        """Return a model for test-time augmentation, which averages its answers over views of each image; or None."""
        return None

    def thresholds_in(self, evaluation: AnyEvaluation) -> Floats:
        """Return the thresholds that an evaluation chose, (classes,); empty for kinds without thresholds."""
        return np.empty(0)

    def lost_order(self, before: A, after: A) -> Floats:
        """Return a sort key for each example, (n,); reports show lost examples with the lowest key first."""
        return gains_of(measure_named(self.measure), before, after)

    def truths(self, labels: Array, manifest: Manifest) -> list[str]:
        """Return targets as text."""
        targets = self.facts.targets
        return targets.words({self.target: labels}, manifest.class_names) if isinstance(targets, TextTargets) else []

    def require_fit(self, recipe: Recipe, manifest: Manifest) -> None:
        """Check that the augmentation fits images of this shape."""
        from podline.input.augmentation import require_room

        require_room(recipe, manifest)

    def model(self, recipe: Recipe, manifest: Manifest) -> keras.Model:
        """Build the network of a recipe, or the kind's own."""
        from podline.models.build import build_model, trainable_model

        height, width, channels = manifest.image_shape
        classes, split = len(manifest.class_names), manifest.split("train")
        shape, pixels = (height, width, channels), (split.mean, split.std)
        own = self.network(recipe, shape, classes)
        if own is None:
            return build_model(recipe.model, shape, self.outputs(classes), *pixels, recipe.seed, recipe.precision)
        return trainable_model(own, self.name, pixels, recipe.seed, precision=recipe.precision)

    def description(
        self, recipe: Recipe, image_shape: tuple[int, int, int], classes: int, facts: JsonObject
    ) -> ModelDescription:
        """Return the network's layers and costs."""
        from podline.models.build import trainable_model
        from podline.models.counts import describe, described

        own, channels = self.network(recipe, image_shape, classes), image_shape[-1]
        if own is None:
            return describe(recipe.model, image_shape, self.outputs(classes))
        return described(trainable_model(own, self.name, ([0.0] * channels, [1.0] * channels), recipe.seed))

    def measured(self, outputs: Array, targets: Array, measures: Sequence[Measure], recipe: Recipe) -> dict[str, float]:
        """Return the figures of some measures for a model's outputs, by the measure's name."""
        answers = self.answered(outputs, targets, recipe)
        return {measure.name: value_of(measure, answers) for measure in measures}

    def judge(self, case: Case) -> Judgement:
        """Evaluate a run's model by the measures of the kind; also return files with the model's answers."""
        from podline.kinds.by_example.judging import judge

        return judge(self, case)

    def reader(
        self, store: Store, training: TrainSpec, manifest: Manifest, threshold: float | None, reporter: Reporter
    ) -> PictureReader:
        """Return the reader that fits pictures for a run's model and formats the answers.

        If ``threshold`` is None, the thresholds of labels are those of the run's evaluation, or 0.5 without evaluation.
        """
        from podline.kinds.by_example.predicting import AnswerReader

        thresholds = np.empty(0)
        if self.read_by.has_thresholds:
            thresholds = np.full(len(manifest.class_names), 0.5 if threshold is None else threshold)
            if threshold is None and store.exists(f"{training.folder}/{EVALUATION}"):
                thresholds = self.thresholds_in(read_evaluation(store, training.folder))
            elif threshold is None:
                reporter.warn(
                    "labels need a probability of 50 %, since no evaluation chose thresholds; give --threshold"
                )
        return AnswerReader(self, training.recipe, manifest, threshold, thresholds)

    def drawn(self, records: Arrays, manifest: Manifest) -> list[SheetPicture]:
        """Return the records' images, captioned with their targets; mixed images list the share of each target."""
        from podline.base.drawing.picture_sheet import SheetPicture
        from podline.input.mixing import captions

        words = captions(records, lambda each: self.truths(each[self.target], manifest))
        return [SheetPicture(*pair) for pair in zip(records["image"], words, strict=True)]

    def sheet_block(
        self, spec: ShowSpec, model: keras.Model, store: Store, manifest: Manifest, reporter: Reporter
    ) -> tuple[SheetBlock, int, int]:
        """Return the first test examples with a run's answers, and its mistakes."""
        from podline.kinds.by_example.sheet import sheet_block

        return sheet_block(self, spec, model, store, manifest, reporter)

    def saliency(self, store: Store, run: str, images: Sequence[Image]) -> Sequence[Image]:
        """Return the images with colours on the regions that support the model's answer (Grad-CAM)."""
        from podline.evaluation import forward, grad_cam

        return grad_cam.saliency(forward.finished_model(store, run), images)

    def headline(self, run: RunFacts) -> Headline:
        """Return the main measure for the top of the page."""
        from podline.kinds.by_example import sections

        return sections.headline(run, self.about, self.guess)

    def sections(self) -> Iterable[Section]:
        """Return the section with the table of all figures; kinds override it to add sections."""
        from podline.kinds.by_example import sections

        return (sections.metrics,)

    def rules(self) -> Sequence[Rule]:
        """Return the rules for the main measure and for guarded measures."""
        return (rules.main, rules.guards)

    def lost_examples(
        self,
        compared: Compared[A],
        reader: SplitReader,
        manifest: Manifest,
        before: AnyEvaluation,
        after: AnyEvaluation,
    ) -> LostExamples:
        """Return the examples that only the first model answered correctly, or that it answered better.

        The result is empty if answers are neither right nor wrong and the main measure is not a mean over examples.
        """
        first, second = compared.known[0], compared.candidate
        was, now = first.right, second.right
        if was is not None and now is not None:
            lost, gained = was & ~now, now & ~was
        else:
            gain = gains_of(measure_named(self.measure), first, second)
            lost, gained = gain < 0, gain > 0
        places = np.flatnonzero(lost)
        chosen = places[np.argsort(self.lost_order(first, second)[places], kind="stable")][:MOST_LOST]
        records = chosen if compared.places is None else compared.places[chosen]
        images = reader.gather(records, ["image"])["image"] if len(records) else ()
        names = self.truths(second.labels[chosen], manifest)
        words = (self.words(each.at(chosen), manifest) for each in (first, second))
        examples = [
            LostExample(record=record, name=name, before=then, after=now)
            for record, name, then, now in zip(records.tolist(), names, *words, strict=True)
        ]
        return LostExamples(len(places), int(gained.sum()), examples, [(image,) for image in images])

    def answers(self) -> ExampleAnswers[A]:
        """Return the provider of this kind's answers for promotion rules."""
        from podline.kinds.by_example.answers import ExampleAnswers

        return ExampleAnswers(self)


class ValueKind(ExampleKind[Answered]):
    """A kind whose models answer each image with a value in the shape and type of the target."""

    read_by = Answered

    @abstractmethod
    def decoded(self, outputs: Array, recipe: Recipe) -> Array:
        """Convert a model's outputs to values in the shape and type of the targets.

        Args:
            outputs: float32, (n, …).
            recipe: the model's recipe.
        """

    @abstractmethod
    def guesses(self, labels: Array) -> Array:
        """Return the best answers to these examples that do not depend on the image, (n, …).

        Args:
            labels: the targets, (n, …).
        """

    def answered(self, outputs: Array, targets: Array, recipe: Recipe) -> Answered:
        """Return the decoded outputs."""
        return Answered(targets, self.decoded(outputs, recipe))

    def guessing(self, trained: Answered) -> Metric:
        """Return the main measure of :meth:`guesses`."""
        return figure_of(measure_named(self.measure), Answered(trained.labels, self.guesses(trained.labels)))

    def words(self, answers: Answered, manifest: Manifest) -> list[str]:
        """Return the answers as text, like targets."""
        return self.truths(answers.answers, manifest)

    def prediction(
        self, picture: PicturePrediction, output: Array, recipe: Recipe, manifest: Manifest, thresholds: Floats
    ) -> PicturePrediction:
        """Return the picture's prediction with the decoded answer and its text."""
        decoded = self.decoded(output[np.newaxis], recipe)
        answer: Any = decoded[0].tolist()
        return picture.changed(answer=answer, words=self.truths(decoded, manifest)[0])


def shares_of(class_names: Sequence[str], shares: Floats, labels: Sequence[int]) -> tuple[ClassShare, ...]:
    """Return some classes with their names and probabilities.

    Args:
        class_names: names of all classes.
        shares: the probability of each class, (classes,).
        labels: indices of the classes to list, in the order of the result.
    """
    return tuple(ClassShare(name=class_names[label], probability=float(shares[label])) for label in labels)
