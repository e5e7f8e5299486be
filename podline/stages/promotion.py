"""Spec and result of the promotion stage."""

from __future__ import annotations

import operator

from pydantic import Field

from podline.documents.promotion import Verdict
from podline.recipes.promotion_settings import PromotionSettings
from podline.stages.specs import Result, RunSpec, Where

# Part of a decision's identity: raise it when the same figures may be decided on in another way. What was promoted
# under an earlier number is judged anew, also if a person took it back; so other margins alone do not raise it.
PROMOTION_VERSION = 2


class PromoteSpec(RunSpec):
    """An evaluated model that may become the champion of its recipe.

    Attributes:
        recipe: whose champion.
        weights_sha256: the model's identity.
        evaluation_sha256: the evaluation's.
        rules: those of the recipe.
        code: installed rules → a digest of their code.
        anyway: whatever the rules say.
        reason: what a person says, for the history.
        again: judge it even if that was done before.
    """

    recipe: str
    weights_sha256: str
    evaluation_sha256: str
    rules: PromotionSettings = PromotionSettings()
    code: dict[str, str] = Field(default_factory=dict, exclude_if=operator.not_)
    anyway: bool = False
    reason: str = ""
    again: bool = False
    promotion_version: int = PROMOTION_VERSION

    not_hashed = frozenset({"root", "again", "rules.seeds", "rules.seed_minutes"})


class PromoteResult(Result):
    """The decision; ``promotion.json`` has all of it.

    Attributes:
        run: whose model was judged.
        recipe: whose champion it would be.
        promoted: whether it became that.
        against: the reference that it was compared with; empty if there was none.
        measure: the metric that counts.
        refusals: what each rule says that refuses it, a line each.
        doubt: what leaves it undecided and what would decide, in a line; empty if it is promoted or refused.
        more_trainings: of the reference's recipe that would decide about a model that is undecided; 0 if none would.
        detects: the margins, in a line; empty if it was compared with nothing.
        floor: the metric that counts, of the reference's known trainings, less the margin; None if there is none.
        compared: what the two were compared on, where their data differ, in a line; empty elsewhere.
        headline: the decision in a line.
        promotion_sha256: of ``promotion.json``.
    """

    run: str
    recipe: str
    promoted: bool
    against: str
    measure: str
    refusals: tuple[str, ...] = Field(default=())
    doubt: str = ""
    more_trainings: int = 0
    detects: str = ""
    floor: float | None = None
    compared: str = ""
    headline: str
    promotion_sha256: str

    @property
    def verdict(self) -> Verdict:
        """Return the decision in a word."""
        return "promoted" if self.promoted else "undecided" if self.doubt else "refused"

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what is said beside the decision, a line each."""
        return tuple(filter(None, (self.compared, self.detects)))

    @property
    def reason(self) -> str:
        """Return what refuses the model or leaves it undecided, in a line; empty if nothing does."""
        more = f"; {len(self.refusals) - 1} more in the report" if len(self.refusals) > 1 else ""
        return self.doubt or "".join(self.refusals[:1]) + more

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return the decision, and every reason."""
        return [self.headline, *self.refusals, *filter(None, (self.doubt, *self.notes))]
