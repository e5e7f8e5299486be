"""The base of kinds whose models answer each image separately: one output with one array per image.

The methods that run a model import the code that needs TensorFlow.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from podline.base.arrays import Array, Arrays, Floats, Image
from podline.base.errors import SettingsError
from podline.base.frozen import JsonObject
from podline.base.progress import Reporter
from podline.contract.answers import LostExample, LostExamples
from podline.contract.rules import Compared, Rule
from podline.data.reader import SplitReader
from podline.documents.any_evaluation import EVALUATION, AnyEvaluation
from podline.documents.manifest import Manifest
from podline.documents.metric import Metric
from podline.documents.model_description import ModelDescription
from podline.kinds.by_example import rules
from podline.kinds.by_example.answered import Answered
from podline.kinds.by_example.hooks import A, ExampleHooks
from podline.kinds.by_example.measures import figure_of, gains_of, value_of
from podline.recipes.kind_table import read_evaluation
from podline.recipes.measures import Measure, measure_named
from podline.recipes.settings import Recipe
from podline.stages.specs import TrainSpec
from podline.stages.tools import PicturePrediction, ShowSpec
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

MOST_LOST = 24
"""The largest number of lost examples that are listed and shown."""


class ExampleKind(ExampleHooks[A]):
    """A kind whose models answer each image separately; its figures are measures of the answers.

    A kind implements or overrides the methods of :class:`podline.kinds.by_example.hooks.ExampleHooks`.
    """

    def require_fit(self, recipe: Recipe, manifest: Manifest) -> None:
        """Check that the augmentation fits images of this shape."""
        from podline.input.augmentation import require_room

        require_room(recipe, manifest)

    def model(self, recipe: Recipe, manifest: Manifest) -> keras.Model:
        """Build the kind's own network, or the network of the recipe if the kind has none."""
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
        """Return the network's layers and costs; see :meth:`model`."""
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

        Raises:
            SettingsError: a threshold is given, but the kind has none.
        """
        from podline.kinds.by_example.predicting import AnswerReader

        thresholds = np.empty(0)
        if threshold is not None and not self.read_by.has_thresholds:
            raise SettingsError(f"got a threshold for {training.run}: the kind {self.name} has none; leave it out")
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
        """Return test examples with a run's answers, and its mistakes; the number of examples, and of correct ones."""
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
        """Return the examples that only the model of ``before`` answered correctly, at most :data:`MOST_LOST` listed.

        If answers are neither right nor wrong, return the examples for which the main measure is worse in ``after``,
        and no examples if the main measure is not a mean over examples.
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
        """Return the decoded outputs together with the targets."""
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
