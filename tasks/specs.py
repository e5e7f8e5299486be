"""What each stage of a night is given."""

from __future__ import annotations

from podline.progress import Reporter
from podline.stages.completed import manifest_sha256
from podline.stages.from_recipe import pace_spec, training_spec
from podline.stages.promotion import PromoteResult, PromoteSpec
from podline.stages.specs import (
    ConvertResult,
    EvaluateResult,
    ReportSpec,
    TrainResult,
    TrainSpec,
    ValidateSpec,
)
from podline.stages.table import TRAIN
from podline.tasks.night import Night
from podline.tasks.runs.run_log import stage_listener
from podline.tasks.stages import pace


def validation_of(night: Night, data: ConvertResult) -> ValidateSpec:
    """Return the validation of a converted data set."""
    return ValidateSpec(
        root=night.store.uri,
        dataset=data.dataset,
        fingerprint=data.fingerprint,
        manifest_sha256=manifest_sha256(night.store, data.folder),
    )


def training_of(night: Night, data: ConvertResult) -> TrainSpec:
    """Return the training on a data set, as long as fits into the minutes that were asked for."""
    tell = Reporter(TRAIN.name, stage_listener(TRAIN.name)).log
    spec = training_spec(night.store, night.recipe, data.fingerprint, night.strategy, tell)
    if not night.form.minutes:
        return spec
    fits = pace(pace_spec(spec, night.form.minutes))
    return spec.model_copy(update={"recipe": fits.of(spec.recipe)})


def promotion_of(training: TrainSpec, trained: TrainResult, evaluated: EvaluateResult) -> PromoteSpec:
    """Return the promotion of a run that was trained and evaluated, by its recipe's rules."""
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


def reporting_of(
    night: Night, data: ConvertResult, trained: TrainResult, evaluated: EvaluateResult, verdict: PromoteResult | None
) -> ReportSpec:
    """Return the report on a run that was evaluated."""
    return ReportSpec(
        root=night.store.uri,
        run=trained.run,
        dataset=data.dataset,
        fingerprint=data.fingerprint,
        evaluation_sha256=evaluated.evaluation_sha256,
        promotion_sha256=verdict.promotion_sha256 if verdict else "",
        command=night.form.command(night.store.uri),
    )
