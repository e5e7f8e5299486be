"""CIFAR-10, CIFAR-100, MNIST and the drawn sample: from raw archive to report.

    podline run sample --root podline-root

Convert → validate → train → evaluate → report. What an earlier run did and what is still whole is found, verified and
used again; what broke off goes on where it was.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from podline import settings
from podline.stages import ConvertSpec, EvaluateSpec, ReportSpec, TrainSpec, ValidateSpec, manifest_sha256
from podline.storage import open_store
from tasks.outcome import TimeSheet, publish_artifacts, summary
from tasks.parameters import CifarParameters
from tasks.sources import source_of
from tasks.stages import convert, evaluate, report, train, validate


def run_name() -> str:
    """A run's name: its recipe and the moment at which it was due."""
    given = flow_run.parameters.get("parameters", {})
    due = flow_run.scheduled_start_time or datetime.now(UTC)
    return f"{CifarParameters.model_validate(given).recipe} {due:%Y-%m-%d %H:%M:%S}"


@flow(name="cifar-training", flow_run_name=run_name, persist_result=True, result_serializer="json")
def cifar_training(parameters: CifarParameters) -> dict[str, Any]:
    """From raw archive to report.

    Args:
        parameters: What to train, on which data, and where it goes.
    """
    machine = settings.load()
    root = open_store(parameters.root or machine.root).uri
    recipe = parameters.training_recipe()
    strategy = parameters.strategy or machine.strategy
    times = TimeSheet()

    converted = times.run(
        convert,
        ConvertSpec(
            root=root,
            dataset=recipe.dataset,
            source=source_of(parameters, root),
            workers=parameters.workers or machine.workers,
            beam_options=parameters.beam_options,
        ),
    )
    times.run(
        validate,
        ValidateSpec(
            root=root,
            dataset=recipe.dataset,
            fingerprint=converted.fingerprint,
            manifest_sha256=manifest_sha256(open_store(root), converted.folder),
        ),
    )
    trained = times.run(
        train, TrainSpec(root=root, recipe=recipe, fingerprint=converted.fingerprint, strategy=strategy)
    )
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
    reported = times.run(
        report,
        ReportSpec(
            root=root,
            run=trained.run,
            dataset=recipe.dataset,
            fingerprint=converted.fingerprint,
            evaluation_sha256=evaluated.evaluation_sha256,
            command=parameters.command(root),
        ),
    )
    publish_artifacts(root, times, converted, trained, evaluated, reported)
    return summary(root, times, evaluated, reported)
