"""Records a run in the ledger: keeps notes during the run, and writes one entry at its end.

Every way to start a run wraps the work in :func:`recorded`. So every run writes one entry, however the run ends, or
none if no stage did any work. If the process is killed, the next run on the same machine writes the entry, see
:mod:`podline.ledger.killed`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from podline.base import stopwatch
from podline.base.entry_points import require_extra
from podline.base.errors import PodlineError, PreemptedError, PrunedError, one_line
from podline.base.progress import Reporter
from podline.base.stopwatch import measured
from podline.data.versions.version_changes import change_between, in_words
from podline.documents.any_evaluation import EVALUATION, AnyEvaluation
from podline.documents.completion import read_completion
from podline.documents.ledger_entry import (
    AnnealingSummary,
    Data,
    DataChange,
    Entry,
    Outcome,
    PromotionSummary,
    RetrySummary,
    Split,
    StageTime,
    Started,
    State,
    Training,
    WaitingTime,
)
from podline.documents.manifest import Manifest, read_manifest
from podline.documents.metrics_log import METRICS, AnnealingLine, MetricsLines
from podline.documents.origins import ORIGIN, keep_origin, read_origin
from podline.ledger import ledger, provenance
from podline.ledger.killed import Unfinished, noted, training_lines, write_killed
from podline.ledger.time_spent import Attempt, time_spent
from podline.ledger.tracking import track
from podline.recipes import registry
from podline.recipes.durations import Part
from podline.recipes.kind_table import read_evaluation
from podline.recipes.settings import Recipe
from podline.settings.machine import Settings, flat
from podline.stages.base import Result, Spec
from podline.stages.specs import WEIGHTS, ConvertSpec, PromoteResult, ReportResult, TrainResult, TrainSpec, ValidateSpec
from podline.stages.table import TRAIN, stage_of
from podline.store import digests
from podline.store.contract import Store
from podline.tpu.tpu_log import REPAIRS, TURN, Event, read_tpu_log

# Not recorded: paths, which differ between copies of a store, URLs, which may contain a password; see environment for
# the strategy.
_LEFT_OUT = ("root", "store.cache", "strategy", "tracking", "launch")
# Sections that a training applies to its other settings; they are None afterwards.
_APPLIED = ("fit", "few")


@contextlib.contextmanager
def recorded(
    store: Store,
    recipe: str,
    way: Literal["flow", "commands"],
    reporter: Reporter,
    *,
    flow_run: str = "",
    attempt: int = 1,
    late: float = 0.0,
    started: Started = "hand",
    schedule: str = "",
) -> Iterator[Notes]:
    """Record the run in the body; yield its notes, and write them as an entry of the ledger at the end.

    Args:
        store: the store.
        recipe: name of the recipe.
        way: ``flow`` for a flow run, ``commands`` for single stages.
        reporter: warns if the entry of a failed run cannot be written.
        flow_run: Prefect's id of the flow run.
        attempt: attempt of the flow run, from 1.
        late: seconds since the time at which the run was due.
        started: what started the run.
        schedule: the deployment whose schedule made the flow run.

    Raises:
        StoreError: the notes, or the entry of a finished run, cannot be written.
    """
    write_killed(store, flow_run)
    now = time.time()
    begun = Entry(
        name="",
        state="finished",
        began=now,
        ended=now,
        way=way,
        flow_run=flow_run,
        attempt=attempt,
        started=started,
        schedule=schedule,
        recipe=recipe,
        settings={},
        code=provenance.code(),
        environment=provenance.environment(),
        waiting=WaitingTime(start=round(max(0.0, late), 3)),
    )
    with noted(store) as keep:
        notes = Notes(store, begun, reporter, keep)
        try:
            yield notes
        except BaseException as error:
            try:
                ledger.publish(notes.store, notes.ended(error))
                notes.track()
            except Exception as problem:  # the error of the body matters more
                reporter.warn(f"the ledger has no entry of this run: {one_line(problem)}")
            raise
        if not notes.dropped:
            ledger.publish(notes.store, notes.ended(None))
        notes.track()


class Notes:
    """The ledger entry of a run in progress.

    Attributes:
        store: the store of the ledger.
        entry: the entry so far.
        dropped: whether to write no entry if the run succeeds, because later stages write it or no stage did any work.
    """

    def __init__(self, store: Store, entry: Entry, reporter: Reporter, keep: Callable[[Unfinished], None]) -> None:
        self.store, self.entry, self._reporter, self._keep = store, entry, reporter, keep
        self.dropped = False
        self._started = time.monotonic()
        self._recipe: Recipe | None = None
        self._trained: TrainResult | None = None
        self._tracking = ""
        self._spans = stopwatch.spans()
        self._attempts: list[Attempt] = []
        self._stage: _CurrentStage | None = None
        self._save_notes()

    @measured("between")
    def planned(self, recipe: Recipe, machine: Settings, strategy: str) -> None:
        """Record the settings of the run.

        Raises:
            SettingsError: the library for the setting ``tracking`` is not installed.
        """
        self._tracking = machine.tracking
        if machine.tracking:
            require_extra("mlflow", f"tracking={machine.tracking}")
        kept = {name: value for name, value in flat(plain(machine)).items() if name not in _LEFT_OUT}
        self._update(
            settings={"recipe": plain(recipe), "machine": kept},
            overridden=overridden(recipe),
            seeds={"recipe": recipe.seed},
            environment=self.entry.environment.model_copy(update={"strategy": strategy}),
        )

    @measured("between")
    def asked(self, spec: Spec) -> None:
        """Record that a stage begins."""
        self._stage = _CurrentStage(stage_of(spec).name, time.monotonic(), stopwatch.spans())
        if isinstance(spec, ConvertSpec):
            self._update(seeds={**self.entry.seeds, "data": spec.seed})
        elif isinstance(spec, ValidateSpec):
            self._record_data(spec.folder, changed=False)
        elif isinstance(spec, TrainSpec):
            self._recipe = spec.recipe
            begun = {**self.entry.settings.get("recipe", {}), "init": plain(spec.recipe.init)}
            self._update(run=spec.run, settings={**self.entry.settings, "recipe": begun})
            # Compared with the previous run's data only here, after validation.
            self._record_data(spec.dataset_folder, changed=True)
        self._save_notes()

    @measured("between")
    def answered(self, spec: Spec, result: Result, seconds: float) -> None:
        """Record a stage's result.

        Args:
            spec: the stage's spec.
            result: the stage's result.
            seconds: duration of the stage in this run.
        """
        took = StageTime(seconds=round(seconds, 3), seconds_when_made=round(result.seconds, 3), reused=result.reused)
        self._update(stages={**self.entry.stages, stage_of(spec).name: took})
        self._attempted(0.0 if result.reused else result.seconds, kept=True, spans=result.spans)
        if isinstance(result, TrainResult):
            self._trained = result
            environment = self.entry.environment.model_copy(update={"devices": result.devices})
            self._update(run=result.run, environment=environment, training=self._training(result))
            self._produced_by(result)
        if isinstance(result, PromoteResult):
            self._update(promotion=PromotionSummary.model_validate(result, from_attributes=True))
        if isinstance(result, ReportResult):
            self._update(report=result.html)
        self._save_notes()

    def retried(self, stage: str, error: BaseException, delay: float) -> None:
        """Record that a stage failed and will be retried after ``delay`` seconds."""
        retry = RetrySummary(stage=stage, error=type(error).__name__, cause=one_line(error), delay=delay)
        self._update(retries=(*self.entry.retries, retry))
        self._attempted(0.0, kept=isinstance(error, PreemptedError))
        # The delay must not count as time between stages.
        spans = stopwatch.spans()
        spans["between"] = spans.get("between", 0.0) + delay
        self._stage = _CurrentStage(stage, time.monotonic() + delay, spans)
        self._save_notes()

    def ended(self, error: BaseException | None) -> Entry:
        """Complete and return the entry.

        Args:
            error: the error that ended the run; None if the run succeeded.
        """
        state, ended, self._around = _state(error), time.time(), _around(self._spans)
        self._attempted(0.0, kept=isinstance(error, PreemptedError))
        self._update(
            name=ledger.name_of(ended, self.entry.recipe, state),
            state=state,
            # Uses the monotonic duration, since the clock may have been set.
            began=ended - (time.monotonic() - self._started),
            ended=ended,
            waiting=self._waiting(),
            outcome=self._outcome(),
        )
        self._update(spent=self._spent())
        if error is not None:
            self._update(error=type(error).__name__, cause=one_line(error))
        return self.entry

    def track(self) -> None:
        """Log the run to the tracking server in the setting ``tracking``."""
        if self._tracking and self._recipe is not None:
            entry = self.ended(None) if self.dropped else self.entry
            track(self._tracking, self.store, entry, self._recipe, self._reporter)

    def _produced_by(self, result: TrainResult) -> None:
        """Record the inputs of a reused model, from its ``origin.json``; write this file for a new model."""
        origin = read_origin(self.store, result.folder) if result.reused else None
        if origin is None:
            before = self.store.find(f"{result.folder}/{ORIGIN}")
            kept = read_completion(self.store, result.folder, TRAIN.name).result
            # Another machine may have trained the run again meanwhile.
            if kept["weights_sha256"] == result.weights_sha256:
                keep_origin(self.store, result.folder, self.entry, before.version if before else "")
        else:
            self._update(settings=origin.settings, code=origin.code, environment=origin.environment)

    def _update(self, **values: Any) -> None:
        self.entry = self.entry.model_copy(update=values)

    def _record_data(self, folder: str, *, changed: bool) -> None:
        try:
            manifest = read_manifest(self.store, folder)
        except PodlineError as error:
            # If the stage needs the data, it raises the error itself.
            self._reporter.warn(f"the ledger entry does not describe the data: {one_line(error)}")
            return
        data = data_of(manifest)
        self._update(data=data.model_copy(update={"change": self._change(data)}) if changed else data)

    def _change(self, data: Data) -> DataChange | None:
        before = self._run_before()
        if before is None or before.data is None:
            return None
        change = DataChange(before=before.name, fingerprint=before.data.fingerprint)
        if before.data.dataset != data.dataset:
            return change.model_copy(update={"unknown": f"the previous run was trained on {before.data.dataset}"})
        if before.data.fingerprint == data.fingerprint:
            return change
        splits = change_between(self.store, before.data, data)
        if isinstance(splits, str):
            # The training must not fail because old data were deleted.
            return change.model_copy(update={"unknown": splits})
        told = [f"{split}: {in_words(moved)}" for split, moved in splits.items()]
        self._reporter.log(f"data compared with {before.name}: {', '.join(told) or 'the same records'}")
        return change.model_copy(update={"splits": splits})

    def _run_before(self) -> Entry | None:
        """Return the newest readable entry of the same recipe that has data, or None; warn of unreadable entries."""
        for named in ledger.names(self.store, recipe=self.entry.recipe):
            try:
                entry = ledger.read(self.store, named.name)
            except PodlineError as error:
                self._reporter.warn(f"the comparison of data ignores a ledger entry: {one_line(error)}")
                continue
            if entry.data is not None:
                return entry
        return None

    def _training(self, result: TrainResult) -> Training:
        training = Training.model_validate(result, from_attributes=True)
        if self._recipe is None or self._recipe.annealing is None:
            return training
        lines = MetricsLines(self.store.local(f"{result.folder}/{METRICS}")).rare()
        judged = [line for line in lines if isinstance(line, AnnealingLine)]
        return training.model_copy(update={"annealing": _annealing(self._recipe.annealing.energy, judged)})

    def _retry_delays(self) -> WaitingTime:
        delays = sum(retry.delay for retry in self.entry.retries)
        return self.entry.waiting.model_copy(update={"retries": round(delays, 3)})

    def _waiting(self) -> WaitingTime:
        entry, waiting = self.entry, self._retry_delays()
        if not entry.run:
            return waiting
        try:
            tpu_log = [told for told in read_tpu_log(self.store, f"runs/{entry.run}") if told.at >= entry.began]
        except PodlineError as error:
            self._reporter.warn(f"the ledger entry does not describe waiting for the TPU: {one_line(error)}")
            return waiting
        turn = sum(told.took for told in tpu_log if told.event is Event.WAIT and told.what.startswith(TURN))
        waits = sum(told.took for told in tpu_log if told.event is Event.WAIT)
        repairs = sum(told.took for told in tpu_log if told.event in REPAIRS)
        return waiting.model_copy(update={"turn": turn, "tpu": waits - turn, "repairs": repairs})

    def _save_notes(self) -> None:
        """Save the notes of the run so far, in case this process is killed."""
        now, current = time.time() - time.monotonic(), self._stage
        entry = self.entry.model_copy(update={"began": self._started + now, "waiting": self._retry_delays()})
        since = current.began + now if current else 0.0
        around = _around(self._spans)
        stage = current.stage if current else ""
        self._keep(
            Unfinished(entry=entry, attempts=tuple(self._attempts_at(now)), stage=stage, since=since, around=around)
        )

    def _attempts_at(self, offset: float) -> list[Attempt]:
        """Return the attempts so far in Unix time, which is the monotonic time plus ``offset``."""
        return [
            attempt._replace(began=attempt.began + offset, ended=attempt.ended + offset) for attempt in self._attempts
        ]

    def _attempted(self, work: float, *, kept: bool, spans: Mapping[str, float] = {}) -> None:
        if self._stage is not None:
            stage, began, before = self._stage
            around = _around(before)
            self._attempts.append(Attempt(stage, began, max(began, time.monotonic()), work, kept, spans, around))
            self._stage = None

    def _spent(self) -> dict[str, float]:
        """Return class → seconds of the run; a damaged log leaves a finished training unmeasured, a failed one lost."""
        entry = self.entry
        lines, events = training_lines(self.store, entry.run)
        # Unix times, as in the training's lines; the clock may have been set since.
        attempts = self._attempts_at(entry.ended - time.monotonic())
        return time_spent(entry.seconds, entry.waiting, attempts, lines, events, self._around)

    def _outcome(self) -> Outcome | None:
        """Return the evaluation's result, also if not better than guessing; None if missing or damaged."""
        if self._trained is None:
            return None
        folder = self._trained.folder
        name = f"{folder}/{EVALUATION}"
        weights = self.store.find(f"{folder}/{WEIGHTS}")
        if weights is None or not self.store.exists(name):
            return None
        try:
            document = read_evaluation(self.store, folder)
        except PodlineError as error:
            self._reporter.warn(f"the ledger entry has no result: {one_line(error)}")
            return None
        if document.weights_sha256 != self._trained.weights_sha256:
            return None  # from an earlier, incomplete training
        return outcome_of(document, self._trained.parameters, weights.bytes, self.store.sha256(name))


class _CurrentStage(NamedTuple):
    """A stage in progress: name, start in monotonic time, and the stopwatch's spans at the start."""

    stage: str
    began: float
    spans: Mapping[str, float]


def _around(before: Mapping[str, float]) -> dict[str, float]:
    """Return class → seconds that this process spent between stages and on the store since ``before``."""
    now = stopwatch.since(before, stopwatch.spans())
    return {kind: max(0.0, now.get(kind, 0.0)) for kind in ("between", "store")}


def data_of(manifest: Manifest) -> Data:
    """Convert a manifest to the ledger's description of a data set."""
    return Data(
        dataset=manifest.dataset,
        fingerprint=manifest.fingerprint,
        converter=manifest.converter,
        source=digests.of_json([file.model_dump(mode="json") for file in manifest.source]),
        splits={
            split.name: Split(
                records=split.records,
                sha256=split.content or digests.of_json([shard.sha256 for shard in split.shards]),
            )
            for split in manifest.splits
        },
        classes=len(manifest.class_names),
        quarantined=len(manifest.quarantined),
    )


def outcome_of(document: AnyEvaluation, parameters: int, model_bytes: int, evaluation_sha256: str) -> Outcome:
    """Convert an evaluation to the ledger's description of a result.

    Args:
        document: content of ``evaluation.json``.
        parameters: number of the model's parameters.
        model_bytes: size of the weights file in bytes.
        evaluation_sha256: checksum of the evaluation's file.
    """
    return Outcome(
        split=document.split,
        measure=document.measure,
        examples=document.examples,
        metrics=document.trained.metrics,
        untrained=document.untrained.metrics[document.measure].value,
        parts=document.parts(),
        parameters=parameters,
        model_bytes=model_bytes,
        weights_sha256=document.weights_sha256,
        evaluation_sha256=evaluation_sha256,
    )


def plain(value: Any) -> Any:
    """Convert a pydantic model to JSON with all fields, including defaults that its serializer omits."""
    if isinstance(value, BaseModel):
        return {name: plain(inner) for name, inner in value}
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def overridden(recipe: Recipe) -> dict[str, Any]:
    """Return dotted path → value of the settings that differ from the registered recipe of this name."""
    if not registry.has(recipe.name):
        return {}
    written, given = (flat(plain(each)) for each in (registry.get(recipe.name), recipe.model_copy(update={"code": {}})))
    return {
        path: value
        for path, value in given.items()
        if (_is_switched_off(path, written, given) if value is None else path not in written or written[path] != value)
    }


def _is_switched_off(path: str, written: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Return whether None replaces a value or a section, and not just a duration in another unit."""
    section, _, name = path.rpartition(".")
    if path in _APPLIED:
        return False
    # The values of a duration in all units but one are None.
    if name in Part.model_fields and any(given.get(f"{section}.{unit}") is not None for unit in Part.model_fields):
        return False
    return any(value is not None and f"{each}.".startswith(f"{path}.") for each, value in written.items())


def _state(error: BaseException | None) -> State:
    if error is None:
        return "finished"
    # A BaseException that is no Exception means an interrupt, Prefect's cancellation or an exit.
    return "failed" if isinstance(error, Exception) and not isinstance(error, PrunedError) else "cancelled"


def _annealing(of: str, judged: list[AnnealingLine]) -> AnnealingSummary | None:
    if not judged:
        return None
    return AnnealingSummary(
        of=of,
        decisions=len(judged),
        rejected=sum(not line.accepted for line in judged),
        final=judged[-1].against,
        lowest=min(line.energy for line in judged),
    )
