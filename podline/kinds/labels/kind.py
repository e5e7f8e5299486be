"""The kind of task that predicts any number of labels per image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podline.kinds.by_example.kind import ImageKind
from podline.kinds.deferred import Deferred, method
from podline.kinds.labels.document import LabelsEvaluation
from podline.kinds.labels.settings import LabelsSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from podline.compare.figures import Rule
    from podline.documents.metric import Metric
    from podline.kinds.labels import answers, judging, lost_answers, objective, predicting, records, sections, sheet
    from podline.reporting.sections import Section
else:
    answers, judging, objective, lost_answers, predicting, records, sections, sheet = (
        Deferred(f"{__package__}.{name}")
        for name in ("answers", "judging", "objective", "lost_answers", "predicting", "records", "sections", "sheet")
    )


class Labels(ImageKind["LabelsEvaluation"]):
    """Any number of labels per image."""

    name = "labels"
    settings = LabelsSettings
    document = LabelsEvaluation
    caption = "mAP; bars are 95 % intervals (infinitesimal jackknife over images)."
    lost = "All labels correct before, not now: {shown} of {lost}"
    says = "what {} names"

    targets = method(records.LabelTargets)
    objective = method(objective.labels_objective)
    judge = method(judging.judge)
    reader = method(predicting.reader)
    asked = method(sheet.asked)
    headline = method(sections.headline)
    lost_examples = method(lost_answers.lost_examples)
    answers = method(answers.LabelAnswers)

    def parts(self, document: LabelsEvaluation) -> dict[str, Metric]:
        """Return the average precision of each judged label."""
        return {found.name: found.ap for found in document.labels if found.ap}

    def sections(self) -> Iterable[Section]:
        """Return the sections of a report on several labels."""
        from podline.kinds.labels import sections
        from podline.reporting.sections import sections_in

        return sections_in(sections)

    def rules(self) -> Sequence[Rule]:
        """Return the rules for several labels."""
        from podline.kinds.labels import rules

        return (rules.mean_precision, rules.labels, rules.guards)
