"""The stages of the flow with the training left out: their artifacts are a line of text, made in no time.

Files in the root ask a stage for what a test needs, as its docstring says.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from metrics import evaluation_line, train_result

from podline.base.errors import ArtifactError, PreemptedError, PrunedError
from podline.base.progress import Reporter
from podline.data.versions.fingerprint import effective, fingerprint, memory_of, source_of
from podline.documents.champions import Candidate, champion, crown
from podline.documents.log_writers import MetricsLog
from podline.documents.manifest import Manifest, dataset_folder, publish_manifest
from podline.documents.metric import Metric
from podline.documents.metrics_log import METRICS
from podline.stages.base import Result, Spec
from podline.stages.completed import complete
from podline.stages.specs import (
    SPEC,
    ConvertResult,
    ConvertSpec,
    EvaluateResult,
    EvaluateSpec,
    PromoteResult,
    PromoteSpec,
    ReportResult,
    ReportSpec,
    TrainResult,
    TrainSpec,
    ValidateResult,
    ValidateSpec,
)
from podline.stages.table import CONVERT, EVALUATE, LR_FIND, PROMOTE, REPORT, TRAIN, VALIDATE
from podline.stages.tools import LearningRateResult, LearningRateSpec
from podline.store import digests
from podline.store.opening import open_store
from podline.training.decisions import Pruner


def ran(root: str) -> list[str]:
    """The stages that did their work, in order; those that were found are not among them."""
    file = Path(root, "ran")
    return file.read_text().split() if file.exists() else []


def _note(spec: Spec, name: str, line: object) -> None:
    """Add a line to a file beside the store, which in a folder is in the store itself."""
    file = open_store(spec.root).beside / name
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as notes:
        notes.write(f"{line}\n")


def _note_run(spec: Spec, stage: str) -> None:
    """Notes that a stage runs; as long as there is a file ``hold-STAGE``, it gets no further.

    A stage that is held has started a process in a session of its own, and says so by a file ``held-STAGE``.
    """
    _note(spec, "ran", stage)
    hold = Path(spec.root, f"hold-{stage}")
    if hold.exists():
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        Path(spec.root, f"held-{stage}").touch()
    while hold.exists():
        time.sleep(0.05)


def _leave(spec: Any, result: Result, files: dict[str, bytes]) -> None:
    store = open_store(spec.root)
    for name, content in files.items():
        store.publish_bytes(f"{spec.folder}/{name}", content, replace=True)
    complete(store, spec.folder, spec, result, [f"{spec.folder}/{name}" for name in files])


def train(spec: TrainSpec, reporter: Reporter) -> TrainResult:
    """Its weights are a number that the next training changes, if the test asks for that by a file."""
    _note_run(spec, "train")
    reporter.progress(1, 1, "steps", {"loss": 0.5})
    changed = Path(spec.root, "next-weights")
    weights = changed.read_bytes() if changed.exists() else b"weights"
    result = trained(spec, weights)
    open_store(spec.root).publish_json(f"{spec.folder}/{SPEC}", spec.model_dump(mode="json"), replace=True)
    _leave(spec, result, {"weights": weights})
    return result


def train_trial(spec: TrainSpec, reporter: Reporter) -> TrainResult:
    """Four evaluations, of which only the rate says how good they are."""
    store = open_store(spec.root)
    error = abs(math.log10(spec.recipe.schedule.learning_rate) + 2) / 10
    pruner = Pruner(spec.pruning, STEPS, ())
    with MetricsLog(store.local(f"{spec.folder}/{METRICS}")) as log:
        log.cut(checked=False)
        for step in range(STEPS // 4, STEPS + 1, STEPS // 4):
            evaluation = evaluation_line(step, error, accuracy=1 - error, examples=1000)
            log.write(evaluation)
            pruner.decide(evaluation)
            if pruner.reason:
                raise PrunedError(pruner.reason)
    return train(spec, reporter)


def trained(spec: TrainSpec, weights: bytes) -> TrainResult:
    return train_result(spec, digests.of_bytes(weights), loss=0.5)


STEPS = 12


def train_in_steps(spec: TrainSpec, reporter: Reporter) -> TrainResult:
    """Its weights are the steps that were taken, in order; every fourth is a checkpoint, and so is the last at SIGTERM.

    A file ``at-6`` in the root has it do once, at step 6, what the file says: ``hang``, ``die``, or raise an error
    (``InvalidArgumentError: what it says``). As long as there is a file ``hold``, it gets no further than to step 6.
    Its process is noted in ``at-work`` before and after each step.
    """
    _note_run(spec, "train")
    store, checkpoint = open_store(spec.root), f"{spec.folder}/checkpoint"
    steps = json.loads(store.read_bytes(checkpoint)) if store.exists(checkpoint) else []
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
    reporter.pace(0.3)
    while len(steps) < STEPS:
        _note(spec, "at-work", os.getpid())
        if len(steps) == 6 and not asked and Path(spec.root, "hold").exists():
            reporter.progress(len(steps), STEPS, "steps")
            time.sleep(0.1)
            continue
        _act_at(spec, len(steps))
        steps.append(len(steps))
        time.sleep(0.3)
        _note(spec, "at-work", os.getpid())
        if asked or len(steps) % 4 == 0:
            store.publish_bytes(checkpoint, json.dumps(steps).encode(), replace=True)
        if asked:
            raise PreemptedError(f"asked to end at step {len(steps)}")
        reporter.progress(len(steps), STEPS, "steps")
    weights = json.dumps(steps).encode()
    result = trained(spec, weights)
    _leave(spec, result, {"weights": weights})
    return result


def _act_at(spec: TrainSpec, step: int) -> None:
    wanted = Path(spec.root, f"at-{step}")
    if not wanted.exists():
        return
    act = wanted.read_text()
    wanted.unlink()
    if act == "hang":
        signal.pause()
    if act == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    kind, _, message = act.partition(": ")
    raise type(kind, (Exception,), {})(message)


def evaluate(spec: EvaluateSpec, reporter: Reporter) -> EvaluateResult:
    """Fails, or finds a model that fails its check, as long as the test asks for that by a file."""
    _note_run(spec, "evaluate")
    if Path(spec.root, "fail-evaluation").exists():
        raise ArtifactError("not what it was")
    figures = f"figures of {spec.weights_sha256}".encode()
    result = EvaluateResult(
        run=spec.run,
        dataset=spec.dataset,
        examples=20,
        metrics={"top1": Metric(value=0.5, low=0.4, high=0.6)},
        untrained=0.1,
        evaluation_sha256=digests.of_bytes(figures),
        failure="no better than guessing" if Path(spec.root, "learn-nothing").exists() else "",
    )
    _leave(spec, result, {"evaluation.json": figures})
    return result


def report(spec: ReportSpec, reporter: Reporter) -> ReportResult:
    _note_run(spec, "report")
    files = {"report.html": b"<p>fine</p>", "report.md": b"# It went well"}
    html, markdown = (f"{spec.folder}/{name}" for name in files)
    result = ReportResult(html=html, markdown=markdown)
    _leave(spec, result, files)
    return result


def promote(spec: PromoteSpec, reporter: Reporter) -> PromoteResult:
    """It becomes the champion, whatever it is; but not before so many runs are evaluated as a file ``known`` says."""
    _note_run(spec, "promote")
    store, root = open_store(spec.root), Path(spec.root)
    before, wanted = champion(store, spec.recipe), root / "known"
    evaluated = len([*root.glob("runs/*/stages/evaluate.json")])
    missing = max(0, int(wanted.read_text()) - evaluated) if before and wanted.exists() else 0
    headline = f"{before.run} stays" if before else ""
    if not missing:
        candidate = Candidate(spec.run, spec.weights_sha256, spec.dataset, spec.fingerprint)
        headline = f"champion number {crown(store, spec.recipe, candidate, before, 'promoted').number}"
    content = b"undecided" if missing else b"promoted"
    result = PromoteResult(
        run=spec.run,
        recipe=spec.recipe,
        promoted=not missing,
        reference=before.run if before else "",
        measure="top1",
        doubt=f"what would decide: {missing} more" if missing else "",
        more_trainings=missing,
        headline=headline,
        promotion_sha256=digests.of_bytes(content),
    )
    _leave(spec, result, {"promotion.json": content})
    return result


def convert(spec: ConvertSpec, reporter: Reporter) -> ConvertResult:
    """Its only shard is the list of the source's files, without Beam, which takes seconds to import."""
    _note_run(spec, "convert")
    store = open_store(spec.root)
    files = source_of(effective(spec, store), store).files
    folder = dataset_folder(spec.dataset, fingerprint(spec, files))
    data = {"dataset": spec.dataset, "fingerprint": fingerprint(spec, files)}
    counts: dict[str, Any] = {"read": 70, "written": 70, "quarantined": 0, "splits": {"train": 50, "test": 20}}
    result = ConvertResult(**data, **counts, folder=folder, bytes=1, shards_written=1, shards_reused=0)
    store.publish_json(f"{folder}/shard", {"files": repr(files)}, replace=True)
    nothing: dict[str, Any] = dict.fromkeys(("fields", "class_names", "splits", "quarantined"), ())
    nothing |= {"converter": {}, "read": 0, "written": 0}
    manifest = Manifest(**data, **nothing, record_length=1, source=files)
    complete(store, folder, spec, result, [f"{folder}/shard", publish_manifest(store, manifest)])
    memory_of(effective(spec, store), store).remember(result.fingerprint)
    return result


def validate(spec: ValidateSpec, reporter: Reporter) -> ValidateResult:
    _note_run(spec, "validate")
    result = ValidateResult(records=70, shards=1, duplicates_within=0)
    complete(open_store(spec.root), spec.folder, spec, result, [f"{spec.folder}/shard"])
    return result


def find_learning_rate(spec: LearningRateSpec, reporter: Reporter) -> LearningRateResult:
    _note_run(spec, "lr-find")
    found: dict[str, Any] = {"learning_rate": 0.1, "floor": (0.05, 0.2), "blow_up": None, "reasons": ("because",)}
    found |= {"recipe_rate": spec.recipe.schedule.learning_rate, "steps": spec.steps}
    result = LearningRateResult(folder=spec.folder, chart=f"{spec.folder}/chart.png", **found)
    _leave(spec, result, {"chart.png": b"a picture"})
    return result


FLOW_STAGES = {
    stage.name: replace(stage, run_at=f"small_flow_stages:{stage.name}")
    for stage in (CONVERT, VALIDATE, TRAIN, EVALUATE, PROMOTE, REPORT)
}
STEPPING_STAGES = {**FLOW_STAGES, "train": replace(FLOW_STAGES["train"], run_at="small_flow_stages:train_in_steps")}
SEARCH_STAGE = replace(LR_FIND, run_at="small_flow_stages:find_learning_rate")
TRIAL_STAGE = replace(TRAIN, run_at="small_flow_stages:train_trial")
