"""A complete training run for any kind of recipe, from raw data to report.

    podline run sample --root podline-root
    podline run images --source photos --root podline-root
    podline run coco_pose --source coco --root podline-root

The stages are convert → validate → train → evaluate → promote → report. Complete results of earlier runs are verified
and reused; an interrupted stage resumes where it stopped.
"""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State

from podline.stages.from_recipe import evaluation_spec, promotion_spec, report_spec, validation_spec
from podline.stages.table import CONVERT
from podline.tasks.artifacts import ChainResults, published
from podline.tasks.forms import TrainingForm
from podline.tasks.nights import later_night, pause_if_hopeless, run_name
from podline.tasks.run import described, needless, opened
from podline.tasks.shown import stage_listener
from podline.tasks.sources import conversion
from podline.tasks.stages import convert, evaluate, promote, report, train, validate
from podline.tasks.stops import close_tasks, one_line_failures
from podline.tasks.trainings import decided


@flow(
    name="training",
    flow_run_name=run_name(TrainingForm, described),
    # The body checks the parameters, and reports a problem in one line.
    validate_parameters=False,
    on_failure=[pause_if_hopeless],
    on_crashed=[close_tasks, pause_if_hopeless],
)
@one_line_failures
def training(parameters: TrainingForm) -> dict[str, Any] | State[Any]:
    """Run all stages of a training, from raw data to report.

    Args:
        parameters: The recipe, the data and the store.
    """
    later = later_night()
    if later is not None:
        return needless(later)
    with opened(parameters) as night:
        data = convert(conversion(night.form, night.store, night.machine, stage_listener(CONVERT.name)), night)
        validate(validation_spec(night.store, data.dataset, data.fingerprint), night)
        plan = night.training(data.fingerprint)
        trained = train(plan, night)
        night.follow("train", trained.run)
        judging = evaluation_spec(plan, trained)
        evaluated = evaluate(judging, night)
        night.follow("evaluate", trained.run)
        verdict = None
        if night.form.promote and not evaluated.failure:
            asked = promotion_spec(plan, trained, evaluated)
            verdict = decided(night, asked, promote(asked, night), trained.seconds + evaluated.seconds)
            night.follow("promote", trained.run)
        page = report(report_spec(night.store, judging, evaluated.evaluation_sha256, night.command), night)
        night.follow("report", trained.run)
        return published(night, ChainResults(data, trained, evaluated, verdict, page))
