"""``promotion.json`` in a run's folder: the verdict, and the result of each rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from podline.errors import ArtifactError
from podline.frozen import Frozen
from podline.plurals import plural
from podline.store.contract import Store

PROMOTION = "promotion.json"
SAVED_MODEL, TFLITE = "model/saved_model", "model/model.tflite"
# Figures that leave a model undecided and are named in a line.
_NAMED = 3

Verdict = Literal["promoted", "refused", "undecided"]


class Check(Frozen):
    """The result of a rule for one figure.

    Attributes:
        rule: its name.
        name: of what: the metric, the class, the joint, the file.
        measure: the metric whose unit the figures have; empty where nothing is left to chance.
        before: the figure that it is compared with: the mean over the known trainings; None where there is none.
        after: the candidate's figure.
        low: the pessimistic end of the change, for the better; None where nothing is left to chance.
        margin: by how much a promoted model may be worse.
        refused: whether the rule refuses the model.
        shown: whether the pessimistic end is within the margin.
        better: whether the figure is significantly better.
        more_trainings: how many more known trainings would show it, if all else stayed; 0 if none would.
        message: all this in words.
    """

    rule: str
    name: str
    measure: str = ""
    before: float | None = None
    after: float | None = None
    low: float | None = None
    margin: float | None = None
    refused: bool
    shown: bool = True
    better: bool = False
    more_trainings: int = 0
    message: str

    @property
    def undecided(self) -> bool:
        """Return whether the test is open: the model is neither shown to be worse nor shown to be within the margin."""
        return not (self.refused or self.shown)

    @property
    def what(self) -> str:
        """Return the subject of the test in words."""
        return f"{self.rule} {self.name}" if self.rule in ("class", "joint") else self.name


class ExportedFile(Frozen):
    """A form of the model that is published, and whether it gives the same answers.

    Attributes:
        form: ``keras``, ``savedmodel`` or ``tflite``.
        name: in the store: a file, or a folder.
        images: it was asked about.
        difference: the largest between its answers and those of the model that was judged; None if it gave none.
        allowed: what it may be.
        problem: why it gave none.
    """

    form: Literal["keras", "savedmodel", "tflite"]
    name: str
    images: int
    difference: float | None
    allowed: float
    problem: str = ""

    @property
    def same(self) -> bool:
        """Whether it may be used in place of the model."""
        return self.difference is not None and self.difference <= self.allowed


class ComparedExamples(Frozen):
    """The test examples that two models were compared on whose data differ; neither was trained on any of them.

    Attributes:
        before: the reference's data set, with its fingerprint.
        after: the candidate's.
        shared: how many are in the test splits of both.
        fresh: how many are in that of the candidate's alone.
        all_count: whether the fresh ones count as well, as too few are shared.
        measure: the metric that counts, in words.
        shared_before: the reference's figure on the shared ones, with its interval; None where there are no others.
        shared_after: the candidate's figure on them.
        fresh_before: the reference's figure on the fresh ones; None where there are none.
        fresh_after: the candidate's figure on them.
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
        """Return the whole result in words."""
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
        """Return for the shared and the fresh examples what they are, how many, and both figures."""
        rows = [
            ("that the reference's data have too", self.shared, self.shared_after, self.shared_before),
            ("new since then", self.fresh, self.fresh_after, self.fresh_before),
        ]
        return [(what, f"{count:,}", after, before) for what, count, after, before in rows if after and before]


class Promotion(Frozen):
    """A decision.

    Attributes:
        run: whose model was judged.
        recipe: whose champion it would be.
        weights_sha256: the model's identity.
        against: the reference that it was compared with; empty if there was none.
        champion: the run whose model was the champion; empty if there was none.
        known: the runs whose figures were compared with: the reference, and further trainings of its recipe.
        better: whether it was shown to be better, and so becomes the reference.
        measure: the metric that counts.
        detects: the margins, in words: which drops the test split and the known trainings can show.
        promoted: whether it became the champion.
        anyway: whether a person said so in spite of the rules.
        undecided: whether no rule refuses the model, and it did not become the champion, as not all is shown.
        number: of the entry in the champion's history; 0 if it did not become the champion.
        checks: every rule's, those that refuse first, and then those that leave the model undecided.
        exports: the model's published forms.
        milliseconds: of one image on the CPU of the machine that decided, median; shown, and never judged by.
        milliseconds_before: of the champion; None if there was none.
        compared: what the two were compared on, where their data differ; None elsewhere.
    """

    run: str
    recipe: str
    weights_sha256: str
    against: str
    champion: str = ""
    known: tuple[str, ...]
    better: bool = False
    measure: str
    detects: str = ""
    promoted: bool
    anyway: bool = False
    undecided: bool = False
    number: int = 0
    checks: tuple[Check, ...]
    exports: tuple[ExportedFile, ...]
    milliseconds: float
    milliseconds_before: float | None = None
    compared: ComparedExamples | None = Field(default=None, exclude_if=lambda compared: compared is None)

    @property
    def refusals(self) -> tuple[Check, ...]:
        """The reasons against the model."""
        return tuple(check for check in self.checks if check.refused)

    @property
    def verdict(self) -> Verdict:
        """The decision in a word."""
        return "promoted" if self.promoted else "undecided" if self.undecided else "refused"

    @property
    def open(self) -> tuple[Check, ...]:
        """The tests that leave the decision open."""
        return tuple(check for check in self.checks if check.undecided)

    def headline(self) -> str:
        """Return the decision in one line."""
        over = f" over {self.champion}" if self.champion else ", the first one"
        if self.promoted:
            word = "champion in spite of the rules" if self.anyway and (self.refusals or self.open) else "champion"
            said = f"{self.run} is the {word} of {self.recipe} (number {self.number}){over}"
            return f"{said}, and the new reference: it is better than {self.against}" if self.better else said
        stays = f"; {self.champion} stays" if self.champion else ""
        return f"{self.run} is {self.verdict} as champion of {self.recipe}{stays}"

    def doubt(self) -> str:
        """Return in one line the open tests and the action that would decide; empty if none is open."""
        if not self.undecided:
            return ""
        names, more = [check.what for check in self.open[:_NAMED]], len(self.open) - _NAMED
        named = ", ".join(names) + (f" and {more} more" if more > 0 else "")
        return f"not shown to be within the margin: {named}; {advice(self.open)}"

    def more_trainings(self) -> int:
        """Return how many more trainings of the reference's recipe would decide; 0 if none would."""
        wanted = [check.more_trainings for check in self.open] if self.undecided else []
        return max(wanted, default=0) if all(wanted) else 0

    def floor(self, figure: float, *, higher_is_better: bool) -> float | None:
        """Return the figure at which the model would be worse by the margin; None if nothing was compared.

        Args:
            figure: the metric that counts, on all test examples; what was compared may be a part of them.
            higher_is_better: whether that metric is better where it is higher.
        """
        for check in self.checks:
            if check.rule == "main" and check.margin is not None:
                margin = check.margin if higher_is_better else -check.margin
                return figure - ((check.after or 0.0) - (check.before or 0.0) + margin)
        return None

    def lines(self) -> list[str]:
        """Return the decision in words: the headline, the reasons for refusal or doubt, and the notes."""
        return [
            self.headline(),
            *(check.message for check in self.refusals),
            *filter(None, (self.doubt(), *self.notes)),
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the lines beside the decision: what was compared on, and the margins."""
        compared = self.compared.sentence() if self.compared else ""
        return tuple(filter(None, (compared, self.detects)))


def advice(checks: Sequence[Check]) -> str:
    """Return what would show the figures that leave a model undecided."""
    wanted = [check.more_trainings for check in checks]
    if wanted and all(wanted):
        return f"{plural(max(wanted), 'more training')} of the reference's recipe would decide"
    return "more test examples, a wider margin, or a training with another seed would decide"


def read_promotion(store: Store, folder: str) -> Promotion | None:
    """Return the decision about a run's model; None if there was none.

    Raises:
        StoreError: it cannot be read.
        ArtifactError: it is damaged.
    """
    name = f"{folder}/{PROMOTION}"
    if not store.exists(name):
        return None
    try:
        return Promotion.model_validate(store.read_json(name))
    except ValueError as error:
        raise ArtifactError(
            f"{store.where(name)} is not a decision on a promotion ({error}); promote it again"
        ) from error
