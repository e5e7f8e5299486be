"""Reads the data of a run's report from the store. Needs no TensorFlow."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from podline.base.progress import Reporter
from podline.documents.any_evaluation import AnyEvaluation
from podline.documents.completion import Completion, completion_name, read_completion, result_in
from podline.documents.ledger_entry import Origin
from podline.documents.manifest import Manifest, read_manifest
from podline.documents.metrics_log import (
    EVENTS,
    DecisionLine,
    EvaluationLine,
    EventLine,
    FindingLine,
    StepsLine,
    metrics_of,
    read_events,
)
from podline.documents.model_description import ModelDescription, read_description
from podline.documents.origins import read_origin
from podline.ledger.inventory.catalogue import remarks, training_of
from podline.ledger.paces import slow_training, trained_at
from podline.ledger.recording import plain
from podline.ledger.time_spent import time_of_training
from podline.recipes.kind_table import read_evaluation
from podline.recipes.settings import Recipe
from podline.report.over_nights import MOST_POINTS
from podline.report.standing import RunStanding, standing_of
from podline.stages.specs import EvaluateResult, ReportSpec, TrainResult
from podline.stages.table import CONVERT, EVALUATE, TRAIN, VALIDATE
from podline.store.contract import Store


@dataclass(frozen=True)
class RunFacts:
    """The facts about a run of any kind, and about its data.

    Attributes:
        store: the store of the run, for files that only one section needs.
        remarks: lines of text about the data set, such as differences from the official data set.
        model: the description of the model and its costs.
        steps: a sample of the lines of training steps, in order, with the last line.
        spent: class of time → seconds of the training, see :func:`podline.ledger.time_spent.time_of_training`.
        evaluations: lines of evaluations during training, in order.
        findings: lines at which a problem of the training began or ended, in order.
        decisions: decisions based on evaluations (annealing, plateau, early stop), in order.
        events: events of the run, in order.
        stages: (stage, seconds of work) for conversion, validation, training and evaluation, in order, if finished.
        slow: description of a slower training than in earlier runs; empty otherwise.
        origin: the inputs that produced the model; None without ``origin.json``.
        milliseconds: duration of a batch of one image, on the device of the evaluation; 0 if not measured.
        standing: the comparison with the reference and earlier nights.
    """

    store: Store
    spec: ReportSpec
    manifest: Manifest
    remarks: tuple[str, ...]
    recipe: Recipe
    model: ModelDescription
    training: TrainResult
    steps: tuple[StepsLine, ...]
    spent: dict[str, float]
    evaluations: tuple[EvaluationLine, ...]
    findings: tuple[FindingLine, ...]
    decisions: tuple[DecisionLine, ...]
    events: tuple[EventLine, ...]
    stages: tuple[tuple[str, float], ...]
    slow: str
    origin: Origin | None
    evaluation: AnyEvaluation
    milliseconds: float
    standing: RunStanding


def gather(store: Store, spec: ReportSpec, reporter: Reporter) -> RunFacts:
    """Read the data of a run's report; damaged files of other runs only cause warnings to ``reporter``.

    Raises:
        StoreError: a file of the run or of its data set is missing, or the ledger cannot be read.
        ArtifactError: a file is damaged, or the evaluation is not the one in the spec.
    """
    evaluation = read_evaluation(store, spec.record_folder, spec.evaluation_sha256)
    manifest = read_manifest(store, spec.dataset_folder)
    records = _records(store, spec)
    recipe = training_of(store, spec.run).recipe
    log = metrics_of(store, spec.folder)
    lines = log.rare()
    events = read_events(store.local(f"{spec.folder}/{EVENTS}"))
    training = result_in(store, spec.folder, records[TRAIN.name], TrainResult)
    origin = read_origin(store, spec.folder)
    return RunFacts(
        store=store,
        spec=spec,
        manifest=manifest,
        remarks=tuple(remarks(store, spec.dataset_folder, manifest)),
        recipe=recipe,
        model=read_description(store, spec.folder),
        training=training,
        steps=tuple(log.steps(MOST_POINTS)),
        spent=time_of_training(log, events),
        evaluations=tuple(line for line in lines if isinstance(line, EvaluationLine)),
        findings=tuple(line for line in lines if isinstance(line, FindingLine)),
        decisions=tuple(line for line in lines if isinstance(line, DecisionLine)),
        events=tuple(events),
        stages=tuple((name, float(record.result["seconds"])) for name, record in records.items()),
        slow=_slow(store, recipe, training, origin, _finished(events)),
        origin=origin,
        evaluation=evaluation,
        milliseconds=result_in(store, spec.record_folder, records[EVALUATE.name], EvaluateResult).milliseconds,
        standing=standing_of(store, spec, recipe, evaluation, _finished(events), reporter),
    )


def _slow(store: Store, recipe: Recipe, training: TrainResult, origin: Origin | None, until: float) -> str:
    if origin is None or training.examples_per_second <= 0:
        return ""
    now = trained_at(training, origin.environment)
    found = slow_training(store, recipe.name, plain(recipe), now, until)
    return f"Training was {found}." if found else ""


def _finished(events: Sequence[EventLine]) -> float:
    return events[-1].time if events else time.time()


def _records(store: Store, spec: ReportSpec) -> dict[str, Completion]:
    """Return stage → completion record; convert and validate are left out if they have none."""
    data = spec.dataset_folder
    folders = {CONVERT: data, VALIDATE: data, TRAIN: spec.folder, EVALUATE: spec.record_folder}
    return {
        stage.name: read_completion(store, folder, stage.name)
        for stage, folder in folders.items()
        if folder != data or store.exists(completion_name(folder, stage.name))
    }
