"""Trains further seeds of the champion's recipe in a flow, until a model's promotion is decided."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from podline import settings
from podline.errors import PodlineError, one_line
from podline.figures import duration
from podline.ledger.recording import recorded
from podline.plurals import plural
from podline.progress import Reporter
from podline.promotion.trainings import next_trainings
from podline.stages.from_recipe import evaluation_spec
from podline.stages.specs import PromoteResult, PromoteSpec, TrainSpec
from podline.store.contract import Store
from podline.tasks.night import Night
from podline.tasks.runs.run_log import stage_listener
from podline.tasks.stages import evaluate, promote, train


def decided(night: Night, asked: PromoteSpec, judged: PromoteResult, seconds: float) -> PromoteResult:
    """Return the decision on a model after as many further seeds as needed and allowed by rules and minutes.

    The next flow run finds the model still undecided, and continues.

    Args:
        night: the night of the model.
        asked: the spec of the promotion.
        judged: the first decision.
        seconds: duration of training and evaluating the model.
    """
    ends = time.monotonic() + 60 * asked.rules.seed_minutes
    missing = judged.more_trainings
    seeds, trained = next_trainings(night.store, judged.against, night.strategy) if missing else iter(()), 0
    for training in itertools.islice(seeds, asked.rules.seeds):
        if time.monotonic() + seconds > ends:
            _tell_left(missing, seconds, asked.rules.seed_minutes)
            break
        seconds = _known(night.store, training, missing)
        trained, missing = trained + 1, missing - 1
        if not missing:
            judged, trained = promote(asked, night), 0
            missing = judged.more_trainings
            if not missing:
                break
    return promote(asked, night) if trained else judged


def _known(store: Store, training: TrainSpec, missing: int) -> float:
    """Train and evaluate one more seed as a separate run; return its seconds.

    A failure of this training must not fail the run of the model.
    """
    started, seed = time.monotonic(), f"seed {training.recipe.seed}"
    reporter = Reporter("ledger", stage_listener("ledger"))
    get_run_logger().info(
        "training %s with %s as run %s; %s would decide the promotion",
        training.recipe.name,
        seed,
        training.run,
        plural(missing, "more training"),
    )
    try:
        with (
            store.using([training.dataset_folder]),
            recorded(store, training.recipe.name, "flow", reporter, flow_run=str(flow_run.id or "")) as notes,
        ):
            notes.planned(training.recipe, settings.load(), training.strategy)
            trained = replace(train, about=seed)(training, notes)
            replace(evaluate, about=seed)(evaluation_spec(training, trained), notes).require_sane()
    except PodlineError as error:
        get_run_logger().warning("%s is not a known training: %s", training.run, one_line(error))
    return time.monotonic() - started


def _tell_left(missing: int, seconds: float, minutes: float) -> None:
    get_run_logger().info(
        "%s would decide the promotion; the next takes about %s, more than is left of promotion.seed_minutes=%g; "
        "the next run of the recipe continues",
        plural(missing, "more training"),
        duration(seconds),
        minutes,
    )
