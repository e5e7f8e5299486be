"""Further trainings of a flow: the trials of a search, and other seeds that decide a promotion.

Each is a separate run in the store, and has an entry in the ledger.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from podline.base.errors import PodlineError, one_line
from podline.base.figures import duration
from podline.base.plurals import plural
from podline.base.progress import Reporter
from podline.compare.known import next_trainings
from podline.ledger.recording import Notes, recorded
from podline.settings import machine as settings
from podline.stages.from_recipe import evaluation_spec
from podline.stages.specs import PromoteResult, PromoteSpec, TrainResult, TrainSpec
from podline.store.contract import Store
from podline.tasks.run import Night
from podline.tasks.shown import stage_listener
from podline.tasks.stages import evaluate, promote, train


def train_trial(store: Store, spec: TrainSpec) -> TrainResult:
    """Train a trial of a search.

    Raises:
        PodlineError: the error of the training.
    """
    with _noted(store, spec) as notes:
        result = replace(train, about=spec.run)(spec, notes)
        notes.dropped = result.reused
    return result


@contextlib.contextmanager
def _noted(store: Store, spec: TrainSpec) -> Iterator[Notes]:
    """Yield the notes of a training; its data set is protected from deletion during the body."""
    reporter = Reporter("ledger", stage_listener("ledger"))
    with (
        store.using([spec.dataset_folder]),
        recorded(store, spec.recipe.name, "flow", reporter, flow_run=str(flow_run.id or "")) as notes,
    ):
        notes.planned(spec.recipe, settings.load(), spec.strategy)
        yield notes


def decided(night: Night, asked: PromoteSpec, judged: PromoteResult, seconds: float) -> PromoteResult:
    """Train other seeds as far as needed and allowed by ``asked.rules``; return the final decision on a model.

    For an undecided model, these are seeds of the reference. For a first champion, these are seeds of the champion, to
    measure the spread between seeds before the next model is trained. The next flow run trains those that are missing.

    Args:
        night: the night of the model.
        asked: the spec of the promotion.
        judged: the first decision.
        seconds: duration of training and evaluating the model.
    """
    ends, left = time.monotonic() + 60 * asked.rules.seed_minutes, asked.rules.seeds
    if judged.promoted and not judged.reference:
        others = next_trainings(night.store, judged.run, night.strategy, left)
        _train(night.store, [*others], seconds, ends, "would measure the spread between seeds")
        return judged
    while missing := min(judged.more_trainings, left):
        seeds = [*itertools.islice(next_trainings(night.store, judged.reference, night.strategy), missing)]
        trained = _train(night.store, seeds, seconds, ends, "would decide the promotion")
        judged, left = promote(asked, night) if trained else judged, left - missing if trained == missing else 0
    return judged


def _train(store: Store, trainings: Sequence[TrainSpec], seconds: float, ends: float, aim: str) -> int:
    """Train specs that differ in their seeds, until the time ``ends``; return the number of trainings."""
    for trained, training in enumerate(trainings):
        left = plural(len(trainings) - trained, "more training")
        if time.monotonic() + seconds > ends:
            get_run_logger().info(
                "%s %s; the next training takes about %s, more than is left of promotion.seed_minutes; the next flow "
                "run of the recipe begins with it",
                left,
                aim,
                duration(seconds),
            )
            return trained
        seconds = _trained(store, training, f"{left} {aim}")
    return len(trainings)


def _trained(store: Store, training: TrainSpec, aim: str) -> float:
    """Train and evaluate one more seed; return its seconds.

    A failure of this training must not fail the run of the model.
    """
    started, seed = time.monotonic(), f"seed {training.recipe.seed}"
    get_run_logger().info("training %s with %s as run %s; %s", training.recipe.name, seed, training.run, aim)
    try:
        with _noted(store, training) as notes:
            trained = replace(train, about=seed)(training, notes)
            replace(evaluate, about=seed)(evaluation_spec(training, trained), notes).require_sane()
    except PodlineError as error:
        cause = one_line(error)
        get_run_logger().warning("the spread between seeds is measured without run %s: %s", training.run, cause)
    return time.monotonic() - started
