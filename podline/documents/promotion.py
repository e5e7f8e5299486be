"""``promotion.json`` in a run's folder: the verdict, and the result of each rule."""

from __future__ import annotations

from typing import Literal

from podline.base.frozen import Frozen, omitted
from podline.base.plurals import first_few, plural
from podline.documents.reading import read_model
from podline.store.contract import Store

PROMOTION = "promotion.json"
SAVED_MODEL, TFLITE = "model/saved_model", "model/model.tflite"
# Number of checks whose messages are shown.
_NAMED = 3

Verdict = Literal["promoted", "refused", "undecided"]


class Check(Frozen):
    """The result of one promotion rule for one metric, class, joint or file.

    Attributes:
        rule: name of the rule.
        name: name of the metric, class, joint or file.
        measure: the metric in whose unit the values are; empty for a rule without a statistical test.
        before: the reference's value, for a test the mean over the trainings of its recipe; for an exported file, the
            largest allowed difference; else None.
        after: the candidate's value; None if there is none.
        promoted_to: the lowest change that is good enough. A change is negative if the candidate is worse, also for a
            metric whose lower values are better. None for a rule without a statistical test.
        refused_from: a candidate whose change is below this value is significantly worse.
        margin: a recipe that is worse by this value gets promoted within a year with at most the probability
            ``promotion.rate``.
        variances: variance of the change due to the choice of examples; variance between trainings due to random
            answers; variance between trainings due to the seed.
        refused: whether the rule refuses the model.
        warned: whether the rule only warns, where it would otherwise refuse the model or leave it undecided.
        shown: whether the value is shown to be good enough, or the rule only warns.
        better: whether the value is significantly better.
        more_trainings: for an undecided check, the number of further trainings of the reference's recipe that lead to a
            decision at the same change; else, or if no number does, 0.
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
        """Return whether the test is undecided: the value is neither shown to be good enough, nor refused."""
        return not (self.refused or self.shown)

    @property
    def what(self) -> str:
        """Return the tested metric, class, joint or file as text."""
        return f"{self.rule} {self.name}" if self.rule in ("class", "joint") else self.name


class ExportedFile(Frozen):
    """An exported format of the model, and how far its outputs differ from the evaluated model's.

    Attributes:
        form: ``keras``, ``savedmodel`` or ``tflite``.
        name: store name of the file or folder.
        images: number of images with which the outputs were compared.
        difference: largest difference between the outputs; None if an output is missing or not finite.
        allowed: largest allowed difference.
        problem: why ``difference`` is None; empty if it is not.
    """

    form: Literal["keras", "savedmodel", "tflite"]
    name: str
    images: int
    difference: float | None
    allowed: float
    problem: str = ""

    @property
    def same(self) -> bool:
        """Return whether the outputs are close enough to the evaluated model's."""
        return self.difference is not None and self.difference <= self.allowed


class ComparedExamples(Frozen):
    """The test examples used to compare two models with different data; neither model was trained on any of them.

    A *fresh* example is in the candidate's test split only.

    Attributes:
        before: the reference's data set, with its fingerprint.
        after: the candidate's data set, with its fingerprint.
        shared: number of examples in both test splits.
        fresh: number of fresh examples.
        all_count: whether the models are compared on the fresh examples too, because too few examples are shared.
        measure: the main metric as text.
        shared_before: the reference's main metric on shared examples with its interval; None without fresh examples.
        shared_after: the candidate's main metric on shared examples; None without fresh examples.
        fresh_before: the reference's main metric on fresh examples; None without fresh examples.
        fresh_after: the candidate's main metric on fresh examples; None without fresh examples.
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

    @property
    def count(self) -> int:
        """The number of compared examples."""
        return self.shared + self.fresh if self.all_count else self.shared

    def sentence(self) -> str:
        """Return the result as text."""
        count = plural(self.count, "test example")
        if self.all_count:
            return f"compared on {count} of {self.after}; {self.shared:,} of these are also in {self.before}"
        text = f"compared on the {count} that are in both {self.before} and {self.after}"
        if self.fresh_before is None or self.fresh_after is None:
            return text
        figures = f"{self.measure} {self.fresh_after} vs {self.fresh_before} of the reference"
        return f"{text}; on the {self.fresh:,} that are only in {self.after}: {figures}"

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return a row for the shared and one for the fresh examples: description, number, ``after``, ``before``."""
        rows = [
            ("also in the reference's data", self.shared, self.shared_after, self.shared_before),
            ("not in the reference's data", self.fresh, self.fresh_after, self.fresh_before),
        ]
        return [(what, f"{count:,}", after, before) for what, count, after, before in rows if after and before]


class Promotion(Frozen):
    """The decision about a promotion.

    Attributes:
        run: the run of the model.
        recipe: the recipe whose champion the model would become.
        weights_sha256: sha256 of the model's weights.
        reference: the run with which the model was compared, or empty.
        champion: the run of the champion at that time, or empty.
        known: the runs with which the model was compared: the reference, and further trainings of its recipe.
        better: whether the main metric is significantly better, so that the model, if promoted, is the new reference.
        measure: name of the main metric.
        thresholds: the changes of a metric at which a model is promoted or refused, as text; empty if not compared.
        promoted: whether the model became the champion, or would have without ``--dry-run``.
        anyway: whether the promotion was called with ``--anyway``; rules may have refused the model.
        undecided: whether no rule refuses the model, but a rule is undecided, so that it did not become the champion.
        number: number of the entry in the champion's history; 0 if the model is not promoted.
        checks: results of all rules: first refusals, then undecided rules, then warnings, then the others.
        exports: the exported formats of the model.
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
    compared: ComparedExamples | None = omitted(None)

    @property
    def refusals(self) -> tuple[Check, ...]:
        """The rules that refuse the model."""
        return tuple(check for check in self.checks if check.refused)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The messages of the first three refusals, and a text with the names of further refusals, if there are any."""
        shown, more = self.refusals[:_NAMED], self.refusals[_NAMED:]
        names = [", ".join(check.name for check in more)]
        return (*(check.message for check in shown), *(f"also refused because of {each}" for each in names if each))

    @property
    def verdict(self) -> Verdict:
        """The decision in one word."""
        return "promoted" if self.promoted else "undecided" if self.undecided else "refused"

    @property
    def open(self) -> tuple[Check, ...]:
        """The rules that are undecided."""
        return tuple(check for check in self.checks if check.undecided)

    def headline(self) -> str:
        """Return the decision in one line."""
        over = f" over {self.champion}" if self.champion else ", the first one"
        if self.promoted:
            word = "champion against the rules" if self.anyway and (self.refusals or self.open) else "champion"
            text = f"{self.run} is the {word} of {self.recipe} (number {self.number}){over}"
            return f"{text}, and the new reference: it is better than {self.reference}" if self.better else text
        stays = f"; {self.champion} stays" if self.champion else ""
        return f"{self.run} is {self.verdict} as champion of {self.recipe}{stays}"

    def doubt(self) -> str:
        """Return the undecided tests, and what would decide them, in one line; empty for a decided promotion."""
        if not self.undecided:
            return ""
        named = first_few([check.message for check in self.open], _NAMED, "; ")
        known, more = plural(len(self.known), "training"), self.more_trainings()
        advice = "more test examples, a wider margin, or another seed of this model may decide"
        if more:
            advice = f"{plural(more, 'more training')} of the reference's recipe would decide"
        doubt = f"A change between the two limits cannot be decided with {known} of the reference's recipe"
        return f"{named}. {doubt}: {advice}"

    def more_trainings(self) -> int:
        """Return how many more trainings of the reference's recipe would lead to a decision; 0 if no number would."""
        wanted = [check.more_trainings for check in self.open] if self.undecided else []
        return max(wanted, default=0) if all(wanted) else 0

    def floor(self, figure: float, *, higher_is_better: bool) -> float | None:
        """Return the value of the main metric at which the model would be refused; None without a comparison.

        Args:
            figure: the model's main metric on all test examples; the comparison may have used only some of them.
            higher_is_better: whether higher values of the metric are better.
        """
        for check in self.checks:
            if check.rule == "main" and check.refused_from is not None:
                limit = check.refused_from if higher_is_better else -check.refused_from
                return figure - ((check.after or 0.0) - (check.before or 0.0)) + limit
        return None

    def lines(self) -> list[str]:
        """Return the decision as lines: the headline, the reasons for a refusal or no decision, and the notes."""
        return [
            self.headline(),
            *self.reasons,
            *filter(None, (self.doubt(), *self.notes)),
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes: the main metric unless it is refused or undecided, warnings, compared examples, thresholds."""
        main = (check.message for check in self.checks if check.rule == "main" and check.shown and not check.refused)
        warnings = (f"warning: {check.message}" for check in self.checks if check.warned)
        compared = self.compared.sentence() if self.compared else ""
        return tuple(filter(None, (*main, *warnings, compared, self.thresholds)))


def read_promotion(store: Store, folder: str) -> Promotion | None:
    """Return the decision about the promotion of a run's model; None without one.

    Raises:
        StoreError: the file cannot be read.
        ArtifactError: the file is damaged.
    """
    name = f"{folder}/{PROMOTION}"
    if not store.exists(name):
        return None
    return read_model(store, name, Promotion, "a decision on a promotion", "promote it again")
