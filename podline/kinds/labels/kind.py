"""The kind of task that tells any number of labels for each image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podline.kinds.by_example.kind import ImageKind
from podline.kinds.labels.document import LabelsEvaluation
from podline.kinds.labels.settings import LabelsSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import keras  # pyright: ignore[reportMissingTypeStubs]

    from podline.data.reader import SplitReader
    from podline.documents.manifest import Manifest
    from podline.documents.metric import Metric
    from podline.drawing.picture_sheet import Block
    from podline.evaluation.case import Case, Judgement
    from podline.kinds.labels.answers import LabelAnswers
    from podline.kinds.labels.pairs import ScoredPair
    from podline.kinds.labels.predicting import LabelReader
    from podline.kinds.labels.records import LabelTargets
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


class Labels(ImageKind["LabelsEvaluation", "ScoredPair"]):
    """Any number of labels for each image."""

    name = "labels"
    settings = LabelsSettings
    document = LabelsEvaluation
    caption = "mAP; bars are 95 % intervals (infinitesimal jackknife over images)."
    lost = "All labels right before, not now: {shown} of {lost}"
    says = "what {} names"

    def targets(self) -> LabelTargets:
        """Return what records hold: zeros and ones."""
        from podline.kinds.labels.records import LabelTargets

        return LabelTargets()

    def objective(self, recipe: Recipe, manifest: Manifest) -> Objective:
        """Return the sigmoid cross-entropy."""
        from podline.kinds.labels.objective import labels_objective

        return labels_objective(recipe, manifest)

    def judge(self, case: Case) -> Judgement:
        """Judge a model; its scores lie beside the document."""
        from podline.kinds.labels.judging import judge

        return judge(case)

    def parts(self, document: LabelsEvaluation) -> dict[str, Metric]:
        """Return each judged label's average precision."""
        return {found.name: found.ap for found in document.labels if found.ap}

    def reader(
        self, store: Store, training: TrainSpec, manifest: Manifest, threshold: float | None, reporter: Reporter
    ) -> LabelReader:
        """Return what names the labels of pictures."""
        from podline.kinds.labels.predicting import reader

        return reader(store, training, manifest, threshold, reporter)

    def asked(
        self, spec: ShowSpec, model: keras.Model, store: Store, manifest: Manifest, reporter: Reporter
    ) -> tuple[Block, int, int]:
        """Return the first test examples with a run's labels, then its most confident mistakes."""
        from podline.kinds.labels.sheet import asked

        return asked(spec, model, store, manifest, reporter)

    def headline(self, run: RunFacts) -> Headline:
        """Return what the top of a report says."""
        from podline.kinds.labels.sections import headline

        return headline(run)

    def sections(self) -> Iterable[Section]:
        """Return the sections of a report on several labels."""
        from podline.kinds.labels import sections
        from podline.reporting.sections import sections_in

        return sections_in(sections)

    def rules(self) -> Sequence[Rule]:
        """Return the rules for several labels."""
        from podline.kinds.labels import rules

        return (rules.mean_precision, rules.labels, rules.guards)

    def pair(self, store: Store, before: Judged, after: Judged) -> ScoredPair:
        """Return the scores of two models for the same examples."""
        from podline.kinds.labels.pairs import pair

        return pair(store, before, after)

    def lost_examples(
        self, pair: ScoredPair, reader: SplitReader, before: LabelsEvaluation, after: LabelsEvaluation
    ) -> LostExamples:
        """Return examples of which only the first named all labels and no other."""
        from podline.kinds.labels.pairs import lost_examples

        return lost_examples(pair, reader, before, after)

    def answers(self) -> LabelAnswers:
        """Return how scores are read and asked for."""
        from podline.kinds.labels.answers import LabelAnswers

        return LabelAnswers()
