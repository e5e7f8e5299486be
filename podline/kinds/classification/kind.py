"""The kind of task that predicts one class per image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podline.kinds.by_example.kind import ImageKind
from podline.kinds.classification.document import Evaluation
from podline.kinds.classification.settings import ClassificationSettings
from podline.kinds.deferred import Deferred, method

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from podline.compare.figures import Rule
    from podline.documents.metric import Metric
    from podline.kinds.classification import (
        answers,
        doubts,
        judging,
        lost_answers,
        objective,
        predicting,
        records,
        sections,
        sheet,
        weights,
    )
    from podline.reporting.sections import Section
else:
    answers, doubts, judging, objective, lost_answers, predicting, records, sections, sheet, weights = (
        Deferred(f"{__package__}.{name}")
        for name in (
            "answers",
            "doubts",
            "judging",
            "objective",
            "lost_answers",
            "predicting",
            "records",
            "sections",
            "sheet",
            "weights",
        )
    )


class Classification(ImageKind["Evaluation"]):
    """One class per image."""

    name = "classification"
    settings = ClassificationSettings
    document = Evaluation
    caption = "Accuracy; bars are 95 % intervals (Wilson)."
    lost = "Correct before, wrong now: {shown} of {lost}"
    says = "what {} says"
    own_measures = True
    # Of CIFAR-10 (benchmarks/RESULTS.md). Fewer classes: six of 150 images differ by 0.9 points at 66 %, of which luck
    # explains 0.6. Ten classes: seeds of the cifar10 recipes differ by 0.1 to 0.2 points at 90 %, luck included.
    seed_spreads = ((0, 0.007, 0.012), (10, 0.0025, 0.012))

    require_fit = method(weights.require_fit)
    targets = method(records.ClassTargets)
    objective = method(objective.class_objective)
    doubt = method(doubts.doubt)
    judge = method(judging.judge)
    reader = method(predicting.reader)
    asked = method(sheet.asked)
    headline = method(sections.headline)
    lost_examples = method(lost_answers.lost_examples)
    answers = method(answers.ClassAnswers)

    def parts(self, document: Evaluation) -> dict[str, Metric]:
        """Return each class's accuracy."""
        return {found.name: found.accuracy for found in document.per_class}

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
