"""Gathers all that a report tells, from the store. Needs no TensorFlow."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from podline.documents.any_evaluation import EVALUATION, AnyEvaluation
from podline.documents.completion import completion_name, local_artifact, read_completion
from podline.documents.initial_weights import InitialWeights, read_initial_weights
from podline.documents.ledger_entry import Origin
from podline.documents.manifest import Manifest, read_manifest
from podline.documents.metrics_log import (
    EVENTS,
    METRICS,
    AnnealingLine,
    DecisionLine,
    EvaluationLine,
    EventLine,
    FindingLine,
    StepsLine,
    read_events,
    read_metrics,
)
from podline.documents.model_description import ModelDescription
from podline.documents.origins import read_origin
from podline.errors import ArtifactError
from podline.inventory.catalogue import conversion_of, remarks, training_of
from podline.kinds.table import read_evaluation
from podline.ledger.paces import slow_training, trained_at
from podline.ledger.recording import plain
from podline.models.descriptions import describe_run
from podline.progress import Reporter
from podline.recipes.settings import Recipe
from podline.reporting.standing import RunStanding, standing_of
from podline.stages.specs import ReportSpec, TrainResult
from podline.stages.table import CONVERT, EVALUATE, TRAIN, VALIDATE, stage_named
from podline.store.contract import Store
from podline.tpu.tpu_log import TpuLogEntry, read_tpu_log


@dataclass(frozen=True)
class RunFacts:
    """A run, of whichever kind, and the data it used.

    Attributes:
        store: where the run is; a section reads from it what it alone shows.
        spec: what the report was asked for.
        manifest: the data set.
        remarks: what a user of the data set should know beside it.
        recipe: what was trained.
        lacked_champion: whether it was to go on from its recipe's champion, and there was none.
        model: what the model is made of and costs.
        training: the training stage's own answer.
        steps: stretches of training steps, in order.
        evaluations: evaluations during training, in order.
        findings: what was not right with the training, as it began and ended, in order.
        decisions: what was decided by these evaluations, in order.
        events: what happened to the run, in order.
        tpu: what happened to the TPU, in order; empty for a run that used none.
        stages: (stage, seconds of work) for every stage that is done, in order.
        stage_sections: (heading, lines) of each installed stage that has a section.
        slow: whether training was slower than in the runs before; empty if not.
        initial_weights: what its training took from a file; None if it took nothing.
        origin: what the model was produced by; None if the run does not tell.
        evaluation: the figures, of whichever kind the run is.
        standing: beside the champion and the nights before.
    """

    store: Store
    spec: ReportSpec
    manifest: Manifest
    remarks: tuple[str, ...]
    recipe: Recipe
    lacked_champion: bool
    model: ModelDescription
    training: TrainResult
    steps: tuple[StepsLine, ...]
    evaluations: tuple[EvaluationLine, ...]
    findings: tuple[FindingLine, ...]
    decisions: tuple[DecisionLine, ...]
    events: tuple[EventLine, ...]
    tpu: tuple[TpuLogEntry, ...]
    stages: tuple[tuple[str, float], ...]
    stage_sections: tuple[tuple[str, list[str]], ...]
    slow: str
    initial_weights: InitialWeights | None
    origin: Origin | None
    evaluation: Any
    standing: RunStanding

    @property
    def rejected(self) -> frozenset[int]:
        """The steps whose state annealing went back from."""
        return frozenset(line.step for line in self.decisions if isinstance(line, AnnealingLine) and not line.accepted)


def gather(store: Store, spec: ReportSpec, reporter: Reporter) -> RunFacts:
    """Read everything that the report on a run needs; warn ``reporter`` of damage in other runs.

    Raises:
        StoreError: a file of the run or of its data set is not there.
        ArtifactError: one is not what it should be, or the evaluation is not the one that the spec names.
    """
    evaluation = _evaluation(store, spec)
    manifest = read_manifest(store, spec.dataset_folder)
    trained = read_completion(store, spec.folder, "train")
    asked = training_of(store, spec.run)
    recipe = asked.recipe
    lines = read_metrics(local_artifact(store, spec.folder, "train", f"{spec.folder}/{METRICS}"))
    events = read_events(store.local(f"{spec.folder}/{EVENTS}"))
    training = TrainResult.model_validate(trained.result)
    origin = read_origin(store, spec.folder)
    return RunFacts(
        store=store,
        spec=spec,
        manifest=manifest,
        remarks=tuple(remarks(manifest, conversion_of(store, spec.dataset_folder))),
        recipe=recipe,
        lacked_champion=asked.lacked_champion,
        model=describe_run(store, asked, manifest),
        training=training,
        steps=tuple(line for line in lines if isinstance(line, StepsLine)),
        evaluations=tuple(line for line in lines if isinstance(line, EvaluationLine)),
        findings=tuple(line for line in lines if isinstance(line, FindingLine)),
        decisions=tuple(line for line in lines if isinstance(line, DecisionLine)),
        events=tuple(events),
        tpu=read_tpu_log(store, spec.folder),
        stages=tuple(_stage_seconds(store, spec)),
        stage_sections=tuple(_stage_sections(store, spec)),
        slow=_slow(store, recipe, training, origin, _finished(events)),
        initial_weights=read_initial_weights(store, spec.folder) if recipe.init else None,
        origin=origin,
        evaluation=evaluation,
        standing=standing_of(store, spec, recipe, evaluation, _finished(events), reporter),
    )


def _slow(store: Store, recipe: Recipe, training: TrainResult, origin: Origin | None, until: float) -> str:
    if origin is None or training.examples_per_second <= 0:
        return ""
    now = trained_at(training, origin.environment)
    found = slow_training(store, recipe.name, plain(recipe), now, until=until)
    return f"Training was {found}." if found else ""


def _finished(events: Sequence[EventLine]) -> float:
    """When training ended."""
    return events[-1].time if events else time.time()


def _evaluation(store: Store, spec: ReportSpec) -> AnyEvaluation:
    name = f"{spec.record_folder}/{EVALUATION}"
    evaluation = read_evaluation(store, spec.record_folder)
    found = store.sha256(name)
    if found != spec.evaluation_sha256:
        raise ArtifactError(
            f"{store.where(name)} has sha256 {found[:12]}… vs {spec.evaluation_sha256[:12]}… that the report is for; "
            "evaluate the run again"
        )
    return evaluation


def _stage_seconds(store: Store, spec: ReportSpec) -> Iterator[tuple[str, float]]:
    """Yield what each stage took when it did its work, which may have been on an earlier day."""
    data = spec.dataset_folder
    places = [(CONVERT, data), (VALIDATE, data), (TRAIN, spec.folder), (EVALUATE, spec.record_folder)]
    for stage, folder in places:
        if store.exists(completion_name(folder, stage.name)):
            yield stage.name, float(read_completion(store, folder, stage.name).result["seconds"])


def _stage_sections(store: Store, spec: ReportSpec) -> Iterator[tuple[str, list[str]]]:
    """Yield the heading and the lines of each installed stage that has a section."""
    for name in spec.sections:
        stage, record = stage_named(name), read_completion(store, spec.record_folder, name)
        yield stage.section, stage.result.model_validate(record.result).lines(store.where)
