"""``promotion.json`` in a run's folder: the verdict, and the result of each rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from podline.base.frozen import Frozen
from podline.base.plurals import first_few, plural
from podline.documents.reading import read_model
from podline.store.contract import Store

PROMOTION = "promotion.json"
SAVED_MODEL, TFLITE = "model/saved_model", "model/model.tflite"
# Number of figures whose messages are listed.
_NAMED = 3

Verdict = Literal["promoted", "refused", "undecided"]


class Check(Frozen):
    """The result of a rule for one figure.

    Attributes:
        rule: name of the rule.
        name: name of the metric, class, joint or file.
        measure: the metric whose unit the figures have; empty for a rule without chance.
        before: the figure to compare with: the mean over the known trainings, or None.
        after: the candidate's figure.
        promoted_to: the change up to which a figure is good enough; negative for a loss, whatever the measure; None for
            a rule without chance.
        refused_from: the change from which a figure is worse beyond chance.
        margin: the loss that gets promoted within a year with at most the probability of the settings.
        variances: variance of the change by the examples, of one training by the luck of answers, and by the seed.
        refused: whether the rule refuses the model.
        warned: whether it would refuse the model or leave it undecided, but only warns.
        shown: whether the figure is good enough.
        better: whether the figure is better beyond chance.
        more_trainings: number of further known trainings that would decide, all else being equal; 0 if none would.
        message: description of the result.
    """

    rule: str
    name: str
    measure: str = ""
    before: float | None = None
    after: float | None = None
    promoted_to: float | None = None
    refused_from: float | None = None
    margin: float | None = None
    variances: tuple[float, float, float] | None = None
    refused: bool
    warned: bool = False
    shown: bool = True
    better: bool = False
    more_trainings: int = 0
    message: str

    @property
    def undecided(self) -> bool:
        """Return whether the test is open: the figure is neither worse beyond chance, nor good enough."""
        return not (self.refused or self.shown)

    @property
    def what(self) -> str:
        """Return the subject of the test as text."""
        return f"{self.rule} {self.name}" if self.rule in ("class", "joint") else self.name


class ExportedFile(Frozen):
    """A published form of the model, and whether it gives the same answers.

    Attributes:
        form: ``keras``, ``savedmodel`` or ``tflite``.
        name: name in the store of a file or folder.
        images: number of images that were compared.
        difference: largest difference from the evaluated model's answers; None without finite answers.
        allowed: largest allowed difference.
        problem: reason for missing answers.
    """

    form: Literal["keras", "savedmodel", "tflite"]
    name: str
    images: int
    difference: float | None
    allowed: float
    problem: str = ""

    @property
    def same(self) -> bool:
        """Return whether the form may replace the model."""
        return self.difference is not None and self.difference <= self.allowed


class ComparedExamples(Frozen):
    """The test examples that compare two models with different data; neither model was trained on any of them.

    Attributes:
        before: the reference's data set, with its fingerprint.
        after: the candidate's data set, with its fingerprint.
        shared: number of examples in both test splits.
        fresh: number of examples in the candidate's test split only.
        all_count: whether the fresh examples count as well, because too few are shared.
        measure: the main metric as text.
        shared_before: the reference's figure on shared examples, with its interval; None without fresh examples.
        shared_after: the candidate's figure on shared examples.
        fresh_before: the reference's figure on fresh examples; None without fresh examples.
        fresh_after: the candidate's figure on fresh examples.
    """

    before: str
    after: str
    shared: int
    fresh: int
    all_count: bool
    measure: str
    shared_before: str | None = None
    shared_after: str | None = None
    fresh_before: str | None = None
    fresh_after: str | None = None

    def sentence(self) -> str:
        """Return the result as text."""
        if self.all_count:
            count = plural(self.shared + self.fresh, "test example")
            return f"compared on {count} of {self.after}: {self.shared:,} of them are in {self.before} as well"
        shared = plural(self.shared, "test example")
        said = f"compared on the {shared} that both {self.before} and {self.after} have"
        if self.fresh_before is None or self.fresh_after is None:
            return said
        figures = f"{self.measure} {self.fresh_after} vs {self.fresh_before} of the reference"
        return f"{said}; on the {self.fresh:,} that only the second has: {figures}"

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return description, number and both figures for the shared and the fresh examples."""
        rows = [
            ("that the reference's data have too", self.shared, self.shared_after, self.shared_before),
            ("new since then", self.fresh, self.fresh_after, self.fresh_before),
        ]
        return [(what, f"{count:,}", after, before) for what, count, after, before in rows if after and before]


class Promotion(Frozen):
    """The decision about a promotion.

    Attributes:
        run: the run of the model.
        recipe: the recipe whose champion it would be.
        weights_sha256: the model's identity.
        reference: the run that it was compared with, or empty.
        champion: the run of the champion at that time, or empty.
        known: the runs whose figures were compared: the reference, and further trainings of its recipe.
        better: whether it is shown to be better, and so becomes the reference.
        measure: name of the main metric.
        thresholds: the changes from which a figure is promoted and refused, as text.
        promoted: whether it became the champion.
        anyway: whether a person promoted it against the rules.
        undecided: whether no rule refuses the model, but a rule is open, so that it did not become the champion.
        number: number of the entry in the champion's history; 0 without one.
        checks: results of all rules: first those that refuse, then those that leave the model undecided, then warnings.
        exports: the model's published forms.
        compared: the compared examples if the data differ, else None.
    """

    run: str
    recipe: str
    weights_sha256: str
    reference: str
    champion: str = ""
    known: tuple[str, ...]
    better: bool = False
    measure: str
    thresholds: str = ""
    promoted: bool
    anyway: bool = False
    undecided: bool = False
    number: int = 0
    checks: tuple[Check, ...]
    exports: tuple[ExportedFile, ...]
    compared: ComparedExamples | None = Field(default=None, exclude_if=lambda compared: compared is None)

    @property
    def refusals(self) -> tuple[Check, ...]:
        """The rules that refuse the model."""
        return tuple(check for check in self.checks if check.refused)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The messages of the rules that refuse the model: the main figure's, and the first others."""
        shown, more = self.refusals[:_NAMED], self.refusals[_NAMED:]
        names = [", ".join(check.name for check in more)]
        return (*(check.message for check in shown), *(f"refused for {each} too" for each in names if each))

    @property
    def verdict(self) -> Verdict:
        """The decision in one word."""
        return "promoted" if self.promoted else "undecided" if self.undecided else "refused"

    @property
    def open(self) -> tuple[Check, ...]:
        """The rules that leave the decision open."""
        return tuple(check for check in self.checks if check.undecided)

    def headline(self) -> str:
        """Return the decision in one line."""
        over = f" over {self.champion}" if self.champion else ", the first one"
        if self.promoted:
            word = "champion against the rules" if self.anyway and (self.refusals or self.open) else "champion"
            said = f"{self.run} is the {word} of {self.recipe} (number {self.number}){over}"
            return f"{said}, and the new reference: it is better than {self.reference}" if self.better else said
        stays = f"; {self.champion} stays" if self.champion else ""
        return f"{self.run} is {self.verdict} as champion of {self.recipe}{stays}"

    def doubt(self) -> str:
        """Return the open tests and the deciding action in one line; empty if none is open."""
        if not self.undecided:
            return ""
        named = first_few([check.message for check in self.open], _NAMED, "; ")
        known = f"with {plural(len(self.known), 'known training')} of the reference's recipe"
        return f"{named}. Between the two limits nothing can be decided {known}: {advice(self.open)}"

    def more_trainings(self) -> int:
        """Return the number of further trainings of the reference's recipe that would decide; 0 if none would."""
        wanted = [check.more_trainings for check in self.open] if self.undecided else []
        return max(wanted, default=0) if all(wanted) else 0

    def floor(self, figure: float, *, higher_is_better: bool) -> float | None:
        """Return the figure from which the model would be refused; None without a comparison.

        Args:
            figure: the main metric on all test examples; only a part of them may have been compared.
            higher_is_better: whether higher values of the metric are better.
        """
        for check in self.checks:
            if check.rule == "main" and check.refused_from is not None:
                limit = check.refused_from if higher_is_better else -check.refused_from
                return figure - ((check.after or 0.0) - (check.before or 0.0)) + limit
        return None

    def lines(self) -> list[str]:
        """Return the decision as lines: the headline, the reasons for refusal or doubt, and the notes."""
        return [
            self.headline(),
            *self.reasons,
            *filter(None, (self.doubt(), *self.notes)),
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes on the decision: the main figure, warnings, the compared examples, and the thresholds."""
        main = (check.message for check in self.checks if check.rule == "main" and check.shown and not check.refused)
        warnings = (f"warning: {check.message}" for check in self.checks if check.warned)
        compared = self.compared.sentence() if self.compared else ""
        return tuple(filter(None, (*main, *warnings, compared, self.thresholds)))


def advice(checks: Sequence[Check]) -> str:
    """Return an action that would decide about the open figures."""
    wanted = [check.more_trainings for check in checks]
    if wanted and all(wanted):
        return f"{plural(max(wanted), 'more training')} of the reference's recipe would decide"
    return "more test examples, a wider margin, or another seed of this model may decide"


def read_promotion(store: Store, folder: str) -> Promotion | None:
    """Return the decision about a run's model, or None.

    Raises:
        StoreError: the file cannot be read.
        ArtifactError: the file is damaged.
    """
    name = f"{folder}/{PROMOTION}"
    if not store.exists(name):
        return None
    return read_model(store, name, Promotion, "a decision on a promotion", "promote it again")
