"""Classifiers for the rules of promotion."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from podline.data.reader import open_split
from podline.documents.evaluation import Evaluation
from podline.errors import SettingsError
from podline.evaluation.classes import logits_of, tally
from podline.evaluation.forward import News
from podline.evaluation.guesses import Guesses, read_guesses
from podline.evaluation.installed_measures import compared
from podline.input.pipeline import EvaluationInput
from podline.kinds.classification import CLASSIFICATION
from podline.measures import installed
from podline.promotion.comparing import JudgedModel, JudgedSplit
from podline.promotion.rules import Guarded, Paired
from podline.promotion.standings import class_figures, class_standing, figures_of_guesses, paired_classes
from podline.recipes.promotion_settings import PromotionSettings
from podline.stages.specs import TrainSpec
from podline.store.contract import Store


class ClassComparison:
    """See :class:`podline.promotion.comparing.ModelComparison`; what a model said are its guesses."""

    def left(self, store: Store, folder: str, evaluation: Evaluation) -> JudgedModel:
        """A classifier as its evaluation left it."""
        return JudgedModel(class_figures(evaluation), read_guesses(store, folder))

    def anew(self, examples: JudgedSplit, training: TrainSpec, model: Any) -> JudgedModel:
        """A classifier judged on the examples now."""
        manifest, recipe = examples.manifest, training.recipe
        reader = open_split(examples.store, examples.folder, manifest, examples.split)
        fields = CLASSIFICATION.objective(recipe, manifest).fields
        batches = EvaluationInput(reader, manifest, fields, batch_size=recipe.evaluation_batch_size)
        news = News(examples.reporter, batches.count)
        logits = logits_of(model, tf.distribute.get_strategy())
        counted = tally(logits, batches, len(manifest.class_names), news.done)
        reader.require_unchanged()
        figures = class_standing(training.run, counted.figures(), counted.per_class(manifest.class_names))
        return JudgedModel(figures, counted.guesses())

    def part(self, examples: JudgedSplit, model: JudgedModel) -> JudgedModel:
        """A classifier on some of the examples."""
        said: Guesses = model.said
        chosen = said if examples.places is None else said.at(examples.places)
        return JudgedModel(figures_of_guesses(model.figures.run, chosen, examples.manifest.class_names), chosen)

    def paired(
        self, examples: JudgedSplit, before: JudgedModel, after: JudgedModel, rules: PromotionSettings
    ) -> Paired:
        """Two classifiers on the same examples."""
        return paired_classes(before.said, after.said, examples.manifest.class_names, rules)

    def guarded(
        self, examples: JudgedSplit, before: JudgedModel, after: JudgedModel, rules: PromotionSettings
    ) -> list[Guarded]:
        """The guarded measures of both."""
        measures = {measure.name: measure for measure in installed() if measure.higher_is_better}
        found = []
        for name in rules.guards:
            if name not in measures:
                known = ", ".join(measures) or "none is installed"
                raise SettingsError(
                    f"promotion.guards: {name} vs the installed measures of which more is better: {known}"
                )
            classes = len(examples.manifest.class_names)
            labels, guesses = after.said.labels, (before.said.predictions, after.said.predictions)
            found.append(Guarded(measures[name].label, *compared(measures[name], labels, *guesses, classes)))
        return found
