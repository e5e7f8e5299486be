"""Compares a run with its recipe's champion and with earlier nights.

Only runs that had ended before this run's training ended are compared, so a report that is rewritten years later stays
the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from podline.arrays import Image
from podline.documents.any_evaluation import AnyEvaluation
from podline.documents.ledger_entry import Entry
from podline.documents.promotion import Promotion, read_promotion
from podline.errors import ArtifactError, StoreError
from podline.evaluation.differences import Difference, unpaired
from podline.kinds.table import kind_by_measure, read_evaluation
from podline.ledger import ledger
from podline.ledger.differences import same_but_for_seed
from podline.ledger.recording import plain
from podline.measures import measure_named
from podline.progress import Reporter
from podline.recipes.settings import Recipe
from podline.reporting.drop import Explained, explain
from podline.reporting.pairs import Pair, judgement, paired
from podline.reporting.seed_spread import LOOKED_AT, SeedSpread, entry_of, spread_among
from podline.stages.specs import JUDGED, ReportSpec
from podline.store.contract import Store

NIGHTS = 7
"""Number of earlier nights to compare."""
Word = Literal["better", "worse", "noise"]
Role = Literal["champion", "night before", "run before"]


@dataclass(frozen=True)
class Rival:
    """The run that this one is compared with.

    Attributes:
        role: the champion; without a champion, the previous night; without nights, the previous run.
        run: its name.
        evaluation: its evaluation.
        differences: of every metric that both have, by name: this run's minus the rival's.
        pair: both runs' answers for the same examples, or None.
        spread: the spread between seeds of the rival's recipe.
    """

    role: Role
    run: str
    evaluation: AnyEvaluation
    differences: Mapping[str, Difference]
    pair: Pair | None
    spread: SeedSpread

    @property
    def difference(self) -> Difference:
        """The comparison of the main metric."""
        return self.differences[self.evaluation.measure]

    def word(self) -> Word:
        """Return the verdict about the difference."""
        return word_of(self.evaluation.measure, self.difference)


@dataclass(frozen=True)
class RunStanding:
    """A run's comparison with earlier runs and the champion.

    Attributes:
        nights: entries of earlier nights with the same settings except the seed, each model once, oldest first; without
            nights, other runs.
        rival: the run to compare with; None for the first run of a recipe.
        promotion: the decision on its promotion; None if none was asked for.
        worse: explanation why it is worse than the rival beyond noise, or None.
    """

    nights: tuple[Entry, ...] = ()
    rival: Rival | None = None
    promotion: Promotion | None = None
    worse: Explained | None = None


def standing_of(
    store: Store, spec: ReportSpec, recipe: Recipe, evaluation: AnyEvaluation, until: float, reporter: Reporter
) -> RunStanding:
    """Return a run's comparison with earlier runs and the champion.

    Args:
        store: the store.
        spec: the spec of the report.
        recipe: the recipe of the run.
        evaluation: the evaluation of the run.
        until: Unix time; later runs are ignored.
        reporter: reports damaged entries and files of other runs, which are left out.

    Raises:
        StoreError: the ledger cannot be read.
        ArtifactError: the decision on the run's promotion is damaged.
    """
    entries = [*_judged(store, spec, recipe.name, evaluation, until, reporter)]
    nights, last = _before(entries, recipe)
    promotion = read_promotion(store, spec.folder) if spec.promotion_sha256 else None
    rival = None
    if promotion and promotion.against not in ("", spec.run):
        rival = _rival(store, spec, evaluation, "champion", promotion.against, entries, reporter)
    if rival is None and last is not None:
        role = "night before" if last.is_night else "run before"
        rival = _rival(store, spec, evaluation, role, last.run, entries, reporter)
    return RunStanding(nights, rival, promotion, _why_worse(store, spec, rival, reporter) if rival else None)


def _why_worse(store: Store, spec: ReportSpec, rival: Rival, reporter: Reporter) -> Explained | None:
    if spec.split != JUDGED or rival.pair is None:
        return None
    try:
        found = explain(store, spec.run, rival.run, rival.pair, rival.spread)
    except StoreError:
        # Other files are missing, so only the figures can be compared.
        return None
    except ArtifactError as error:
        reporter.warn(f"{rival.run} is compared by its figures alone: {error}")
        return None
    if found.drop.worse == "noise":
        return None
    return found._replace(looked_at=_looked_at(store, spec.run, found, reporter))


def _looked_at(store: Store, run: str, found: Explained, reporter: Reporter) -> tuple[Image, ...]:
    """Return where the run's model looks in the lost examples; empty if the model cannot be opened."""
    images = [image for image, *_ in found.pictures]
    try:
        return tuple(kind_by_measure(found.drop.measure).looked_at(store, run, images)) if images else ()
    except (StoreError, ArtifactError) as error:
        reporter.warn(f"the page does not show where the model looks: {error}")
        return ()


def word_of(name: str, before_to_after: Difference) -> Word:
    """Return the verdict on a difference of any metric; a difference that the seed may cause counts as noise."""
    better = measure_named(name).better(before_to_after.value, 0)
    return "noise" if before_to_after.chance != "beyond" else "better" if better else "worse"


def _before(judged: Iterable[Entry], recipe: Recipe) -> tuple[tuple[Entry, ...], Entry | None]:
    """Return earlier nights, oldest first, and the run to compare with: the last night, or else the last run."""
    settings = plain(recipe)
    nights: list[Entry] = []
    others: list[Entry] = []
    last = None
    for entry in judged:
        last = last or entry
        if same_but_for_seed(entry.settings.get("recipe", {}), settings):
            (nights if entry.is_night else others).append(entry)
        if len(nights) == NIGHTS:
            break
    found = nights or others[:NIGHTS]
    return tuple(reversed(found)), found[0] if found else last


def _judged(
    store: Store, spec: ReportSpec, recipe: str, evaluation: AnyEvaluation, until: float, reporter: Reporter
) -> Iterator[Entry]:
    """Yield the entries of earlier runs, newest first; only the newest entry of each run."""
    wanted = ledger.names(store, recipe=recipe, state="finished", until=datetime.fromtimestamp(until, UTC))
    told = {spec.run}
    for entry in ledger.entries(store, wanted[:LOOKED_AT], damaged=lambda error: reporter.warn(f"left out: {error}")):
        outcome = entry.outcome
        if entry.run in told or outcome is None or outcome.measure != evaluation.measure:
            continue
        told.add(entry.run)
        yield entry


def _rival(
    store: Store,
    spec: ReportSpec,
    evaluation: AnyEvaluation,
    role: Role,
    run: str,
    entries: Sequence[Entry],
    reporter: Reporter,
) -> Rival | None:
    folder = spec.record_folder.replace(spec.run, run, 1)
    try:
        other = read_evaluation(store, folder)
    except StoreError:
        # Deleted runs keep their entries, but cannot be compared.
        return None
    except ArtifactError as error:
        reporter.warn(f"not compared with {run}: {error}")
        return None
    before, after = judgement(folder, other), judgement(spec.record_folder, evaluation)
    if before.measure != after.measure:
        return None
    try:
        pair = paired(store, before, after)
    except StoreError:
        pair = None
    except ArtifactError as error:
        reporter.warn(f"{run} is compared by its figures alone: {error}")
        pair = None
    spread = spread_among(entries, entry_of(entries, run), other.measure)
    return Rival(role, run, other, _differences(pair, other, evaluation, spread), pair, spread)


def _differences(
    pair: Pair | None,
    before: AnyEvaluation,
    after: AnyEvaluation,
    spread: SeedSpread,
) -> dict[str, Difference]:
    """Compare every metric that both runs have, on the same examples if possible."""
    metrics = [each.trained.metrics for each in (before, after)]
    known = [name for name in metrics[1] if name in metrics[0]]
    examples = min(before.examples, after.examples)
    seeds = {name: spread.of(name, metrics[0][name]) for name in known}
    found = pair.differences(seeds) if pair else {}
    return {
        name: found.get(name) or unpaired(metrics[0][name], metrics[1][name], examples, seeds[name]) for name in known
    }
