"""The kind of task that predicts one class per image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from podline.base.arrays import Array, Floats, Tensor
from podline.contract.rules import Rule
from podline.data.records import LABEL
from podline.documents.intervals import guessing_interval
from podline.documents.manifest import Manifest
from podline.documents.metric import Metric
from podline.kinds.by_example.hooks import Judged, Views, shares_of
from podline.kinds.by_example.kind import ExampleKind
from podline.kinds.by_example.measures import figures_of
from podline.kinds.by_example.rules import guards, main
from podline.kinds.classification import rules, sections
from podline.kinds.classification.document import Figures
from podline.kinds.classification.guesses import Guesses
from podline.kinds.classification.settings import ClassificationSettings
from podline.recipes.settings import Recipe
from podline.report.sections import Section, sections_in
from podline.stages.tools import PicturePrediction

if TYPE_CHECKING:
    from podline.contract.objective import Objective


class ClassificationKind(ExampleKind[Guesses]):
    """One class per image."""

    target = LABEL
    read_by = Guesses
    tells = "classes"
    about = "of the {split} split of {dataset} labelled correctly"
    guess = "Always predicting the most frequent class would be right for"

    def require_fit(self, recipe: Recipe, manifest: Manifest) -> None:
        """Check that the class weights fit the data set, and the augmentation the images' shape."""
        from podline.kinds.classification.weights import class_weights

        class_weights(recipe, manifest)
        super().require_fit(recipe, manifest)

    def objective(self, recipe: Recipe, manifest: Manifest) -> Objective:
        """Build the objective of a recipe for classes."""
        from podline.kinds.classification.objective import ClassificationObjective
        from podline.kinds.classification.weights import class_weights

        smoothing = ClassificationSettings.of(recipe).label_smoothing
        return ClassificationObjective(smoothing, recipe.loss, class_weights(recipe, manifest))

    def answered(self, outputs: Array, targets: Array, recipe: Recipe) -> Guesses:
        """Return the guesses of logits (n, classes) for labels (n,)."""
        return Guesses.of_logits(outputs, targets.astype(np.int64))

    def guessing(self, trained: Guesses) -> Metric:
        """Return the accuracy of always predicting the most frequent class, with its 95 % range."""
        return guessing_interval(np.bincount(trained.labels).tolist())

    def words(self, answers: Guesses, manifest: Manifest) -> list[str]:
        """Return each example's predicted class with its probability as text, such as ``cat, 97 %``."""
        said = zip(answers.predictions.tolist(), answers.confidences.tolist(), strict=True)
        return [f"{manifest.class_names[label]}, {100 * confidence:.0f} %" for label, confidence in said]

    def prediction(
        self, picture: PicturePrediction, output: Array, recipe: Recipe, manifest: Manifest, thresholds: Floats
    ) -> PicturePrediction:
        """Return the picture's prediction with each class and its probability, most probable first."""
        odds = np.exp(output.astype(np.float64) - output.max())
        order = np.argsort(-odds, kind="stable").tolist()
        return picture.changed(classes=shares_of(manifest.class_names, odds / odds.sum(), order))

    def figures(self, answers: Guesses, classes: int, failed: Callable[[str], object] | None = None) -> Figures:
        """Return the number of correct examples, and every measure."""
        metrics = figures_of(answers, self.name, classes, failed)
        return Figures(examples=len(answers.labels), correct=int(answers.right.sum()), metrics=metrics)

    def fields(self, judged: Judged[Guesses]) -> Mapping[str, object]:
        """Return the figures by class, the confusions, the calibration and the mistakes."""
        trained, names = judged.trained, judged.class_names
        return {
            "per_class": trained.per_class(names),
            "confusion": trained.confusion(len(names)),
            "confused": trained.confused(len(names)),
            "calibration": trained.calibration(),
            "mistakes": trained.mistakes(),
        }

    def over_views(self, model: Callable[..., Tensor], recipe: Recipe) -> Views | None:
        """Return the model that averages its answers over the recipe's number of views; None for one view."""
        from podline.kinds.classification.views import over_views

        views = ClassificationSettings.of(recipe).views
        return Views(views, over_views(model, views)) if views > 1 else None

    def lost_order(self, before: Guesses, after: Guesses) -> Floats:
        """Return the negative confidences of ``before``, (n,), so that its most confident answers come first."""
        return -before.confidences

    def sections(self) -> Iterable[Section]:
        """Return the sections of a classifier's report."""
        return sections_in(sections)

    def rules(self) -> Sequence[Rule]:
        """Return the rules for classifiers."""
        return (main, rules.classes, rules.calibration, guards)
