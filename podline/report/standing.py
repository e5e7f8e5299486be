"""Compares a run with its reference and with earlier nights.

Only the promotion's reference and runs that ended before the end of this run's training are compared, so a report that
is written again years later stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from podline.base.arrays import Image
from podline.base.errors import ArtifactError, StoreError
from podline.base.progress import Reporter
from podline.compare.comparison import Pairing, compare
from podline.compare.known import Evaluated, evaluated, recent
from podline.compare.lost import Explained, explain
from podline.contract.kind import kind_named
from podline.documents.any_evaluation import AnyEvaluation
from podline.documents.ledger_entry import Entry
from podline.documents.promotion import Promotion, read_promotion
from podline.ledger.alike import same_but_for_seed
from podline.ledger.inventory.catalogue import training_of
from podline.ledger.recording import plain
from podline.recipes.kind_table import facts_by_measure
from podline.recipes.settings import Recipe
from podline.stages.base import JUDGED
from podline.stages.specs import ReportSpec
from podline.store.contract import Store

NIGHTS = 7
"""Number of earlier nights to compare."""
Role = Literal["reference", "night before", "run before"]


@dataclass(frozen=True)
class RunStanding:
    """A run's comparison with earlier runs and the reference.

    Attributes:
        nights: entries of the last earlier nights with the same settings except the seed, each run once, oldest first;
            without nights, other runs with these settings.
        role: what the rival is: the promotion's reference; without one, the previous night, or else the previous run.
        rival: the comparison with an earlier run, the rival; None if there is none that can be compared.
        promotion: the decision on the run's promotion; None if the run was not to be promoted.
        worse: the explanation if the run is significantly worse than the rival on the same test examples, else None.
    """

    nights: tuple[Entry, ...] = ()
    role: Role = "reference"
    rival: Pairing | None = None
    promotion: Promotion | None = None
    worse: Explained | None = None


def standing_of(
    store: Store, spec: ReportSpec, recipe: Recipe, evaluation: AnyEvaluation, until: float, reporter: Reporter
) -> RunStanding:
    """Return a run's comparison with earlier runs and the reference.

    Runs that ended after the Unix time ``until`` are ignored, except the reference. Damaged entries and files of other
    runs only cause warnings.

    Raises:
        StoreError: the ledger cannot be read.
        ArtifactError: the decision on the run's promotion is damaged.
    """
    nights, last = _before(store, spec, recipe, evaluation.measure, until, reporter)
    promotion = read_promotion(store, spec.folder) if spec.promotion_sha256 else None
    now, rivals = Evaluated(training_of(store, spec.run), spec.record_folder, evaluation), dict[Role, str]()
    if promotion and promotion.reference not in ("", spec.run):
        rivals["reference"] = promotion.reference
    if last is not None:
        rivals["night before" if last.is_night else "run before"] = last.run
    for role, run in rivals.items():
        if rival := _rival(store, now, run, until, reporter):
            return RunStanding(nights, role, rival, promotion, _why_worse(store, rival, reporter))
    return RunStanding(nights, promotion=promotion)


def _why_worse(store: Store, rival: Pairing, reporter: Reporter) -> Explained | None:
    after = rival.after
    if after.evaluation.split != JUDGED or rival.compared is None or not rival.comparison.is_worse:
        return None
    try:
        found = explain(store, rival)
    except StoreError:
        # The other run's files are missing, so only the metrics can be compared.
        return None
    except ArtifactError as error:
        reporter.warn(f"{rival.comparison.against} is compared by its metrics only: {error}")
        return None
    return found._replace(looked_at=_looked_at(store, after.training.run, found, reporter))


def _looked_at(store: Store, run: str, found: Explained, reporter: Reporter) -> tuple[Image, ...]:
    """Return saliency maps (Grad-CAM) of the run's model for the lost examples; empty if there are none."""
    images = [image for image, *_ in found.pictures]
    try:
        kind = kind_named(facts_by_measure(found.why.comparison.measure).name)
        return tuple(kind.saliency(store, run, images)) if images else ()
    except (StoreError, ArtifactError) as error:
        reporter.warn(f"the page does not show where the model looks: {error}")
        return ()


def _before(
    store: Store, spec: ReportSpec, recipe: Recipe, measure: str, until: float, reporter: Reporter
) -> tuple[tuple[Entry, ...], Entry | None]:
    """Return earlier nights, oldest first, and the run to compare with: the last night, or else the last run.

    All have the same main metric, and each run appears once, with its newest entry. If no night has the same settings,
    other runs with these settings are returned instead of nights; the run to compare with may have other settings.
    """
    settings, seen, last = plain(recipe), {spec.run}, None
    nights: list[Entry] = []
    others: list[Entry] = []
    for entry in recent(store, recipe.name, until, lambda error: reporter.warn(f"left out: {error}")):
        if entry.run in seen or entry.outcome is None or entry.outcome.measure != measure:
            continue
        seen.add(entry.run)
        last = last or entry
        if same_but_for_seed(entry.settings.get("recipe", {}), settings):
            (nights if entry.is_night else others).append(entry)
        if len(nights) == NIGHTS:
            break
    found = nights or others[:NIGHTS]
    return tuple(reversed(found)), found[0] if found else last


def _rival(store: Store, now: Evaluated, run: str, until: float, reporter: Reporter) -> Pairing | None:
    within = now.folder.removeprefix(now.training.folder)
    try:
        return compare(store, evaluated(store, run, f"runs/{run}{within}"), now, reporter, until)
    except StoreError:
        # The ledger keeps entries of deleted runs, which cannot be compared; runs with other measures cannot either.
        return None
    except ArtifactError as error:
        reporter.warn(f"not compared with {run}: {error}")
        return None
