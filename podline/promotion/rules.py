"""The rules of promotion: whether a model is worse than the champion beyond noise. Pure arithmetic.

Every figure is held against the champion's; those that chance has a part in are tested together, so that of models that
are as good as the champion at most the stated share is refused, whatever the number of classes (Holm's method).

What chance does is known in one of two ways. As soon as three trainings of the champion's recipe on its data are known
(its *peers*, itself among them), it is what these differ by. Before that, the two models are compared example by
example, with a spread between trainings that is assumed, or that their classes show where that is more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import variance
from typing import NamedTuple

from podline.documents.promotion import Check, ExportedFile, Rule
from podline.evaluation.paired import Tails, holm
from podline.promotion.chance import (
    GUESSED_FREEDOM,
    Share,
    chance_by_peers,
    normal_tail,
    spread_of,
    spread_of_all,
    student_tail,
)
from podline.recipes.promotion_settings import PromotionSettings

ENOUGH_PEERS = 3
# Of what a seed does to the figure that counts, so many times that it does to the calibration error.
_CALIBRATION_MOVES = 2.0


@dataclass(frozen=True)
class ModelFigures:
    """How good a model is, in figures of which more is better.

    Attributes:
        run: whose model it is.
        measure: what counts, in words.
        main: that figure.
        parts: of each class or joint, the share of right answers and among how many.
        calibration_error: None where there are no probabilities.
    """

    run: str
    measure: str
    main: Share
    parts: Mapping[str, Share]
    calibration_error: float | None = None


class Cost(NamedTuple):
    """What a model costs, counted: bytes of its parameters, multiply-adds for one example."""

    bytes: int
    operations: int


@dataclass(frozen=True)
class Paired:
    """The champion and the candidate, example by example.

    Attributes:
        main: how likely it is to lose so much in what counts, for an equally good model.
        parts: likewise, of each class or joint.
        calibration_deviation: the standard deviation of the difference of their calibration errors, by examples.
        shown_spread: of what counts, what a seed does to it by what the parts show; a share.
    """

    main: float
    parts: Mapping[str, float]
    calibration_deviation: float = 0.0
    shown_spread: float = 0.0


class Guarded(NamedTuple):
    """A guarded measure of champion and candidate, on the same examples; of each, more is better.

    Attributes:
        name: its label.
        before: the champion's.
        after: the candidate's.
        deviation: the standard deviation of the difference, by examples.
    """

    name: str
    before: float
    after: float
    deviation: float


class _Test(NamedTuple):
    """A figure, and how likely it is for a model that is as good as the champion and its peers."""

    rule: Rule
    name: str
    before: float
    champion: float
    after: float
    chance: float


def checks_of(
    candidate: ModelFigures,
    peers: Sequence[ModelFigures],
    paired: Paired | None,
    costs: tuple[Cost, Cost],
    settings: PromotionSettings,
    guarded: Sequence[Guarded] = (),
) -> list[Check]:
    """What every rule that compares says.

    Args:
        candidate: the model that is judged.
        peers: the champion, and after it other trainings of its recipe on its data, judged on the same examples.
        paired: champion and candidate; None where there are :data:`ENOUGH_PEERS` peers to judge by.
        costs: of the champion and of the candidate.
        settings: the rules.
        guarded: the measures that ``settings.guards`` names.
    """
    tests = _by_pairs(candidate, peers[0], paired, settings) if paired else _by_peers(candidate, peers, settings)
    tests += [_guard(each, settings) for each in guarded]
    told = "the champion" if paired else f"the mean of {len(peers)} trainings of the champion's recipe"
    raised = holm({(test.rule, test.name): test.chance for test in tests})
    return [
        *(_judged(test, raised[test.rule, test.name], settings.rate, told) for test in tests),
        _not_larger("size", "parameters", "bytes", costs[0].bytes, costs[1].bytes, settings.size),
        _not_larger(
            "operations", "one example", "multiply-adds", costs[0].operations, costs[1].operations, settings.operations
        ),
    ]


def _by_peers(candidate: ModelFigures, peers: Sequence[ModelFigures], settings: PromotionSettings) -> list[_Test]:
    champion, rule = peers[0], part_rule(candidate)

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    mains = [peer.main for peer in peers]
    judged = {name: share for name, share in candidate.parts.items() if share.examples}
    angles = {name: [peer.parts[name].angle for peer in peers] for name in judged}
    everywhere = mean([variance(values) for values in angles.values()]) if judged else 0.0
    of_all = spread_of_all(settings.spread, math.sqrt(everywhere), len(judged))
    tests = [
        _Test(
            "main",
            candidate.measure,
            mean([share.value for share in mains]),
            champion.main.value,
            candidate.main.value,
            chance_by_peers([share.angle for share in mains], candidate.main.angle, _assumed(champion.main, of_all)),
        )
    ]
    tests += [
        _Test(
            rule,
            name,
            mean([peer.parts[name].value for peer in peers]),
            champion.parts[name].value,
            share.value,
            chance_by_peers(
                angles[name], share.angle, max(_assumed(champion.parts[name], settings.part_spread), everywhere)
            ),
        )
        for name, share in judged.items()
    ]
    errors = [peer.calibration_error for peer in peers if peer.calibration_error is not None]
    if candidate.calibration_error is not None and len(errors) == len(peers):
        # More is better, and so much worse is allowed.
        allowed = [-error - settings.calibration for error in errors]
        expected = max(settings.calibration / 4, _CALIBRATION_MOVES * spread_of(of_all, champion.main.value))
        chance = chance_by_peers(allowed, -candidate.calibration_error, expected**2)
        tests.append(_calibration(mean(errors), errors[0], candidate.calibration_error, chance))
    return tests


def _assumed(share: Share, spread: float) -> float:
    """The variance of an angle that is assumed: half of a binomial share's, as trainings agree about many, and more."""
    return 1 / (8 * share.examples) + spread**2


def _by_pairs(
    candidate: ModelFigures, champion: ModelFigures, paired: Paired, settings: PromotionSettings
) -> list[_Test]:
    rule = part_rule(candidate)
    tests = [
        _Test("main", candidate.measure, champion.main.value, champion.main.value, candidate.main.value, paired.main)
    ]
    tests += [
        _Test(rule, name, champion.parts[name].value, champion.parts[name].value, share.value, paired.parts[name])
        for name, share in candidate.parts.items()
        if share.examples
    ]
    before, after = champion.calibration_error, candidate.calibration_error
    if before is not None and after is not None:
        beyond, sampled = after - before - settings.calibration, paired.calibration_deviation
        assumed, shown = settings.calibration / 4, _CALIBRATION_MOVES * paired.shown_spread
        chance = max(chance_beyond(beyond, sampled, assumed), chance_beyond(beyond, sampled, shown, "student"))
        tests.append(_calibration(before, before, after, chance))
    return tests


def part_rule(standing: ModelFigures) -> Rule:
    """Whether a model's parts are classes or joints: what has probabilities has classes."""
    return "joint" if standing.calibration_error is None else "class"


def _guard(guarded: Guarded, settings: PromotionSettings) -> _Test:
    """By examples, and by what a seed is assumed to do: the measure's peers are not asked."""
    drop = guarded.before - guarded.after
    chance = chance_beyond(drop, guarded.deviation, spread_of(settings.spread, guarded.before))
    return _Test("guard", guarded.name, guarded.before, guarded.before, guarded.after, chance)


def _calibration(before: float, champion: float, after: float, chance: float) -> _Test:
    return _Test("calibration", "calibration error", before, champion, after, chance)


def _judged(test: _Test, chance: float, rate: float, told: str) -> Check:
    """A test held against the rate, in words."""
    what = {"class": f"class {test.name}", "joint": f"joint {test.name}"}.get(test.rule, test.name)
    by = (test.after - test.before) * (-1 if test.rule == "calibration" else 1)
    way = ("higher" if test.rule == "calibration" else "lower") if by < 0 else "no worse"
    points = f"{100 * abs(by):.1f} points {way}" if by < 0 else way
    before = f"{100 * test.before:.1f} % of {'the champion' if test.rule == 'guard' else told}"
    if abs(test.champion - test.before) > 1e-9:
        before += f" ({100 * test.champion:.1f} % of the champion itself)"
    refused = chance < rate
    odds = f"chance alone gives that to {_odds(chance)} models that are as good" if by < 0 else ""
    held = f", and below {100 * rate:g} of 100 it is refused" if refused else ""
    message = f"{what}: {100 * test.after:.1f} % vs {before}: {points}{f'; {odds}{held}' if odds else ''}"
    return Check(
        rule=test.rule,
        name=test.name,
        before=test.before,
        after=test.after,
        chance=chance,
        refused=refused,
        message=message,
    )


def _odds(chance: float) -> str:
    if chance >= 0.1:
        return f"{100 * chance:.0f} of 100"
    return f"{1000 * chance:.0f} of 1,000" if chance >= 0.0005 else "fewer than 1 of 1,000"


def _not_larger(rule: Rule, name: str, unit: str, before: int, after: int, allowed: float) -> Check:
    share = after / before - 1 if before else 0.0
    refused = share > allowed
    word = f"{100 * share:+.1f} %, and at most {100 * allowed:+g} % is allowed" if share else "the same"
    message = f"{rule}, {name}: {after:,} {unit} vs {before:,} of the champion: {word}"
    return Check(rule=rule, name=name, before=before, after=after, refused=refused, message=message)


def export_checks(exports: Sequence[ExportedFile]) -> list[Check]:
    """What the exports say: each must give the answers of the model that was judged."""
    return [
        Check(
            rule="export",
            name=file.form,
            after=file.difference,
            before=file.allowed,
            refused=not file.same,
            message=(
                f"export {file.form}: {file.name} gives no answers: {file.problem}"
                if file.difference is None
                else f"export {file.form}: {file.name} differs by {file.difference:.2g} vs at most {file.allowed:.2g} "
                f"from the trained model, on {file.images} test images"
            ),
        )
        for file in exports
    ]


def chance_beyond(drop: float, deviation: float, spread: float, tails: Tails = "normal") -> float:
    """How likely a drop is whose sampling has this deviation, between two trainings of which each has a spread.

    Args:
        drop: of the figure; negative if it rose.
        deviation: of the difference, by sampling examples.
        spread: of the figure, between trainings.
        tails: how the two together are spread.
    """
    together = math.hypot(deviation, math.sqrt(2) * spread)
    if not together:
        return float(drop <= 0)
    return normal_tail(drop / together) if tails == "normal" else student_tail(drop / together, GUESSED_FREEDOM)
