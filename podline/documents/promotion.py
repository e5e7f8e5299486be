"""``promotion.json`` in a run's folder: the verdict, and what each rule said."""

from __future__ import annotations

from typing import Literal

from podline.errors import ArtifactError
from podline.frozen import Frozen
from podline.store.contract import Store

PROMOTION = "promotion.json"
SAVED_MODEL, TFLITE = "model/saved_model", "model/model.tflite"

Rule = Literal[
    "guessing", "export", "comparable", "main", "class", "joint", "calibration", "guard", "size", "operations"
]


class Check(Frozen):
    """What a rule said of one thing.

    Attributes:
        rule: which.
        name: of what: the metric, the class, the joint, the file.
        before: the figure that it is held against: of the champion, or the mean over it and its peers; None where the
            rule compares nothing.
        after: the figure of the model that is judged; likewise.
        chance: how likely a figure so bad is for a model that is as good, raised for how many things are looked at;
            None where nothing is left to chance.
        refused: whether the rule refuses the model.
        message: all this in words.
    """

    rule: Rule
    name: str
    before: float | None = None
    after: float | None = None
    chance: float | None = None
    refused: bool
    message: str


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


class Promotion(Frozen):
    """A decision.

    Attributes:
        run: whose model was judged.
        recipe: whose champion it would be.
        weights_sha256: the model's identity.
        against: the run whose model was the champion; empty if there was none.
        peers: the runs that the champion is known to be like, itself first: see docs/promotion.md.
        measure: the metric that counts.
        rate: that the rules were held to.
        promoted: whether it became the champion.
        anyway: whether a person said so in spite of the rules.
        number: of the entry in the champion's history; 0 if it was refused.
        checks: every rule's, those that refuse first.
        exports: the model's published forms.
        milliseconds: of one image on the CPU of the machine that decided, median; shown, and never judged by.
        milliseconds_before: likewise of the champion; None if there was none.
    """

    run: str
    recipe: str
    weights_sha256: str
    against: str
    peers: tuple[str, ...]
    measure: str
    rate: float
    promoted: bool
    anyway: bool = False
    number: int = 0
    checks: tuple[Check, ...]
    exports: tuple[ExportedFile, ...]
    milliseconds: float
    milliseconds_before: float | None = None

    @property
    def refusals(self) -> tuple[Check, ...]:
        """What speaks against it."""
        return tuple(check for check in self.checks if check.refused)

    def headline(self) -> str:
        """The decision in a line."""
        over = f" over {self.against}" if self.against else ", the first one"
        if self.promoted:
            word = "champion in spite of the rules" if self.anyway and self.refusals else "champion"
            return f"{self.run} is the {word} of {self.recipe} (number {self.number}){over}"
        against = f"; {self.against} stays" if self.against else ""
        return f"{self.run} is refused as champion of {self.recipe}{against}"

    def lines(self) -> list[str]:
        """The decision in words: the headline, and what refuses it, or that nothing does."""
        return [self.headline(), *(check.message for check in self.refusals)]


def read_promotion(store: Store, folder: str) -> Promotion | None:
    """The decision about a run's model; None if there was none.

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
        raise ArtifactError(f"{store.where(name)} is no decision on a promotion ({error}); promote it again") from error
