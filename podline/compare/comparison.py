"""Compares two runs: the difference of results and whether it is random, changed classes, different inputs.

If both runs were evaluated on the same examples, or share some, the difference is tested on shared examples. If the
store has more trainings that differ from the first run only in the seed, test results of the second run are compared
with the mean of the first run and these trainings ("known trainings"). Promotion computes the same figures.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from podline.base.errors import ArtifactError, PodlineError, StoreError, one_line
from podline.base.figures import percent
from podline.base.frozen import Frozen
from podline.base.plurals import first_few, plural
from podline.base.progress import Reporter
from podline.compare import settings
from podline.compare.examples import SharedExamples, shared_examples
from podline.compare.known import Evaluated, answers_on, evaluated, known_trainings
from podline.compare.settings import NamedDifference
from podline.compare.words import ChanceCase, Word, ends, signed, word_of
from podline.contract.answers import CommonExamples
from podline.contract.kind import kind_of
from podline.contract.noise import Noise, assumed_spread, luck_of, seeds_of
from podline.contract.rules import MAIN, PARTS, Compared, Figure
from podline.data.versions.version_changes import change_between
from podline.documents.intervals import TAIL, sampling_variance
from podline.documents.manifest import Manifest, read_manifest
from podline.documents.metric import Metric
from podline.documents.origins import read_origin
from podline.documents.promotion import Promotion, read_promotion
from podline.recipes.measures import change_text, measure_named
from podline.stages.base import JUDGED
from podline.stages.specs import TrainSpec
from podline.store.contract import Store

# Number of classes or joints that a line names.
_NAMED = 5


class Difference(Frozen):
    """The difference of a figure, after minus before.

    Attributes:
        value: the difference; for a share, 0.05 means 5 percentage points.
        low: lower end of the difference's 95 % interval, which covers variation by test examples and by seeds.
        high: upper end of this interval.
        chance: whether random variation explains the difference.
        measured: whether the spread between seeds is measured from known trainings; else it is assumed.
        trainings: number of known trainings whose mean is compared.
        paired: whether both models were evaluated on the same examples.
        examples: number of compared examples; the smaller number if the examples differ.
        gained: number of examples that only the second model got right; None if answers are not right or wrong, or the
            examples differ.
        lost: number of examples that only the first model got right; None in the same cases.
    """

    value: float
    low: float
    high: float
    chance: ChanceCase
    measured: bool
    trainings: int
    paired: bool
    examples: int
    gained: int | None = None
    lost: int | None = None

    @classmethod
    def of(cls, change: float, noise: Noise, sampled: float, **values: Any) -> Difference:
        """Return a change with its 95 % interval, and whether random variation explains the change.

        Args:
            change: the change of the figure, after minus before.
            noise: the random variation between trainings.
            sampled: the variance of the change by the choice of examples.
            values: the remaining fields.
        """
        half, found = float(noise.limit(sampled, TAIL)), ChanceCase.of(change, noise, sampled)
        ends = {"low": change - half, "high": change + half}
        known = {"measured": noise.measured, "trainings": noise.trainings}
        return cls(value=change, chance=found, **ends, **known, **values)

    @property
    def said(self) -> str:
        """Return as text whether random variation explains the difference."""
        return self.chance.said(measured=self.measured)

    @property
    def method(self) -> str:
        """Return as text on which examples the figures were compared."""
        counts = "" if self.gained is None else f": {self.gained:,} gained, {self.lost:,} lost"
        if self.paired:
            return f"on the same {plural(self.examples, 'example')}{counts}"
        return "by the figures' intervals, since the examples differ"


class MovedPart(Frozen):
    """A class or joint: its figures (``before``: the mean over known trainings), and whether the change is random."""

    name: str
    before: float
    after: float
    chance: ChanceCase

    @property
    def change(self) -> float:
        """The change of the figure."""
        return self.after - self.before

    def line(self) -> str:
        """Return the class or joint with both figures as text."""
        return f"{self.name}: {percent(self.before)} → {percent(self.after)}"


class Comparison(Frozen):
    """The comparison of a run with another one.

    Attributes:
        run: name of the run.
        against: name of the other run.
        known: names of the known trainings whose mean is compared, the other run first.
        measure: name of the main metric.
        differences: differences of all metrics that both runs have, by name.
        parts: classes or joints, the largest drop first; empty without answers to the same examples.
        differs: the different inputs that can change a result; None if one of the runs has no record of its inputs.
        examples: a text about the compared examples if the data differ, else empty.
        why_unpaired: the reason if the figures were compared by their intervals; empty on the same examples.
    """

    run: str
    against: str
    known: tuple[str, ...]
    measure: str
    differences: dict[str, Difference]
    parts: tuple[MovedPart, ...] = ()
    differs: tuple[NamedDifference, ...] | None = None
    examples: str = ""
    why_unpaired: str = ""

    @property
    def difference(self) -> Difference:
        """The difference of the main metric."""
        return self.differences[self.measure]

    @property
    def word(self) -> Word:
        """The verdict: significantly better or worse, or noise."""
        return word_of(self.measure, self.difference.value, self.difference.chance)

    @property
    def moved(self) -> tuple[MovedPart, ...]:
        """The classes or joints that changed by more than seeds usually do."""
        return tuple(part for part in self.parts if part.chance is ChanceCase.BEYOND)

    @property
    def is_worse(self) -> bool:
        """Return whether the run is significantly worse, overall or in a class or joint."""
        return self.word == "worse" or any(part.change < 0 for part in self.moved)

    @property
    def what_changed(self) -> str:
        """Return the different inputs in a few words, such as ``with 3 epochs in place of 10``."""
        return settings.in_headline(self.differs or ())

    @property
    def other(self) -> str:
        """The other run as text: its name, or the mean of the known trainings."""
        return self.against if len(self.known) == 1 else f"the mean of {len(self.known)} trainings like {self.against}"

    def headline(self) -> str:
        """Return the comparison in one sentence."""
        change, label = self.difference, measure_named(self.measure).label
        by = signed(self.measure, change.value)
        held = f"has the same {label} as" if by == "the same" else f"is {by} in {label} than"
        changed = f", {self.what_changed}" if self.what_changed else ""
        interval = f"{ends(self.measure, change.low, change.high)}, {change.method}"
        return f"{self.run} {held} {self.other}{changed}: {change.said} ({interval})"

    def sentence(self) -> str:
        """Return the headline, which examples were compared, and why not the same ones."""
        return "; ".join(filter(None, (self.headline(), self.examples, self.why_unpaired)))

    def lines(self) -> list[str]:
        """Return the result as lines of text: the sentence, and the classes or joints that changed significantly."""
        lines = [self.sentence()]
        if self.moved:
            fell = [f"{part.name} {change_text('top1', part.change)}" for part in self.moved]
            lines.append(f"  {ChanceCase.BEYOND}: {first_few(fell, _NAMED)}")
        return lines


@dataclass(frozen=True)
class Pairing:
    """A comparison, together with the runs and answers from which it was computed.

    Attributes:
        comparison: the differences and their verdicts.
        before: the reference, whose figures are subtracted.
        after: the run that is compared with it.
        compared: both runs' answers to the same examples; None for figures compared by intervals or by a promotion.
    """

    comparison: Comparison
    before: Evaluated
    after: Evaluated
    compared: Compared[Any] | None


def compare(
    store: Store, before: Evaluated, after: Evaluated, reporter: Reporter, until: float | None = None
) -> Pairing:
    """Compare a run with another one.

    Args:
        store: the store.
        before: the reference, whose figures are subtracted.
        after: the run that is compared with it.
        reporter: warns of damaged files, without which only figures can be compared.
        until: Unix time; later trainings do not count as known trainings.

    Raises:
        StoreError: the runs have different main metrics.
    """
    measure = after.evaluation.measure
    if before.evaluation.measure != measure:
        raise StoreError(
            f"cannot compare results: one run's main measure is {before.evaluation.measure}, the other's {measure}; "
            "give runs of one kind of task"
        )
    compared, why, words, known = None, "", "", [before.training.run]
    figures, parts, decision = dict[str, Difference](), list[MovedPart](), None
    if after.evaluation.split == JUDGED:
        decision = decided(store, before, after)
    try:
        compared, known, words = _compared(store, before, after, reporter, decision, until)
        main, parts = _figures(compared, before)
        figures = {measure: main}
    except PodlineError as error:
        why = one_line(error)
        if isinstance(error, ArtifactError):
            reporter.warn(f"{before.training.run} is compared by its figures alone: {why}")
    if decision and decision.compared and (why or decision.compared.all_count):
        # The promotion ran the reference on the candidate's examples, which the reference's own evaluation lacks.
        compared, why, words, known = None, "", decision.compared.sentence(), [*decision.known]
        figures, parts = _of_decision(decision, decision.compared.count), []
    comparison = Comparison(
        run=after.training.run,
        against=before.training.run,
        known=tuple(known),
        measure=measure,
        differences=_unpaired(store, known, before, after) | figures,
        parts=tuple(sorted(parts, key=lambda part: part.change)),
        differs=_differs(store, before, after),
        examples=words,
        why_unpaired=why,
    )
    return Pairing(comparison, before, after, compared)


def decided(store: Store, before: Evaluated, after: Evaluated) -> Promotion | None:
    """Return ``after``'s promotion decision if its reference was ``before``; else, or if it cannot be read, None."""
    try:
        decision = read_promotion(store, after.training.folder)
    except PodlineError:
        return None
    return decision if decision and decision.reference == before.training.run else None


def _of_decision(decision: Promotion, examples: int) -> dict[str, Difference]:
    """Return the difference of the main metric from a promotion decision; empty if the decision has no comparison."""
    for check in decision.checks:
        if check.rule == MAIN and check.variances and check.before is not None and check.after is not None:
            sampled, luck, seeds = check.variances
            noise, change = Noise(luck, seeds, len(decision.known)), check.after - check.before
            return {decision.measure: Difference.of(change, noise, sampled, paired=True, examples=examples)}
    return {}


def _compared(
    store: Store,
    before: Evaluated,
    after: Evaluated,
    reporter: Reporter,
    decision: Promotion | None,
    until: float | None,
) -> tuple[Compared[Any], list[str], str]:
    """Return both runs' answers, the names of the known trainings, and a text about the examples if the data differ."""
    grounds = examples_of(store, before.training, after.training, after.evaluation.split, reporter)
    kind = kind_of(after.evaluation)
    answers, words = kind.answers(), ""
    if shared := grounds.shared:
        if not len(shared.after):
            raise StoreError("the data sets of the two runs share no test examples")
        grounds = replace(grounds, examples=replace(grounds.examples, places=shared.after))
        words = _described(decision, shared)
    own = answers.part(grounds.examples, answers.left(store, after.folder, after.evaluation))
    other = _left(store, before, grounds)
    on = partial(answers_on, store, splits=grounds.splits)
    if after.evaluation.split != JUDGED:
        more = []
    elif decision:
        more = [(run, found) for run in decision.known[1:] if (found := on(run)) is not None]
    else:
        more = known_trainings(store, before.training, (after.training.run,), on, until)
    names = grounds.examples.manifest.class_names
    judged = [answers.judged(grounds.examples, each) for each in (other, *(found for _, found in more), own)]
    compared = Compared(kind.name, judged[:-1], judged[-1], names, places=grounds.examples.places)
    return compared, [before.training.run, *(run for run, _ in more)], words


def _left(store: Store, before: Evaluated, grounds: Grounds) -> Any:
    """Return the stored answers of ``before`` to the compared examples; refuse an evaluation of other examples."""
    found = before.answers(store, grounds.splits)
    if found is None:
        raise StoreError(
            f"the test sets differ: one run was evaluated on {before.evaluation.dataset} {before.evaluation.split}, "
            f"the other on {grounds.examples.manifest.dataset} {grounds.examples.split}"
        )
    return found


def _figures(compared: Compared[Any], before: Evaluated) -> tuple[Difference, list[MovedPart]]:
    rules = before.training.recipe.promotion
    found = [
        figure
        for rule in kind_of(before.evaluation).rules()
        if rule.name in (MAIN, *PARTS)
        for figure in rule(compared, rules)
        if isinstance(figure, Figure)
    ]
    main = next(figure for figure in found if figure.rule == MAIN)
    parts = [figure for figure in found if figure.rule in PARTS]
    sign = 1 if measure_named(before.evaluation.measure).higher_is_better else -1
    moved = [
        MovedPart(
            name=part.name,
            before=part.before,
            after=part.value,
            chance=ChanceCase.of(part.change, part.noise, part.sampled, len(parts)),
        )
        for part in parts
    ]
    was, now = (getattr(each, "right", None) for each in (compared.known[0], compared.candidate))
    places = compared.places
    counts: dict[str, int] = {"examples": before.evaluation.examples if places is None else len(places)}
    if was is not None and now is not None:
        counts = {"examples": len(now), "gained": int((now & ~was).sum()), "lost": int((was & ~now).sum())}
    return Difference.of(sign * main.change, main.noise, main.sampled, paired=True, **counts), moved


def _unpaired(store: Store, known: Sequence[str], before: Evaluated, after: Evaluated) -> dict[str, Difference]:
    """Compare each metric that all runs have, by the metric's intervals."""
    metrics = [before.evaluation.trained.metrics]
    for run in known[1:]:
        with contextlib.suppress(PodlineError):  # deleted since the promotion
            metrics.append(evaluated(store, run).evaluation.trained.metrics)
    examples = min(each.evaluation.examples for each in (before, after))
    kind, classes = before.evaluation.kind, len(before.evaluation.parts())
    return shared_unpaired(metrics, after.evaluation.trained.metrics, examples, kind, classes)


def shared_unpaired(
    known: Sequence[Mapping[str, Metric]], after: Mapping[str, Metric], examples: int, kind: str, classes: int
) -> dict[str, Difference]:
    """Return the :func:`unpaired` difference of each metric that all trainings have, by name."""
    return {
        name: unpaired(name, [each[name] for each in known], figure, examples, kind, classes)
        for name, figure in after.items()
        if all(name in each for each in known)
    }


def unpaired(
    measure: str, known: Sequence[Metric], after: Metric, examples: int, kind: str, classes: int
) -> Difference:
    """Return a metric's difference from its mean over known trainings; the metrics' intervals give the variance."""
    values, rules = np.array([[each.value] for each in known]), measure_named(measure)
    before, luck = float(values.mean()), float(luck_of(sampling_variance(known[0]), 1.0, 0.0, 1))
    spread = rules.spread(assumed_spread(kind, classes).main, before)
    [seeds] = seeds_of(values, examples if rules.in_percent else math.inf, luck, spread)
    sampled = sampling_variance(known[0]) + sampling_variance(after)
    noise = Noise(0.0, float(seeds), len(known))
    return Difference.of(after.value - before, noise, sampled, paired=False, examples=examples)


def _differs(store: Store, before: Evaluated, after: Evaluated) -> tuple[NamedDifference, ...] | None:
    try:
        then, now = (read_origin(store, each.training.folder) for each in (before, after))
    except PodlineError:
        return None
    return (
        None if then is None or now is None else tuple(settings.differing([then, now], partial(change_between, store)))
    )


@dataclass(frozen=True)
class Grounds:
    """The examples on which two runs are compared.

    Attributes:
        examples: the compared examples, in the candidate's data set.
        reference: the shared examples in the reference's data set; None if ``shared`` is None.
        shared: the shared examples if the data differ or leaks were searched, else None.
    """

    examples: CommonExamples
    reference: CommonExamples | None = None
    shared: SharedExamples | None = None

    @property
    def splits(self) -> list[CommonExamples]:
        """The splits that contain all compared examples: the candidate's, and the reference's if it has all of them."""
        both = self.reference is not None and _size(self.reference) == _size(self.examples)
        return [self.examples, self.reference] if self.reference and both else [self.examples]


def examples_of(
    store: Store, reference: TrainSpec, candidate: TrainSpec, split: str, reporter: Reporter, *, leaks: bool = False
) -> Grounds:
    """Return the examples on which two models are compared.

    Args:
        store: the store.
        reference: the training of the reference.
        candidate: the training of the candidate.
        split: the evaluated split.
        reporter: reports progress, and data that no longer exist.
        leaks: whether to search the earlier training data of a further-trained model for test examples.

    Raises:
        StoreError: a data set is missing, or the two runs have data sets of different names.
        ArtifactError: a data set is damaged.
    """

    def whole(training: TrainSpec) -> CommonExamples:
        manifest: Manifest = read_manifest(store, training.dataset_folder)
        return CommonExamples(store, training.dataset_folder, manifest, split, reporter)

    here = whole(candidate)
    other = reference.fingerprint != candidate.fingerprint
    if other and reference.recipe.dataset != candidate.recipe.dataset:
        raise StoreError(
            f"the runs have different data sets, {reference.recipe.dataset} and {candidate.recipe.dataset}, so they "
            "share no test examples; compare runs of one data set"
        )
    if not other and not (leaks and (candidate.recipe.further or reference.recipe.further)):
        return Grounds(here)
    shared = shared_examples(store, reference, candidate, split, reporter)
    there = replace(whole(reference), places=shared.before)
    return Grounds(replace(here, places=shared.counting), there, shared)


def _size(examples: CommonExamples) -> int:
    return -1 if examples.places is None else len(examples.places)


def _described(decision: Promotion | None, shared: SharedExamples) -> str:
    """Return a text: the number of shared examples, and the figures on new examples if a promotion computed them."""
    words = f"on {plural(len(shared.after), 'test example')} that both data sets have, {len(shared.fresh):,} are new"
    compared = decision.compared if decision else None
    if compared is None or not compared.fresh_before:
        return words
    return f"{words}: {compared.measure} {compared.fresh_after} vs {compared.fresh_before} on these"
