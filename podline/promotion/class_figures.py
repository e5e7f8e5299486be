"""Figures of classifiers for the rules of promotion: accuracy, classes, calibration error, guarded measures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.data.reader import open_split
from podline.errors import SettingsError
from podline.evaluation.class_measures import compared
from podline.evaluation.classes import logits_of, tally
from podline.evaluation.forward import News
from podline.evaluation.guesses import BINS, Guesses, read_guesses
from podline.input.pipeline import EvaluationInput
from podline.kinds.classification import CLASSIFICATION
from podline.measures import Measure, of_classifiers
from podline.promotion.comparing import JudgedSplit
from podline.promotion.noise import Noise, answers_of, expected_of_parts, expected_of_whole, seeds_of
from podline.promotion.rules import LEAST_EXAMPLES, Figure
from podline.recipes.promotion_settings import PromotionSettings
from podline.stages.specs import TrainSpec
from podline.store.contract import Store

_DRAWS = 200
# The spread that seeds are expected to give to a figure that is no share.
_SPREAD = 0.005


class ClassComparison:
    """See :class:`podline.promotion.comparing.ModelComparison`; what a model said are its guesses."""

    def left(self, store: Store, folder: str, evaluation: Any) -> Guesses:  # noqa: ARG002 (a pose network's says more)
        """Read the guesses in an evaluation's folder."""
        return read_guesses(store, folder)

    def anew(self, examples: JudgedSplit, training: TrainSpec, model: Any) -> Guesses:
        """Ask a classifier about the examples now."""
        manifest, recipe = examples.manifest, training.recipe
        reader = open_split(examples.store, examples.folder, manifest, examples.split)
        fields = CLASSIFICATION.objective(recipe, manifest).fields
        batches = EvaluationInput(reader, manifest, fields, batch_size=recipe.evaluation_batch_size)
        news = News(examples.reporter, batches.count)
        logits = logits_of(model, tf.distribute.get_strategy())
        counted = tally(logits, batches, len(manifest.class_names), news.done)
        reader.require_unchanged()
        return counted.guesses()

    def part(self, examples: JudgedSplit, said: Guesses) -> Guesses:
        """Return the guesses of the examples that count."""
        return said if examples.places is None else said.at(examples.places)

    def main(self, examples: JudgedSplit, said: Guesses) -> float:  # noqa: ARG002 (a pose network needs the examples)
        """Return the accuracy."""
        return float(said.right.mean())

    def figures(
        self, examples: JudgedSplit, known: Sequence[Guesses], candidate: Guesses, settings: PromotionSettings
    ) -> list[Figure]:
        """Return the figures of a candidate beside the known trainings, the reference first."""
        names = examples.manifest.class_names
        found = share_figures(known, candidate, names, settings)
        found.append(_calibration(known, candidate, settings))
        return [*found, *_guards(known, candidate, settings)]


def share_figures(
    known: Sequence[Guesses], candidate: Guesses, class_names: Sequence[str], settings: PromotionSettings
) -> list[Figure]:
    """Return the accuracy, and each class's, of a candidate beside known trainings on the same examples."""
    right = np.stack([guesses.right for guesses in known]).astype(float)
    groups = [np.flatnonzero(candidate.labels == label) for label in range(len(class_names))]
    judged = [(name, rows) for name, rows in zip(class_names, groups, strict=True) if len(rows) >= LEAST_EXAMPLES]
    now = candidate.right.astype(float)
    parts = Shares([right[:, rows] for _, rows in judged], [now[rows] for _, rows in judged])
    whole = Shares([right], [now])
    of_part = parts.expected(settings.part_spread)
    main = whole.figures("main", ["accuracy"], "top1", expected_of_whole(settings.spread, of_part, len(judged)))
    classes = parts.figures("class", [name for name, _ in judged], "top1", of_part)
    return with_margins([*main, *classes], settings)


class Shares:
    """Shares of right answers, each among examples of its own.

    Attributes:
        known: of each share, what each training got right of each example, (trainings, examples).
        now: of each share, what the candidate got right, (examples,).
    """

    def __init__(self, known: Sequence[npt.NDArray[np.float64]], now: Sequence[npt.NDArray[np.float64]]) -> None:
        self.known, self.now = known, now
        self._values = np.array([each.mean(axis=1) for each in known]).T
        self._examples = np.array([each.shape[1] for each in known], float)
        trainings = len(known[0]) if known else 1
        within = np.array([each.var(axis=0, ddof=1).mean() if trainings > 1 else 0.0 for each in known])
        means = np.array([each.mean() for each in known])
        self._answers = answers_of(means, self._examples, within, trainings)

    def expected(self, spread: float) -> float:
        """Return the variance between seeds that is expected of each."""
        if not self.known:
            return spread**2
        return expected_of_parts(self._values, self._examples, self._answers, spread)

    def figures(self, rule: Any, names: Sequence[str], measure: str, expected: float) -> list[Figure]:
        """Return a figure for each share."""
        found = []
        for place, (name, known, now) in enumerate(zip(names, self.known, self.now, strict=True)):
            examples, answers = float(self._examples[place]), float(self._answers[place])
            seeds = float(seeds_of(self._values[:, place], examples, answers, expected))
            noise = Noise(float(known.mean()), examples, answers, seeds, len(known))
            by = now - known.mean(axis=0)
            reference, value = float(known[0].mean()), float(now.mean())
            found.append(Figure(rule, name, measure, reference, value, float(by.var()) / examples, noise))
        return found


def number_figure(
    name: str, measure: str, known: Sequence[float], value: float, sampled: float, answers: float, rule: Any = "guard"
) -> Figure:
    """Return a figure that is no share of examples.

    Args:
        name: in words.
        measure: the metric; if less is better, the values have their sign changed.
        known: of the known trainings, the reference first.
        value: of the candidate.
        sampled: the variance of the difference by examples.
        answers: see :class:`Noise`.
        rule: what it is of.
    """
    seeds = float(seeds_of(known, math.inf, answers, _SPREAD**2))
    noise = Noise(fmean(known), math.inf, answers, seeds, len(known))
    return Figure(rule, name, measure, known[0], value, sampled, noise)


def with_margins(figures: Sequence[Figure], settings: PromotionSettings) -> list[Figure]:
    """Return figures with the margins that the settings say."""
    margins = {"main": settings.margin, "guard": settings.margin, "calibration": settings.calibration}
    return [replace(figure, margin=margins.get(figure.rule, settings.part_margin)) for figure in figures]


def _calibration(known: Sequence[Guesses], candidate: Guesses, settings: PromotionSettings) -> Figure:
    random, count = np.random.default_rng(0), len(candidate.labels)
    times = [np.bincount(random.integers(count, size=count), minlength=count) for _ in range(_DRAWS)]
    drawn = np.array([[_calibration_error(guesses, each) for each in times] for guesses in (known[0], candidate)])
    once = np.ones(count, np.int64)
    values = [-_calibration_error(guesses, once) for guesses in (*known, candidate)]
    single, both = float(drawn[0].var(ddof=1)), float((drawn[1] - drawn[0]).var(ddof=1))
    figure = number_figure(
        "calibration error", "calibration_error", values[:-1], values[-1], both, single / 2, "calibration"
    )
    return with_margins([figure], settings)[0]


def _calibration_error(guesses: Guesses, times: npt.NDArray[np.int64]) -> float:
    places = np.clip(np.ceil(guesses.confidences * BINS).astype(np.int64) - 1, 0, BINS - 1)
    gaps = np.bincount(places, (guesses.right - guesses.confidences) * times, BINS)
    return float(np.abs(gaps).sum() / times.sum())


def _guards(known: Sequence[Guesses], candidate: Guesses, settings: PromotionSettings) -> Iterator[Figure]:
    for measure in _guarding(settings):
        sign = 1 if measure.higher_is_better else -1
        pairs = [compared(measure, guesses, candidate) for guesses in known]
        deviation = pairs[0][2]
        figure = number_figure(
            measure.label,
            measure.name,
            [sign * before for before, _, _ in pairs],
            sign * pairs[0][1],
            deviation**2,
            deviation**2 / 2,
        )
        yield from with_margins([figure], settings)


def _guarding(settings: PromotionSettings) -> Iterator[Measure]:
    measures = {measure.name: measure for measure in of_classifiers()}
    for name in settings.guards:
        if name not in measures:
            raise SettingsError(f"promotion.guards: got {name}, expected a measure of classes: {', '.join(measures)}")
        yield measures[name]
