"""The base of kinds whose models answer each image separately: one output with one array per image."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from podline.kinds.contract import E, Kind, TextTargets
from podline.kinds.deferred import Deferred, method

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import keras  # pyright: ignore[reportMissingTypeStubs]

    from podline.arrays import Array, Arrays, Image
    from podline.compare.answers import Answers, LostExamples
    from podline.compare.figures import Compared, Rule
    from podline.data.reader import SplitReader
    from podline.documents.manifest import Manifest
    from podline.documents.metric import Metric
    from podline.documents.model_description import ModelDescription
    from podline.drawing.picture_sheet import Block, Picture
    from podline.evaluation import forward, grad_cam
    from podline.evaluation.case import Case, Judgement
    from podline.evaluation.predicting import PictureReader
    from podline.frozen import JsonObject
    from podline.input import augmentation
    from podline.kinds.by_example import sections
    from podline.kinds.by_example.document import ExampleEvaluation
    from podline.progress import Reporter
    from podline.recipes.settings import Recipe
    from podline.reporting.sections import Section
    from podline.stages.specs import TrainSpec
    from podline.stages.tools import ShowSpec
    from podline.store.contract import Store
else:
    augmentation, sections = Deferred("podline.input.augmentation"), Deferred(f"{__package__}.sections")
    forward, grad_cam = Deferred("podline.evaluation.forward"), Deferred("podline.evaluation.grad_cam")


class ImageKind(Kind[E]):
    """A kind whose models are the networks of recipes, from an image to a vector."""

    examples = "examples"

    require_fit = method(augmentation.require_room)

    def outputs(self, classes: int) -> int:
        """Return the number of outputs of a model: by default one per class."""
        return classes

    def model(self, recipe: Recipe, manifest: Manifest) -> keras.Model:
        """Build the network of a recipe."""
        from podline.models.build import image_model

        return image_model(recipe, manifest, self.outputs(len(manifest.class_names)))

    def description(
        self, recipe: Recipe, image_shape: tuple[int, int, int], classes: int, facts: JsonObject
    ) -> ModelDescription:
        """Return the network's layers and costs."""
        from podline.models.counts import describe

        return describe(recipe.model, image_shape, self.outputs(classes))

    def looked_at(self, store: Store, run: str, images: Sequence[Image]) -> Sequence[Image]:
        """Return the images with colours on the places that support the model's answer."""
        return grad_cam.looked_at(forward.finished_model(store, run), images)

    @abstractmethod
    def targets(self) -> TextTargets:
        """Return the targets of its records."""

    def drawn(self, records: Arrays, manifest: Manifest) -> list[Picture]:
        """Return images with their targets as text; mixed images list the share of each."""
        from podline.drawing.picture_sheet import Picture
        from podline.input.mixing import captions

        words = captions(records, lambda each: self.targets().words(each, manifest.class_names))
        return [Picture(*pair) for pair in zip(records["image"], words, strict=True)]


class ExampleKind(ImageKind["ExampleEvaluation"]):
    """A kind whose models answer each image with a value in the form of its target.

    Its figures are the measures of installed packages for this kind; one of them is ``document.measure``.

    Attributes:
        target: the record field that the answer is compared with.
    """

    target: ClassVar[str]
    caption = "Bars are 95 % intervals."
    lost = "Better answered before: {shown} of {lost}"
    says = "what {} answers"
    own_measures = True

    headline = method(sections.headline)

    @abstractmethod
    def decoded(self, outputs: Array, recipe: Recipe) -> Array:
        """Convert a model's outputs to the form of the target.

        Args:
            outputs: float32, (n, outputs).
            recipe: the model's recipe.
        """

    @abstractmethod
    def guesses(self, labels: Array) -> Array:
        """Return the best answers that ignore the images.

        Args:
            labels: the targets, (n, …).
        """

    def words(self, values: Array, manifest: Manifest) -> list[str]:
        """Return targets or answers as text."""
        return self.targets().words({self.target: values}, manifest.class_names)

    def judge(self, case: Case) -> Judgement:
        """Evaluate a model by the measures of the kind; write its answers beside the document."""
        from podline.kinds.by_example.judging import judge

        return judge(self, case)

    def parts(self, document: ExampleEvaluation) -> dict[str, Metric]:
        """Return no parts."""
        return {}

    def reader(
        self, store: Store, training: TrainSpec, manifest: Manifest, threshold: float | None, reporter: Reporter
    ) -> PictureReader:
        """Return the reader of pictures for a model."""
        from podline.kinds.by_example.predicting import AnswerReader

        return AnswerReader(manifest, kind=self, recipe=training.recipe)

    def asked(
        self, spec: ShowSpec, model: keras.Model, store: Store, manifest: Manifest, reporter: Reporter
    ) -> tuple[Block, int, int]:
        """Return the first test examples with a run's answers."""
        from podline.kinds.by_example.judging import asked

        return asked(self, spec, model, store, manifest, reporter)

    def sections(self) -> Iterable[Section]:
        """Return a table of all figures; a kind adds its own sections."""
        from podline.kinds.by_example import sections

        return (sections.metrics,)

    def rules(self) -> Sequence[Rule]:
        """Return the rules for the main measure and for guarded measures."""
        from podline.kinds.by_example import rules

        return (rules.main, rules.guards)

    def lost_examples(
        self,
        compared: Compared,
        reader: SplitReader,
        manifest: Manifest,
        before: ExampleEvaluation,
        after: ExampleEvaluation,
    ) -> LostExamples:
        """Return examples that the first model answered better."""
        from podline.kinds.by_example.lost_answers import lost_examples

        return lost_examples(self, compared, reader, manifest)

    def answers(self) -> Answers:
        """Return the provider of answers."""
        from podline.kinds.by_example.answers import KindAnswers

        return KindAnswers(self)
