"""The rules of promotion: a model is promoted, refused or undecided. Pure arithmetic.

A candidate is compared with the *reference*: the last champion that was shown to be better than the reference before
it. Each figure asks two questions. Is the candidate significantly worse? One such figure refuses it. Is the pessimistic
end of the difference within the margin? All figures must be, for a promotion. What is neither is undecided.

The error budget is that of a year. A recipe that is worse by the margin in one figure, tried every night with a new
seed, is promoted within a year with at most the probability ``promotion.rate``. Likewise an equally good recipe is
refused. A promotion needs every figure, so more figures make a wrong one no likelier (Berger: "Multiparameter
Hypothesis Testing and Acceptance Sampling", Technometrics 1982).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from podline.documents.promotion import Check, ExportedFile, Rule
from podline.figures import change_text, value_text
from podline.measures import measure_named
from podline.promotion.noise import MOST_TRAININGS, NIGHTS, Noise, missed
from podline.recipes.promotion_settings import Margin, PromotionSettings

LEAST_EXAMPLES = 50
"""A class or joint with fewer test examples is no figure of a promotion: only its loss could be seen."""


@dataclass(frozen=True)
class Figure:
    """A figure of a candidate and of the known trainings, on the same examples. More is better.

    A measure of which less is better has its sign changed, in all values.

    Attributes:
        rule: what the figure is of.
        name: of the metric, the class or the joint.
        measure: the metric whose unit it has.
        reference: the reference's own figure.
        value: the candidate's.
        sampled: the variance of ``value`` minus the mean of the known trainings, by the examples.
        noise: what chance does to it.
        margin: what the settings say.
    """

    rule: Rule
    name: str
    measure: str
    reference: float
    value: float
    sampled: float
    noise: Noise
    margin: Margin = "auto"

    @property
    def change(self) -> float:
        """The candidate's figure minus the mean of the known trainings."""
        return self.value - float(self.noise.share)

    def low(self, rate: float) -> float:
        """Return the pessimistic end of the change."""
        return self.change - float(self.noise.room(self.change, self.sampled, rate))

    def allowed(self, figures: int, rate: float) -> float:
        """Return the margin: the number that is set, or the smallest that can be shown."""
        if self.margin != "auto":
            return self.margin
        return float(self.noise.margin(missed(figures, main=self.rule == "main"), rate))

    def more_trainings(self, figures: int, rate: float) -> int:
        """Return how many more known trainings would show it, if all else stayed; 0 if none would."""
        known = self.noise.trainings
        for trainings in range(known + 1, MOST_TRAININGS + 1):
            noise = replace(self.noise, trainings=trainings)
            shown = replace(self, noise=noise, sampled=self.sampled * (1 + 1 / trainings) / (1 + 1 / known))
            if shown.low(rate) >= -shown.allowed(figures, rate):
                return trainings - known
        return 0


class ModelCost(NamedTuple):
    """What a model costs, counted: bytes of its parameters, multiply-adds for one example."""

    bytes: int
    operations: int


def checks_of(
    figures: Sequence[Figure], costs: tuple[ModelCost, ModelCost], settings: PromotionSettings
) -> list[Check]:
    """Return what every rule that compares says.

    Args:
        figures: of the candidate, beside the known trainings.
        costs: of the reference and of the candidate.
        settings: the rules.
    """
    before, after = costs
    return [
        *(_judged(figure, len(figures), settings.rate / NIGHTS) for figure in figures),
        _not_larger("size", "parameters", "bytes", before.bytes, after.bytes, settings.size),
        _not_larger(
            "operations", "one example", "multiply-adds", before.operations, after.operations, settings.operations
        ),
    ]


def is_better(figures: Sequence[Figure], settings: PromotionSettings) -> bool:
    """Return whether the metric that counts is significantly better, so that the candidate becomes the reference."""
    rate = settings.rate / NIGHTS
    return any(
        figure.rule == "main" and figure.change > float(figure.noise.beyond(figure.sampled, rate)) for figure in figures
    )


def detects(checks: Sequence[Check]) -> str:
    """Return the margins in words: of the metric that counts, and the widest of a class or joint."""
    main = [check for check in checks if check.rule == "main"]
    parts = [check for check in checks if check.rule in ("class", "joint")]
    said = [_size_text(check.measure, check.margin or 0.0) for check in main]
    if parts:
        widest = max(parts, key=lambda check: check.margin or 0.0)
        said.append(f"{_size_text(widest.measure, widest.margin or 0.0)} in a single {widest.rule}")
    return f"margins: {'; '.join(said)}" if said else ""


def _judged(figure: Figure, figures: int, rate: float) -> Check:
    """Judge a figure, in words."""
    change, margin, low = figure.change, figure.allowed(figures, rate), figure.low(rate)
    refused = change < -float(figure.noise.beyond(figure.sampled, rate / figures))
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
    words = {
        "refused": "; worse beyond chance",
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
        more_trainings=0 if refused or shown else figure.more_trainings(figures, rate),
        message=said + words["refused" if refused else "shown" if shown else "open"],
    )


def _size_text(measure: str, size: float) -> str:
    return change_text(measure, size).removeprefix("+")


def _not_larger(rule: Rule, name: str, unit: str, before: int, after: int, allowed: float) -> Check:
    share = after / before - 1 if before else 0.0
    refused = share > allowed
    word = f"{100 * share:+.1f} %, and at most {100 * allowed:+g} % is allowed" if share else "the same"
    message = f"{rule}, {name}: {after:,} {unit} vs {before:,} of the reference: {word}"
    return Check(rule=rule, name=name, before=before, after=after, refused=refused, message=message)


def export_checks(exports: Sequence[ExportedFile]) -> list[Check]:
    """Return what the exports say: each must give the answers of the model that was judged."""
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
