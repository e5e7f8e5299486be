"""The rules of promotion: whether a model is shown to be worse than the champion, or not to be. Pure arithmetic.

Every figure that chance has a part in is held against the champion's, in two tests. One asks whether it is worse: these
are raised together, so that of models that are as good as the champion at most the stated share is refused, whatever
the number of classes (Holm's method). The other asks whether it is worse by less than a margin. A promotion needs that
of every figure, so none of these chances is raised: of models that are worse by the margin in one figure or in several
at most the stated share is promoted (Berger: "Multiparameter Hypothesis Testing and Acceptance Sampling",
Technometrics 1982). A model of which neither is shown is undecided.

What chance does is known in one of two ways. As soon as three trainings of the champion's recipe on its data are known
(its *peers*, itself among them), it is what these differ by. Before that, the two models are compared example by
example, with a spread between trainings that is assumed, or that their classes show where that is more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import NamedTuple

from podline.documents.promotion import Check, ExportedFile, Rule
from podline.evaluation.paired import Tails, holm
from podline.promotion.chance import (
    GUESSED_FREEDOM,
    Share,
    fall_of,
    half_an_example,
    normal_tail,
    spread_of,
    spread_of_all,
    student_tail,
)
from podline.promotion.margins import (
    ENOUGH_PEERS,
    Figure,
    Noise,
    VerdictRates,
    margin_of,
    noise_of,
    normal_margin,
    share_below,
)
from podline.recipes.promotion_settings import PromotionSettings

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


class ModelCost(NamedTuple):
    """What a model costs, counted: bytes of its parameters, multiply-adds for one example."""

    bytes: int
    operations: int


class Odds(NamedTuple):
    """How likely a figure is.

    Attributes:
        if_equal: one so low, or lower, for a model that is as good.
        if_worse: one so high, or higher, for a model that is worse by the margin.
        margin: that, in the figure's own unit.
    """

    if_equal: float
    if_worse: float
    margin: float


@dataclass(frozen=True)
class Paired:
    """The champion and the candidate, example by example.

    Attributes:
        main: of what counts.
        parts: likewise, of each class or joint.
        calibration_deviation: the standard deviation of the difference of their calibration errors, by examples.
        shown_spread: of what counts, what a seed does to it by what the parts show; a share.
    """

    main: Odds
    parts: Mapping[str, Odds]
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
    """A figure of the candidate, held against what is known of the champion and its peers.

    Attributes:
        rule: which rule it is of.
        name: of what.
        before: of the champion, or the mean over it and its peers.
        champion: of the champion.
        after: of the candidate.
        odds: how likely that is.
        figure: by which to tell what would decide; None where too few trainings are known.
        examples: that the figure is of; 0 if more of them are not looked for.
    """

    rule: Rule
    name: str
    before: float
    champion: float
    after: float
    odds: Odds
    figure: Figure | None = None
    examples: int = 0


def checks_of(
    candidate: ModelFigures,
    peers: Sequence[ModelFigures],
    paired: Paired | None,
    costs: tuple[ModelCost, ModelCost],
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
    rates = _rates(candidate, settings)
    tests = (
        _by_pairs(candidate, peers[0], paired, settings, rates)
        if paired
        else _by_peers(candidate, peers, settings, rates)
    )
    tests += [_guard(each, settings, rates, known=not paired) for each in guarded]
    told = "the champion" if paired else f"the mean of {len(peers)} trainings of the champion's recipe"
    raised = holm({(test.rule, test.name): test.odds.if_equal for test in tests})
    return [
        *(_judged(test, raised[test.rule, test.name], rates, told, len(peers)) for test in tests),
        _not_larger("size", "parameters", "bytes", costs[0].bytes, costs[1].bytes, settings.size),
        _not_larger(
            "operations", "one example", "multiply-adds", costs[0].operations, costs[1].operations, settings.operations
        ),
    ]


def _rates(candidate: ModelFigures, settings: PromotionSettings) -> VerdictRates:
    calibrated = candidate.calibration_error is not None
    figures = 1 + sum(share.examples > 0 for share in candidate.parts.values()) + calibrated + len(settings.guards)
    return VerdictRates(settings.rate, settings.wrong_rate, figures)


def _by_peers(
    candidate: ModelFigures, peers: Sequence[ModelFigures], settings: PromotionSettings, rates: VerdictRates
) -> list[_Test]:
    judged = {name: share for name, share in candidate.parts.items() if share.examples}
    parts = {name: [peer.parts[name] for peer in peers] for name in judged}
    everywhere = fmean(variance(each.angle for each in known) for known in parts.values()) if judged else 0.0
    of_all, expected = (
        spread_of_all(settings.spread, spread, len(judged)) for spread in (math.sqrt(everywhere), settings.part_spread)
    )
    mains, rule = [peer.main for peer in peers], part_rule(candidate)
    usual = noise_of(candidate.main.examples, of_all).usual
    main = _Scale(expected, settings.margin, usual)
    of_part = _Scale(settings.part_spread, settings.part_margin, everywhere)
    tests = [_share("main", candidate.measure, mains, candidate.main, main, rates)]
    if rule == "joint":  # more examples than there are people or images mean nothing
        tests = [test._replace(examples=0) for test in tests]
    tests += [_share(rule, name, parts[name], share, of_part, rates) for name, share in judged.items()]
    errors = [peer.calibration_error for peer in peers if peer.calibration_error is not None]
    if candidate.calibration_error is not None and len(errors) == len(peers):
        spreads = [
            max(settings.calibration / 4, _CALIBRATION_MOVES * spread_of(spread, mains[0].value))
            for spread in (of_all, expected)
        ]
        tests.append(_calibration_by_peers(errors, candidate.calibration_error, spreads, settings, rates))
    return tests


class _Scale(NamedTuple):
    """What a share is measured by.

    Attributes:
        spread: that is assumed between trainings, of an angle.
        margin: the least, as an angle.
        seen: the variance that the peers show, of an angle; it counts if it is more than what is assumed.
    """

    spread: float
    margin: float
    seen: float


def _share(rule: Rule, name: str, peers: Sequence[Share], share: Share, scale: _Scale, rates: VerdictRates) -> _Test:
    def noise(times: float) -> Noise:
        return noise_of(share.examples * times, scale.spread)

    usual, most = noise(1)
    before = fmean(peer.value for peer in peers)
    margin = margin_of(noise(1), scale.margin, rates)
    fall = fall_of([peer.angle for peer in peers], share.angle, max(usual, scale.seen))
    fall = fall._replace(step=half_an_example(share.value, share.examples))
    odds = Odds(fall.chance(), fall.chance_within(margin, most), before - share_below(before, margin))
    return _Test(
        rule, name, before, peers[0].value, share.value, odds, Figure(fall, noise, scale.margin), share.examples
    )


def _calibration_by_peers(
    errors: Sequence[float], error: float, spreads: Sequence[float], settings: PromotionSettings, rates: VerdictRates
) -> _Test:
    """More is better of what is tested, and so much worse is allowed.

    Args:
        errors: of the peers.
        error: of the candidate.
        spreads: between trainings, as the peers show it and as it is assumed.
        settings: the rules.
        rates: of wrong verdicts.
    """
    seen, assumed = (spread**2 for spread in spreads)
    margin = margin_of(Noise(assumed, assumed), settings.calibration, rates)
    fall = fall_of([-each for each in errors], -error, seen)
    beyond = fall._replace(by=fall.by - settings.calibration)
    odds = Odds(beyond.chance(), fall.chance_within(margin, assumed), margin)
    figure = Figure(fall, lambda _times: Noise(assumed, assumed), settings.calibration)
    return _Test("calibration", "calibration error", fmean(errors), errors[0], error, odds, figure)


def _by_pairs(
    candidate: ModelFigures, champion: ModelFigures, paired: Paired, settings: PromotionSettings, rates: VerdictRates
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
        rise, allowed, sampled = after - before, settings.calibration, paired.calibration_deviation
        assumed, shown = allowed / 4, _CALIBRATION_MOVES * paired.shown_spread
        margin = max(allowed, normal_margin(math.hypot(sampled, math.sqrt(2) * assumed), rates))
        beyond, within = (guessed_chance(by, sampled, assumed, shown) for by in (rise - allowed, margin - rise))
        tests.append(_Test("calibration", "calibration error", before, before, after, Odds(beyond, within, margin)))
    return tests


def part_rule(standing: ModelFigures) -> Rule:
    """Whether a model's parts are classes or joints: what has probabilities has classes."""
    return "joint" if standing.calibration_error is None else "class"


def _guard(guarded: Guarded, settings: PromotionSettings, rates: VerdictRates, *, known: bool) -> _Test:
    """By examples, and by what a seed is assumed to do: the measure's peers are not asked."""
    drop, spread = guarded.before - guarded.after, spread_of(settings.spread, guarded.before)
    margin = guarded.before - share_below(guarded.before, settings.margin)
    if known:
        margin = max(margin, normal_margin(math.hypot(guarded.deviation, math.sqrt(2) * spread), rates))
    equal, worse = (chance_beyond(by, guarded.deviation, spread) for by in (drop, margin - drop))
    return _Test("guard", guarded.name, guarded.before, guarded.before, guarded.after, Odds(equal, worse, margin))


def _judged(test: _Test, chance: float, rates: VerdictRates, told: str, peers: int) -> Check:
    """A test held against the rates, in words."""
    what = {"class": f"class {test.name}", "joint": f"joint {test.name}"}.get(test.rule, test.name)
    by = (test.after - test.before) * (-1 if test.rule == "calibration" else 1)
    way = ("higher" if test.rule == "calibration" else "lower") if by < 0 else "no worse"
    points = f"{100 * abs(by):.1f} points {way}" if by < 0 else way
    before = f"{100 * test.before:.1f} % of {'the champion' if test.rule == 'guard' else told}"
    if abs(test.champion - test.before) > 1e-9:
        before += f" ({100 * test.champion:.1f} % of the champion itself)"
    refused, shown = chance < rates.refused, test.odds.if_worse < rates.promoted
    said = [f"{what}: {100 * test.after:.1f} % vs {before}: {points}"]
    if by < 0:
        said.append(f"chance alone gives that to {_odds(chance)} models that are as good")
    if by < 0 and refused:
        said[-1] += f", and below {100 * rates.refused:g} of 100 it is refused"
    elif not shown:
        said.append(f"not shown to be within the margin of {100 * test.odds.margin:.1f} points")
    return Check(
        rule=test.rule,
        name=test.name,
        before=test.before,
        after=test.after,
        chance=chance,
        refused=refused,
        margin=test.odds.margin,
        chance_if_worse=test.odds.if_worse,
        shown=shown,
        message="; ".join(said),
        **({} if refused or shown else _deciding(test, rates, peers)),
    )


def _deciding(test: _Test, rates: VerdictRates, peers: int) -> dict[str, int | None]:
    """What would decide about a figure, were all else as it is."""
    if peers < ENOUGH_PEERS:
        return {"more_trainings": ENOUGH_PEERS - peers}
    if test.figure is None:
        return {}
    times = test.figure.more_examples(rates) if test.examples else None
    more_examples = math.ceil(test.examples * (times - 1)) if times else None
    return {"more_trainings": test.figure.more_trainings(rates), "more_examples": more_examples}


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


def guessed_chance(drop: float, deviation: float, assumed: float, shown: float) -> float:
    """The same by the spread that is assumed or by the one that parts show, whichever says less."""
    return max(chance_beyond(drop, deviation, assumed), chance_beyond(drop, deviation, shown, "student"))
