"""The kind of task that tells one class for each image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podline.kinds.by_example.kind import ImageKind
from podline.kinds.classification.document import Evaluation
from podline.kinds.classification.settings import ClassificationSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import keras  # pyright: ignore[reportMissingTypeStubs]

    from podline.data.reader import SplitReader
    from podline.documents.manifest import Manifest
    from podline.documents.metric import Metric
    from podline.drawing.picture_sheet import Block
    from podline.evaluation.case import Case, Judgement
    from podline.kinds.classification.answers import ClassAnswers
    from podline.kinds.classification.pairs import GuessedPair
    from podline.kinds.classification.predicting import Classes
    from podline.kinds.classification.records import ClassTargets
    from podline.progress import Reporter
    from podline.promotion.figure import Rule
    from podline.recipes.settings import Recipe
    from podline.reporting.facts import RunFacts
    from podline.reporting.pairs import Judged, LostExamples
    from podline.reporting.sections import Section
    from podline.reporting.verdict import Headline
    from podline.stages.specs import TrainSpec
    from podline.stages.tools import ShowSpec
    from podline.store.contract import Store
    from podline.training.objective import Objective


class Classification(ImageKind["Evaluation", "GuessedPair"]):
    """One class for each image."""

    name = "classification"
    settings = ClassificationSettings
    document = Evaluation
    caption = "Accuracy; bars are 95 % intervals (Wilson)."
    lost = "Right before, wrong now: {shown} of {lost}"
    says = "what {} says"
    own_measures = True

    def targets(self) -> ClassTargets:
        """Return what records hold: a class."""
        from podline.kinds.classification.records import ClassTargets

        return ClassTargets()

    def objective(self, recipe: Recipe, manifest: Manifest) -> Objective:
        """Return the cross-entropy."""
        from podline.kinds.classification.objective import class_objective

        return class_objective(recipe, manifest)

    def judge(self, case: Case) -> Judgement:
        """Judge a classifier; its guesses lie beside the document."""
        from podline.kinds.classification.judging import judge

        return judge(case)

    def parts(self, document: Evaluation) -> dict[str, Metric]:
        """Return each class's share of right answers."""
        return {found.name: found.accuracy for found in document.per_class}

    def reader(
        self, store: Store, training: TrainSpec, manifest: Manifest, threshold: float | None, reporter: Reporter
    ) -> Classes:
        """Return what names the classes of pictures."""
        from podline.kinds.classification.predicting import reader

        return reader(store, training, manifest, threshold, reporter)

    def asked(
        self, spec: ShowSpec, model: keras.Model, store: Store, manifest: Manifest, reporter: Reporter
    ) -> tuple[Block, int, int]:
        """Return the first test examples with a run's guesses, then its most confident mistakes."""
        from podline.kinds.classification.sheet import asked

        return asked(spec, model, store, manifest, reporter)

    def headline(self, run: RunFacts) -> Headline:
        """Return what the top of a classifier's report says."""
        from podline.kinds.classification.sections import headline

        return headline(run)

    def sections(self) -> Iterable[Section]:
        """Return the sections of a classifier's report."""
        from podline.kinds.classification import sections
        from podline.reporting.sections import sections_in

        return sections_in(sections)

    def rules(self) -> Sequence[Rule]:
        """Return the rules for classifiers."""
        from podline.kinds.by_example.rules import guards
        from podline.kinds.classification import rules

        return (rules.accuracy, rules.classes, rules.calibration, guards)

    def pair(self, store: Store, before: Judged, after: Judged) -> GuessedPair:
        """Return the guesses of two classifiers for the same examples."""
        from podline.kinds.classification.pairs import pair

        return pair(store, before, after)

    def lost_examples(
        self, pair: GuessedPair, reader: SplitReader, before: Evaluation, after: Evaluation
    ) -> LostExamples:
        """Return examples that only the first named rightly."""
        from podline.kinds.classification.pairs import lost_examples

        return lost_examples(pair, reader, before, after)

    def answers(self) -> ClassAnswers:
        """Return how guesses are read and asked for."""
        from podline.kinds.classification.answers import ClassAnswers

        return ClassAnswers()
