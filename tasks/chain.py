"""From raw archive to report: the stages that every training flow runs, in order."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from prefect.runtime import flow_run

from podline import settings
from podline.stages import EvaluateSpec, ReportSpec, TrainSpec, ValidateSpec, manifest_sha256
from podline.storage import open_store
from tasks.bucket_credentials import bucket_credentials
from tasks.outcome import TimeSheet, publish_artifacts, summary
from tasks.parameters import TrainingParameters
from tasks.promoting import promotion_of
from tasks.sources import conversion_of
from tasks.stages import convert, evaluate, promote, report, train, validate


def named(form: type[TrainingParameters]) -> str:
    """The name of the flow run that begins: its recipe and the moment at which it was due."""
    given = flow_run.parameters.get("parameters", {})
    due = flow_run.scheduled_start_time or datetime.now(UTC)
    return f"{form.model_validate(given).recipe} {due:%Y-%m-%d %H:%M:%S}"


@bucket_credentials()
def from_archive_to_report(parameters: TrainingParameters) -> dict[str, Any]:
    """Convert, validate, train, evaluate, report.

    Args:
        parameters: what to train, on which data, and where it goes.

    Returns:
        See :func:`tasks.outcome.summary`.
    """
    machine = settings.load()
    root = open_store(parameters.root or machine.root).uri
    recipe = parameters.training_recipe()
    strategy = parameters.strategy or machine.strategy
    times = TimeSheet()

    converted = times.run(convert, conversion_of(parameters, root, machine.workers))
    times.run(
        validate,
        ValidateSpec(
            root=root,
            dataset=recipe.dataset,
            fingerprint=converted.fingerprint,
            manifest_sha256=manifest_sha256(open_store(root), converted.folder),
        ),
    )
    training = TrainSpec(root=root, recipe=recipe, fingerprint=converted.fingerprint, strategy=strategy)
    trained = times.run(train, training)
    evaluated = times.run(
        evaluate,
        EvaluateSpec(
            root=root,
            run=trained.run,
            dataset=recipe.dataset,
            fingerprint=converted.fingerprint,
            weights_sha256=trained.weights_sha256,
            batch_size=recipe.evaluation_batch_size,
            strategy=strategy,
        ),
    )
    promoted = times.run(promote, promotion_of(training, trained, evaluated)) if parameters.promote else None
    reported = times.run(
        report,
        ReportSpec(
            root=root,
            run=trained.run,
            dataset=recipe.dataset,
            fingerprint=converted.fingerprint,
            evaluation_sha256=evaluated.evaluation_sha256,
            promotion_sha256=promoted.promotion_sha256 if promoted else "",
            command=parameters.command(root),
        ),
    )
    publish_artifacts(root, times, converted, trained, evaluated, reported, promoted)
    return summary(root, times, evaluated, reported, promoted)
