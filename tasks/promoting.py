"""What a flow asks of the stage that decides on a promotion, and how it tells of the answer."""

from __future__ import annotations

from podline.promotion.stage import PromoteResult, PromoteSpec
from podline.stages import EvaluateResult, TrainResult, TrainSpec


def promotion_of(training: TrainSpec, trained: TrainResult, evaluated: EvaluateResult) -> PromoteSpec:
    """The promotion of a run that was trained and evaluated, by its recipe's rules."""
    return PromoteSpec(
        root=training.root,
        run=trained.run,
        dataset=training.recipe.dataset,
        fingerprint=training.fingerprint,
        recipe=training.recipe.name,
        weights_sha256=trained.weights_sha256,
        evaluation_sha256=evaluated.evaluation_sha256,
        rules=training.recipe.promotion,
    )


def outcome(promoted: PromoteResult | None) -> str:
    """The outcome in a line, for the table of key figures."""
    if promoted is None:
        return "not asked for"
    return "; ".join((promoted.headline, *promoted.refusals))
