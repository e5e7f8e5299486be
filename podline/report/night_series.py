"""Groups nights into comparable series: one schedule, equal settings except seed and data.

Manual runs and nights with other settings are not compared. A night that reuses an earlier model counts as unchanged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from podline.base import figures
from podline.base.errors import SettingsError
from podline.compare.comparison import unpaired
from podline.compare.words import word_of
from podline.contract.noise import MOST_TRAININGS
from podline.documents.ledger_entry import Entry, Outcome, PromotionSummary, WaitingTime
from podline.documents.metric import Metric
from podline.ledger.alike import same_but_for_seed, training_key
from podline.ledger.paces import paces_of
from podline.ledger.slowness import MOST, MachinePace, losses, slowness
from podline.recipes import measures
from podline.recipes.kind_table import facts_by_measure
from podline.recipes.measures import measure_named
from podline.report.blocks import Change
from podline.report.ledger_lines import waiting_in_words
from podline.report.over_nights import NightsChart, Point

T = TypeVar("T")
# Title of a chart → the function that formats its values.
_WRITE: dict[str, Callable[[float], str]] = {
    "Examples a second": figures.rate,
    "Share of the time in training steps": figures.percent,
    "Waiting": figures.duration,
    "Training records": figures.short_count,
}
_SPEED, _PRODUCTIVE, _WAITING, _RECORDS = _WRITE


class _Result(NamedTuple):
    """The part of a night's outcome that a series keeps in memory."""

    ended: float
    model: tuple[str, float]
    measure: str
    main: Metric
    examples: int
    key: str


class KnownFigures:
    """The main metrics of all runs that were not refused, by training key; they show the spread between seeds."""

    def __init__(self) -> None:
        self._found: dict[str, dict[tuple[str, float], Metric]] = {}

    def add(self, entry: Entry) -> None:
        """Add a run, if it finished with a result and was not refused."""
        refused = entry.promotion is not None and entry.promotion.verdict == "refused"
        if entry.outcome and entry.state == "finished" and not refused and (key := training_key(entry)):
            self._found.setdefault(key, {})[_model(entry.outcome)] = entry.outcome.main

    def like(self, key: str, but: Container[tuple[str, float]]) -> list[Metric]:
        """Return the newest 19 main metrics of trainings with this key, oldest first; leave out models in ``but``."""
        alike = (main for model, main in reversed(self._found.get(key, {}).items()) if model not in but)
        return [*islice(alike, MOST_TRAININGS - 1)][::-1]


class NightSeries:
    """Comparable nights; only a few numbers per night are kept in memory.

    Attributes:
        decision: the last promotion decision of a night with a result, or None.
        measure: the main metric of the last results; empty without results.
        last: the last night with a result, or None.
    """

    def __init__(self, first: Entry, others: bool) -> None:
        """Start an empty series.

        Args:
            first: the first night; it is not added yet.
            others: whether the same recipe and schedule already have a series, with other settings.
        """
        self.first, self.ended = first, first.ended
        self.decision: PromotionSummary | None = None
        self.last: Entry | None = None
        self._others = others
        self.measure = ""
        # By night: a night that crashed and restarted has several entries.
        self._results: dict[str, _Result] = {}
        self._waiting: dict[str, WaitingTime] = {}
        self._paces = defaultdict[str, dict[str, MachinePace]](dict)
        self._spent: dict[str, dict[str, float]] = {}
        self._figures: dict[str, Point] = {}
        self._points = defaultdict[str, dict[str, Point]](dict)

    @property
    def count(self) -> int:
        """The number of nights."""
        return len(self._waiting)

    def change(self, entry: Entry, known: KnownFigures) -> Change:
        """Return the change of the main metric to this night or retry from the previous night.

        The previous night counts as the mean over it and the trainings with equal inputs in ``known``.
        """
        outcome = entry.outcome
        if outcome is None:
            return Change()
        earlier = (result for night, result in reversed(self._results.items()) if night != night_of(entry))
        before, model = next(earlier, None), _model(outcome)
        if before is None:
            return Change("other settings") if self._others else Change()
        if before.model == model:
            return Change("the same model")
        seen = next((result for result in earlier if result.model == model), None)
        if seen is not None:
            return Change(f"the model of {figures.date(seen.ended)}")
        if outcome.measure != before.measure:
            return Change()
        try:
            kind = facts_by_measure(outcome.measure).name
        except SettingsError:
            return Change("the kind is not installed")
        alike = known.like(before.key, but=(before.model, model))
        examples, parts = min(before.examples, outcome.examples), len(outcome.parts)
        difference = unpaired(outcome.measure, [before.main, *alike], outcome.main, examples, kind, parts)
        word = word_of(outcome.measure, difference.value, difference.chance)
        mean = f", mean of {difference.trainings}" if alike else ""
        return Change(f"{measures.change_text(outcome.measure, difference.value)}{mean}", word)

    def slow(self, entry: Entry) -> str:
        """Describe slow stages with causes, and classes of time that took longer than in earlier nights; or empty."""
        texts = []
        for stage, pace in paces_of(entry).items():
            before = [each for night, each in self._paces.get(stage, {}).items() if night != night_of(entry)]
            if pace not in before and (found := slowness(pace, before)):
                texts.append(f"{stage} {found}")
        spent = [each for night, each in self._spent.items() if night != night_of(entry)]
        texts += losses(entry.spent, spent)
        return "; ".join(texts)

    def add(self, entry: Entry) -> None:
        """Add a night, or update it after a restart."""
        night, self.ended = night_of(entry), entry.ended
        self._waiting[night] = entry.waiting
        self._put(_WAITING, entry, entry.waiting.total)
        for stage, pace in paces_of(entry).items():
            if pace not in self._paces[stage].values():
                _keep(self._paces[stage], night, pace)
        if entry.data is not None and "train" in entry.data.splits:
            self._put(_RECORDS, entry, entry.data.splits["train"].records)
        trained = entry.stages.get("train")
        if trained is not None and not trained.reused:
            if entry.training is not None:
                self._put(_SPEED, entry, entry.training.examples_per_second)
            if total := sum(entry.spent.values()):
                _keep(self._spent, night, entry.spent)
                self._put(_PRODUCTIVE, entry, entry.spent.get("steps", 0.0) / total)
        if entry.outcome is not None:
            self._add_result(entry, entry.outcome)

    def _put(self, title: str, entry: Entry, value: float) -> None:
        self._points[title][night_of(entry)] = Point(entry.ended, value, value, value)

    def _add_result(self, entry: Entry, outcome: Outcome) -> None:
        night, main, decision = night_of(entry), outcome.main, entry.promotion
        if outcome.measure != self.measure:
            self.measure, self._figures = outcome.measure, {}
        floor = decision.floor if decision else None
        below = floor is not None and measure_named(self.measure).better(floor, main.value)
        promoted = decision is not None and decision.verdict == "promoted"
        self._figures[night] = Point(entry.ended, main.value, main.low, main.high, floor, promoted, below)
        self.decision, self.last = decision or self.decision, entry
        self._results.pop(night, None)
        examples, key = outcome.examples, training_key(entry)
        self._results[night] = _Result(entry.ended, _model(outcome), self.measure, main, examples, key)

    def charts(self) -> list[NightsChart]:
        """Return a chart for each quantity that at least two nights have; none for waiting if no night waited."""
        title, measure = measure_named(self.measure).label if self.measure else "", self.measure
        charts = [
            NightsChart(
                title[:1].upper() + title[1:], _by_time(self._figures), lambda v: measures.value_text(measure, v)
            )
        ]
        waits = self._waiting.values()
        total = WaitingTime(**{kind: sum(getattr(wait, kind) for wait in waits) for kind in WaitingTime.model_fields})
        for title, write in _WRITE.items():
            waiting = title == _WAITING
            note = f"In all {waiting_in_words(total)}." if waiting else ""
            if total.total or not waiting:
                charts.append(NightsChart(title, _by_time(self._points[title]), write, note, waiting))
        return [chart for chart in charts if len(chart.points) > 1]


def _keep(newest: dict[str, T], night: str, value: T) -> None:
    """Add a night's value, and drop the oldest night above the number of nights that :func:`slowness` compares."""
    newest[night] = value
    if len(newest) > MOST:
        del newest[next(iter(newest))]


def _by_time(points: dict[str, Point]) -> list[Point]:
    """Return the points, oldest first: a night that restarted may end after a later night."""
    return sorted(points.values(), key=lambda point: point.time)


def _model(outcome: Outcome) -> tuple[str, float]:
    """Return a key of the model and its test result: the weights' checksum, and the main metric."""
    return outcome.weights_sha256, outcome.main.value


def night_of(entry: Entry) -> str:
    """Return a key shared by all entries of a night; a night that crashed and restarted has several."""
    return entry.flow_run or entry.name


class AllSeries:
    """Assigns entries to series of comparable nights."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], list[NightSeries]] = {}

    def of(self, entry: Entry) -> NightSeries | None:
        """Return the series of a night or of its retry; None for a manual run, or an entry without a recipe."""
        if not entry.schedule or not entry.settings.get("recipe"):
            return None
        there = self._found.setdefault((entry.recipe, entry.schedule), [])
        # Newest first: an entry of an older version lacks newer settings, so it matches several series.
        for series in sorted(there, key=lambda series: -series.ended):
            if same_but_for_seed(series.first.settings["recipe"], entry.settings["recipe"]):
                return series
        there.append(NightSeries(entry, others=bool(there)))
        return there[-1]

    def newest_first(self) -> Sequence[NightSeries]:
        """Return all series with nights, newest first."""
        every: Iterable[NightSeries] = (series for found in self._found.values() for series in found)
        return sorted((series for series in every if series.count), key=lambda series: -series.ended)
