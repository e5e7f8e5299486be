"""The kind of task that tells one class for each image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podline.kinds.classification.document import Evaluation
from podline.kinds.classification.settings import ClassificationSettings
from podline.kinds.contract import E, Kind, P
from podline.kinds.deferred import Deferred, method

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from podline.documents.metric import Metric
    from podline.documents.model_description import ModelDescription
    from podline.frozen import JsonObject
    from podline.input import augmentation
    from podline.kinds.classification import answers, judging, objective, pairs, predicting, records, sections, sheet
    from podline.models import build
    from podline.promotion.figure import Rule
    from podline.recipes.settings import Recipe
    from podline.reporting.sections import Section
else:
    answers, judging, objective, pairs, predicting, records, sections, sheet = (
        Deferred(f"{__package__}.{name}")
        for name in ("answers", "judging", "objective", "pairs", "predicting", "records", "sections", "sheet")
    )
    augmentation, build = Deferred("podline.input.augmentation"), Deferred("podline.models.build")


class ImageKind(Kind[E, P]):
    """A kind whose models answer an image with a logit for each class."""

    require_fit = method(augmentation.require_room)
    model = method(build.class_model)

    def description(
        self, recipe: Recipe, image_shape: tuple[int, int, int], classes: int, facts: JsonObject
    ) -> ModelDescription:
        """Return a classifier's layers and costs."""
        from podline.models.counts import describe

        return describe(recipe.model, image_shape, classes)


class Classification(ImageKind["Evaluation", "pairs.GuessedPair"]):
    """One class for each image."""

    name = "classification"
    settings = ClassificationSettings
    document = Evaluation
    examples = "examples"
    caption = "Accuracy; bars are 95 % intervals (Wilson)."
    lost = "Right before, wrong now: {shown} of {lost}"
    says = "what {} says"
    own_measures = True

    targets = method(records.ClassTargets)
    objective = method(objective.class_objective)
    judge = method(judging.judge)
    reader = method(predicting.reader)
    drawn = method(sheet.drawn)
    asked = method(sheet.asked)
    headline = method(sections.headline)
    pair = method(pairs.pair)
    lost_examples = method(pairs.lost_examples)
    answers = method(answers.ClassAnswers)

    def parts(self, document: Evaluation) -> dict[str, Metric]:
        """Return each class's share of right answers."""
        return {found.name: found.accuracy for found in document.per_class}

    def sections(self) -> Iterable[Section]:
        """Return the sections of a classifier's report."""
        from podline.kinds.classification import sections
        from podline.reporting.sections import sections_in

        return sections_in(sections)

    def rules(self) -> Sequence[Rule]:
        """Return the rules for classifiers."""
        from podline.kinds.classification import rules

        return (rules.accuracy, rules.classes, rules.calibration, rules.guards)
