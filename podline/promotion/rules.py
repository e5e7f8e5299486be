"""The rules of promotion: a model is promoted, refused or undecided. Pure functions.

A candidate is compared with the *reference*: the last champion that was shown to be better than the previous reference.
Each figure answers two questions. Is the candidate significantly worse? One such figure refuses it. Is the pessimistic
bound of the difference within the margin? A promotion needs this for all figures. Otherwise the candidate is undecided.

The error budget covers a year. A recipe that is worse by the margin in one figure, tried every night with a new seed,
is promoted within a year with at most the probability ``promotion.rate``. An equally good recipe is refused with at
most the same probability. A promotion needs every figure, so more figures do not make a wrong one more likely (Berger:
"Multiparameter Hypothesis Testing and Acceptance Sampling", Technometrics 1982).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from podline import entry_points
from podline.documents.promotion import Check, ExportedFile
from podline.figures import change_text, value_text
from podline.kinds.table import kind_named
from podline.measures import measure_named
from podline.noise import MEASURED
from podline.promotion.figure import Figure, Pair, Rule, rule
from podline.recipes.parts import Registry
from podline.recipes.promotion_settings import RULES, PromotionSettings


@rule("size")
def size(pair: Pair, settings: PromotionSettings) -> Iterator[Check]:
    """Require that the size of the parameters does not grow."""
    before, after = pair.costs
    yield _not_larger("size", "parameters", "bytes", before.bytes, after.bytes, settings.size)


@rule("operations")
def operations(pair: Pair, settings: PromotionSettings) -> Iterator[Check]:
    """Require that the multiply-adds per example do not grow."""
    before, after = pair.costs
    allowed = settings.operations
    yield _not_larger("operations", "one example", "multiply-adds", before.operations, after.operations, allowed)


def rules_for(kind: str) -> list[Rule]:
    """Return the rules for models of a kind: Podline's own, and those of installed packages.

    Raises:
        SettingsError: a rule cannot be imported, is not a Rule, or has the name of another.
    """
    shipped = {each.name: each for each in (*kind_named(kind).rules(), size, operations)}
    found = Registry("rule of promotion", RULES, shipped, Rule).all().values()
    return [each for each in found if each.name in shipped or each.kind in ("", kind)]


def checks_of(pair: Pair, settings: PromotionSettings) -> list[Check]:
    """Return the results of every rule for a candidate and the known trainings.

    Raises:
        SettingsError: a rule of an installed package fails; or see :func:`rules_for`.
    """
    said = [each for judge in rules_for(pair.kind) for each in _said(judge, pair, settings)]
    figures = sum(isinstance(each, Figure) for each in said)
    return [_judged(each, figures, settings.rate) if isinstance(each, Figure) else each for each in said]


def _said(judge: Rule, pair: Pair, settings: PromotionSettings) -> list[Figure | Check]:
    with entry_points.explained(f"promotion rule {judge.name}"):
        return [*judge(pair, settings)]


def detects(checks: Sequence[Check]) -> str:
    """Return the margins as text: that of the main metric, and the widest of a class or joint."""
    main = [check for check in checks if check.rule == "main"]
    parts = [check for check in checks if check.rule in ("class", "joint")]
    said = [_size_text(check.measure, check.margin or 0.0) for check in main]
    if parts:
        widest = max(parts, key=lambda check: check.margin or 0.0)
        said.append(f"{_size_text(widest.measure, widest.margin or 0.0)} in a single {widest.rule}")
    return f"margins: {'; '.join(said)}" if said else ""


def _judged(figure: Figure, figures: int, rate: float) -> Check:
    """Return the test of a figure with its message."""
    change, margin, low = figure.change, figure.allowed(figures, rate), figure.low(rate)
    refused = change < -figure.beyond(rate / figures)
    shown = low >= -margin
    sign = 1 if measure_named(figure.measure).higher_is_better else -1
    known = figure.noise.trainings
    what = f"class {figure.name}" if figure.rule == "class" else figure.name
    of = "the reference" if known == 1 else f"the mean of {known} trainings of the reference's recipe"
    before, after = sign * float(figure.noise.share), sign * figure.value
    said = (
        f"{what}: {value_text(figure.measure, after)} vs {value_text(figure.measure, before)} of {of}, "
        f"{change_text(figure.measure, sign * change)}"
    )
    assumed = "" if known >= MEASURED else ", by the assumed spread between seeds"
    words = {
        "refused": f"; worse beyond chance{assumed}",
        "shown": "",
        "open": f"; not shown to be within the margin of {_size_text(figure.measure, margin)}",
    }
    return Check(
        rule=figure.rule,
        name=figure.name,
        measure=figure.measure,
        before=before,
        after=after,
        low=low,
        margin=margin,
        refused=refused,
        shown=shown,
        better=change > figure.beyond(rate),
        more_trainings=0 if refused or shown else figure.more_trainings(figures, rate),
        message=said + words["refused" if refused else "shown" if shown else "open"],
    )


def _size_text(measure: str, size: float) -> str:
    return change_text(measure, size).removeprefix("+")


def _not_larger(name_of_rule: str, name: str, unit: str, before: int, after: int, allowed: float) -> Check:
    share = after / before - 1 if before else 0.0
    refused = share > allowed
    word = f"{100 * share:+.1f} %, and at most {100 * allowed:+g} % is allowed" if share else "the same"
    message = f"{name_of_rule}, {name}: {after:,} {unit} vs {before:,} of the reference: {word}"
    return Check(rule=name_of_rule, name=name, before=before, after=after, refused=refused, message=message)


def export_checks(exports: Sequence[ExportedFile]) -> list[Check]:
    """Return the checks of the exports: each must give the answers of the evaluated model."""
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
