"""Applies the rules of promotion: a model is promoted, refused or undecided. Pure functions.

A candidate is compared with the *reference*: the last champion that was significantly better than the reference before,
or was promoted with ``--anyway``; without one, the first champion. Each figure has two thresholds
(:class:`podline.contract.rules.Thresholds`). The model is promoted if no figure is worse by more than its first
threshold, refused if a figure is worse by more than its second, and undecided in between.

The error budget covers a year. A recipe that is worse by the margin in one figure, tried every night with a new seed,
is promoted within a year with at most the probability ``promotion.rate``. An equally good recipe is refused with at
most the same probability. A promotion needs every figure, so more figures do not make a wrong one more likely (Berger:
"Multiparameter Hypothesis Testing and Acceptance Sampling", Technometrics 1982).

If the main figure is significantly better, the tests of all other figures only warn, except those in
``promotion.strict``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from podline.base import entry_points
from podline.compare.words import ChanceCase
from podline.contract.kind import kind_named
from podline.contract.rules import MAIN, PARTS, Compared, Figure, Rule, rule
from podline.documents.promotion import Check, ExportedFile
from podline.recipes.measures import change_bound, change_text, measure_named, value_text
from podline.recipes.parts import Registry
from podline.recipes.promotion_settings import RULES, PromotionSettings

# Rules that only warn, unless promotion.strict names them.
_ADVISORY = ("calibration",)


@rule("size")
def size(compared: Compared[Any], settings: PromotionSettings) -> Iterator[Check]:
    """Require that the parameters' bytes grow by at most the share ``promotion.size``."""
    if compared.costs:
        before, after = compared.costs
        yield _not_larger("size", "parameters", "bytes", before.bytes, after.bytes, settings.size)


@rule("operations")
def operations(compared: Compared[Any], settings: PromotionSettings) -> Iterator[Check]:
    """Require that the multiply-adds per example grow by at most the share ``promotion.operations``."""
    if compared.costs:
        before, after = compared.costs
        allowed = settings.operations
        yield _not_larger("operations", "one example", "multiply-adds", before.operations, after.operations, allowed)


def _rules_for(kind: str) -> list[Rule]:
    """Return the rules for models of a kind: Podline's own, and those of installed packages."""
    shipped = {each.name: each for each in (*kind_named(kind).rules(), size, operations)}
    found = Registry("rule of promotion", RULES, shipped, Rule).all().values()
    return [each for each in found if each.name in shipped or each.kind in ("", kind)]


def checks_of(compared: Compared[Any], settings: PromotionSettings) -> list[Check]:
    """Apply every rule to a candidate and the trainings it is compared with; return the results.

    Raises:
        SettingsError: a rule of an installed package cannot be imported, is not a Rule, or raises an exception; or two
            rules have the same name.
    """
    found = list[Figure | Check]()
    for judge in _rules_for(compared.kind):
        with entry_points.explained(f"promotion rule {judge.name}"):
            found += [each for each in judge(compared, settings) if not isinstance(each, Figure) or each.counts]
    figures = sum(isinstance(each, Figure) for each in found)
    checks = [_judged(each, figures, settings.rate) if isinstance(each, Figure) else each for each in found]
    better = any(check.better for check in checks if check.rule == MAIN)
    weighed = (_weighed(check, settings, main_is_better=better) for check in checks)
    return [
        check.changed(message=_message(each, check)) if isinstance(each, Figure) else check
        for each, check in zip(found, weighed, strict=True)
    ]


def _weighed(check: Check, settings: PromotionSettings, *, main_is_better: bool) -> Check:
    """Turn a check into a warning if the main figure is better or the rule is advisory, unless it is strict."""
    strict = check.rule == MAIN or not {check.rule, check.name, check.measure}.isdisjoint(settings.strict)
    if check.margin is None or strict or not (main_is_better or check.rule in _ADVISORY):
        return check
    return check.changed(refused=False, warned=not check.shown, shown=True, more_trainings=0)


def thresholds(checks: Sequence[Check]) -> str:
    """Return as text the thresholds of the main metric, and of the class or joint with the widest thresholds."""
    said = [_limits(check) for check in checks if check.rule == MAIN]
    parts = [check for check in checks if check.rule in PARTS]
    if parts:
        widest = min(parts, key=lambda check: check.refused_from or 0.0)
        said.append(f"the least certain {widest.rule}, {widest.name}: {_limits(widest)}")
    return "; ".join(said)


def _judged(figure: Figure, figures: int, rate: float) -> Check:
    change, limits = figure.change, figure.thresholds(figures, rate)
    refused, shown = bool(change < limits.refused), bool(change >= limits.promoted)
    sign = 1 if measure_named(figure.measure).higher_is_better else -1
    return Check(
        rule=figure.rule,
        name=figure.name,
        measure=figure.measure,
        before=sign * figure.before,
        after=sign * figure.value,
        promoted_to=float(limits.promoted),
        refused_from=float(limits.refused),
        margin=float(limits.margin),
        variances=(float(figure.sampled), figure.noise.luck, figure.noise.seeds),
        refused=refused,
        shown=shown,
        better=bool(change > figure.beyond(figures, rate)),
        more_trainings=0 if refused or shown else figure.more_trainings(figures, rate),
        message="",
    )


def _message(figure: Figure, check: Check) -> str:
    sign, known = 1 if measure_named(figure.measure).higher_is_better else -1, figure.noise.trainings
    of = "the reference" if known == 1 else f"the mean of {known} trainings of the reference's recipe"
    before, after = (value_text(figure.measure, sign * value) for value in (figure.before, figure.value))
    said = f"{check.what}: {after} vs {before} of {of}, {change_text(figure.measure, sign * figure.change)}"
    if check.warned:
        return f"{said} (equally good models: up to {change_text(figure.measure, sign * (check.promoted_to or 0.0))})"
    chance = f": {ChanceCase.BEYOND.said(measured=figure.noise.measured)}" if check.refused else ""
    if check.undecided and change_bound(figure.measure, figure.change) == change_bound(
        figure.measure, check.promoted_to or 0.0
    ):
        chance = ", just too much"
    return said if check.shown else f"{said}{chance} ({_limits(check)})"


def _limits(check: Check) -> str:
    measure = measure_named(check.measure)
    sign = 1 if measure.higher_is_better else -1
    to, since = (sign * (each or 0.0) for each in (check.promoted_to, check.refused_from))
    word = "up to" if (check.promoted_to or 0.0) <= 0 else "from"
    if measure.higher_is_better and not measure.in_units and (check.before or 0.0) + since < 0:
        return f"promoted {word} {change_text(check.measure, to)}, never refused"
    return f"promoted {word} {change_bound(check.measure, to)}, refused from {change_text(check.measure, since)}"


def _not_larger(name_of_rule: str, name: str, unit: str, before: int, after: int, allowed: float) -> Check:
    share = after / before - 1 if before else 0.0
    refused = share > allowed
    word = f"{100 * share:+.1f} %, expected at most {100 * allowed:+g} %" if share else "not compared"
    word = "the same" if before == after else word
    message = f"{name_of_rule}, {name}: {after:,} {unit} vs {before:,} of the reference: {word}"
    return Check(rule=name_of_rule, name=name, before=before, after=after, refused=refused, message=message)


def export_checks(exports: Sequence[ExportedFile]) -> list[Check]:
    """Return a check for each exported file: its outputs must equal those of the evaluated model within a tolerance."""
    return [
        Check(
            rule="export",
            name=file.form,
            after=file.difference,
            before=file.allowed,
            refused=not file.same,
            message=(
                f"export {file.form}: {file.name} cannot be compared: {file.problem}"
                if file.difference is None
                else f"export {file.form}: outputs of {file.name} differ by {file.difference:.2g} from the trained "
                f"model's on {file.images} test images, expected at most {file.allowed:.2g}"
            ),
        )
        for file in exports
    ]
