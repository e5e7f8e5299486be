"""A store with all that commands and flows leave in one, made in seconds by the stages themselves."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from raw_cifar import convert_spec, write_easy_cifar
from small_coco import publish_people
from small_dataset import validation_of

from podline.base.errors import DivergenceError
from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.champions.promote import promote
from podline.commands.models import _spec as promotion_spec
from podline.data.versions.validation import validate
from podline.data.versions.version_changes import known_records
from podline.documents.champions import roll_back
from podline.evaluation.evaluate import evaluate
from podline.ledger.inventory.invalidation import forget
from podline.ledger.ledger import entry_of
from podline.ledger.recording import Notes, recorded
from podline.recipes.durations import Duration
from podline.recipes.settings import ModelSettings, Recipe, ScheduleSettings
from podline.report.comparison_page import write
from podline.report.nights_page import write_index
from podline.report.report import report
from podline.settings.machine import Settings
from podline.stages.base import Spec
from podline.stages.specs import EvaluateSpec, ReportSpec, TrainSpec
from podline.store.opening import open_store
from podline.training.finder import find_learning_rate
from podline.training.searches import learning_rate_spec
from podline.training.train import train

RECIPE = Recipe(
    name="cifar10",
    dataset="cifar10",
    model=ModelSettings(kind="linear"),
    batch_size=20,
    duration=Duration(epochs=2),
    schedule=ScheduleSettings(kind="constant", learning_rate=0.01),
    evaluate_every=None,
)


class Finished(NamedTuple):
    """A finished store.

    Attributes:
        root: of the store.
        before: a copy of the store as it was before some stages were done again.
        specs: of the stages that are done, by the folder of their records.
    """

    root: Path
    before: Path
    specs: list[Spec]


def finished_store(folder: Path) -> Finished:
    """Two runs, each with its place in the ledger and a decision about its promotion; a night that failed; pages.

    Beside them people are converted, with their images' files, and a learning rate is searched for.
    """
    root = folder / "root"
    store = open_store(root)
    converting = convert_spec(root, write_easy_cifar(folder / "raw"))
    converted = convert(converting, silent())
    validating = validation_of(root, "cifar10", converted.fingerprint)
    specs: list[Spec] = [validating]
    for seed in (0, 1):
        with recorded(open_store(root), "cifar10", "commands", silent()) as notes:
            _done(notes, converting, converted)
            _done(notes, validating, validate(validating, silent()))
            specs += _night(
                notes,
                TrainSpec(root=str(root), recipe=_recipe(seed), fingerprint=converted.fingerprint, preflight=False),
            )
        write_index(store)
    with contextlib.suppress(DivergenceError), recorded(open_store(root), "cifar10", "flow", silent()):
        raise DivergenceError("the loss is no finite number")
    known_records(store, "cifar10", converted.fingerprint)
    publish_people(root, side=32, keep_jpeg=True)
    shutil.rmtree(root / "people")  # the images that they were made of
    searching = learning_rate_spec(store, _recipe(0), silent(), steps=20)
    find_learning_rate(searching, silent())
    runs = sorted({spec.run for spec in specs if isinstance(spec, TrainSpec)})
    write(store, [entry_of(store, run) for run in runs])
    write_index(store)
    shutil.copytree(root, folder / "before")
    _again(specs)
    write(store, [entry_of(store, run) for run in runs])
    write_index(store)
    return Finished(root, folder / "before", [*specs, searching])


def _recipe(seed: int) -> Recipe:
    return RECIPE.model_copy(update={"seed": seed})


def _done(notes: Notes, spec: Spec, result: Any) -> Any:
    notes.asked(spec)
    notes.answered(spec, result, result.seconds)
    return result


def _night(notes: Notes, spec: TrainSpec) -> list[Spec]:
    """The stages of a night after its data; answers their specs."""
    notes.planned(spec.recipe, Settings(root=spec.root), "cpu")
    trained = _done(notes, spec, train(spec, silent()))
    common = {"root": spec.root, "run": spec.run, "dataset": "cifar10", "fingerprint": spec.fingerprint}
    judging = EvaluateSpec(**common, weights_sha256=trained.weights_sha256)
    judged = _done(notes, judging, evaluate(judging, silent()))
    deciding = promotion_spec(notes.store, spec.run, (), anyway=True, reason="the only one")
    decided = _done(notes, deciding, promote(deciding, silent()))
    telling = ReportSpec(
        **common, evaluation_sha256=judged.evaluation_sha256, promotion_sha256=decided.promotion_sha256
    )
    _done(notes, telling, report(telling, silent()))
    beside = judging.model_copy(update={"split": "train"})
    evaluate(beside, silent())
    return [spec, judging, deciding.model_copy(update={"again": False}), telling, beside]


def _again(specs: list[Spec]) -> None:
    """Some stages are done again, so that there are two versions of what they left."""
    for spec in specs:
        if isinstance(spec, EvaluateSpec):
            forget(spec)
            evaluate(spec, silent())
    roll_back(open_store(specs[0].root), "cifar10", "to have two heads")
