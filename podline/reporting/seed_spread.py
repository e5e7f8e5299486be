"""Estimates the spread between seeds from a recipe's entries in the ledger."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from podline.documents.ledger_entry import Entry, Outcome
from podline.documents.metric import Metric
from podline.evaluation.differences import sampling_variance
from podline.ledger import ledger
from podline.ledger.differences import trained_alike
from podline.measures import measure_named
from podline.noise import Seeds, seeds_of
from podline.recipes.promotion_settings import PromotionSettings
from podline.stages.specs import TrainSpec
from podline.store.contract import Store

LOOKED_AT = 50
"""Largest number of entries of a recipe to read: about a second in a bucket."""

# Bounds of a share that keep its standard deviation independent of the number of examples.
_MANY = 1e9


@dataclass(frozen=True)
class SeedSpread:
    """Trainings of one recipe that differ only in the seed, evaluated on the same data.

    Attributes:
        known: their outcomes.
        settings: the assumptions about the spread.
    """

    known: Sequence[Outcome] = ()
    settings: PromotionSettings = field(default_factory=PromotionSettings)

    def of(self, measure: str, otherwise: Metric) -> Seeds:
        """Return the effect of the seed on a metric.

        Args:
            measure: the metric's name.
            otherwise: a model's figure, used if no training is known.
        """
        known = [outcome.metrics[measure] for outcome in self.known if measure in outcome.metrics]
        parts = len(self.known[0].parts) if self.known else 0
        # Changes of single classes also change the total.
        spread = math.hypot(self.settings.spread, self.settings.part_spread / math.sqrt(parts) if parts else 0.0)
        figures = known or [otherwise]
        spread = measure_named(measure).spread(spread, figures[0].value)
        [found] = seeds_among([[each] for each in figures], measure, spread)
        return found

    def of_parts(self, shares: Mapping[str, float]) -> dict[str, Seeds]:
        """Return the effect of the seed on the share of each class or joint, by name.

        Args:
            shares: a model's shares.
        """
        known = [outcome.parts for outcome in self.known if shares.keys() <= outcome.parts.keys()]
        figures = [[parts[name] for name in shares] for parts in known]
        figures = figures or [[Metric(value=share, low=share, high=share) for share in shares.values()]]
        return dict(zip(shares, seeds_among(figures, "top1", self.settings.part_spread), strict=True))


def seeds_among(known: Sequence[Sequence[Metric]], measure: str, spread: float) -> list[Seeds]:
    """Return the effect of the seed on each of some figures, from one training or more.

    Args:
        known: the figures of each training.
        measure: name of their metric.
        spread: the assumed standard deviation, for a share of one half.
    """
    values = np.array([[each.value for each in figures] for figures in known])
    luck = np.array([[sampling_variance(each) / 2 for each in figures] for figures in known]).mean(axis=0)
    examples = _MANY if measure_named(measure).in_percent else math.inf
    return [Seeds(float(each), len(known)) for each in seeds_of(values, examples, luck, spread)]


def spread_among(entries: Iterable[Entry], like: Entry | None, measure: str) -> SeedSpread:
    """Return the spread between seeds among entries of the ledger.

    Refused models do not count. A model with several entries counts once.

    Args:
        entries: entries of finished runs.
        like: only entries that differ from this one in the seed alone count; with None, no entry counts.
        measure: name of the main metric.
    """
    if like is None:
        return SeedSpread()
    found = {
        entry.outcome.weights_sha256: entry.outcome
        for entry in entries
        if entry.outcome is not None
        and entry.outcome.measure == measure
        and not (entry.promotion and entry.promotion.verdict == "refused")
        and trained_alike(entry, like)
    }
    rules = like.settings.get("recipe", {}).get("promotion", {})
    assumed = {name: rules[name] for name in ("spread", "part_spread") if name in rules}
    return SeedSpread([*found.values()], PromotionSettings(**assumed))


def spread_of(store: Store, training: TrainSpec, measure: str, without: Container[str] = ()) -> SeedSpread:
    """Return the spread between seeds among the newest entries of the ledger.

    Args:
        store: the store.
        training: the run that defines recipe and data.
        measure: name of the main metric.
        without: names of runs to leave out.
    """
    others = [entry for entry in recent(store, training.recipe.name) if entry.run not in without]
    return spread_among(others, entry_of(others, training.run), measure)


def entry_of(entries: Iterable[Entry], run: str) -> Entry | None:
    """Return the first entry of a run, or None."""
    return next((entry for entry in entries if entry.run == run), None)


def recent(store: Store, recipe: str) -> Iterable[Entry]:
    """Return the newest finished runs of a recipe, without damaged entries."""
    wanted = ledger.names(store, recipe=recipe, state="finished")[:LOOKED_AT]
    return ledger.entries(store, wanted, damaged=lambda _: None)
