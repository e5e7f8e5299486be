"""The stage that decides on a promotion, as data. Importing this module registers it with the other stages."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from podline import champions
from podline.progress import Reporter
from podline.promotion.document import read_promotion
from podline.recipes.promotion_settings import PromotionSettings
from podline.stages import STAGES, Result, RunSpec, Stage, find_completed
from podline.storage import open_store

# Part of a decision's identity: raise it when the same figures may be decided on in another way.
PROMOTION_VERSION = 1


class PromoteSpec(RunSpec):
    """An evaluated model that may become the champion of its recipe.

    Attributes:
        recipe: whose champion.
        weights_sha256: the model's identity.
        evaluation_sha256: the evaluation's.
        rules: those of the recipe.
        anyway: whatever the rules say.
        reason: what a person says, for the history.
        again: judge it even if that was done before.
    """

    recipe: str
    weights_sha256: str
    evaluation_sha256: str
    rules: PromotionSettings = PromotionSettings()
    anyway: bool = False
    reason: str = ""
    again: bool = False
    promotion_version: int = PROMOTION_VERSION

    beside_the_point = frozenset({"root", "again"})


class PromoteResult(Result):
    """The decision; ``promotion.json`` has all of it.

    Attributes:
        run: whose model was judged.
        recipe: whose champion it would be.
        promoted: whether it became that.
        against: the run that was the champion; empty if there was none.
        measure: the metric that counts.
        refusals: what each rule says that refuses it, a line each.
        headline: the decision in a line.
        promotion_sha256: of ``promotion.json``.
    """

    run: str
    recipe: str
    promoted: bool
    against: str
    measure: Literal["top1", "ap"]
    refusals: tuple[str, ...] = Field(default=())
    headline: str
    promotion_sha256: str


def find(spec: PromoteSpec, reporter: Reporter) -> PromoteResult | None:
    """An earlier decision about the same model by the same rules, if it still stands.

    A promotion stands, whatever has become of the champion since: what a person rolled back is not promoted again by
    the next night that finds the run done. A refusal stands as long as the champion is the same.
    """
    store = open_store(spec.root)
    found: PromoteResult | None = None if spec.again else find_completed(store, spec.folder, spec, reporter)
    if found is None:
        return None
    entries = champions.history(store, spec.recipe)
    if found.promoted:
        return found if any(entry.run == spec.run for entry in entries) else None
    decision = read_promotion(store, spec.folder)
    now = entries[-1].run if entries else ""
    if decision is None or decision.against != now:
        return None
    # A file that was broken may have been made anew.
    return None if any(check.rule == "export" for check in decision.refusals) else found


PROMOTE = Stage(
    "promote", PromoteSpec, PromoteResult, "podline.promotion.promote:promote", "podline.promotion.stage:find"
)
STAGES[PROMOTE.name] = PROMOTE
