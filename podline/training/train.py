"""The training stage: trains a model from a recipe and a data set, and records the training."""

# pyright: standard
from __future__ import annotations

import contextlib
import functools
import shutil
import time
from collections.abc import Callable, Iterator

import tensorflow as tf

from podline.base.errors import DivergenceError, PreemptedError, PrunedError, SettingsError, WorkerLostError, one_line
from podline.base.plurals import plural
from podline.base.progress import Reporter
from podline.base.stopwatch import measured
from podline.data.reader import open_split
from podline.documents import champions
from podline.documents.initial_weights import INITIAL_WEIGHTS
from podline.documents.ledger_entry import Load
from podline.documents.log_writers import EventLog, MetricsLog
from podline.documents.manifest import TEST, TRAINING, read_manifest
from podline.documents.metrics_log import EVENTS, METRICS, EarlyStopLine, EventKind, MetricsLines, StopLine
from podline.documents.model_description import DESCRIPTION, training_pflop
from podline.documents.origins import ORIGIN
from podline.ledger.load import LoadMeter
from podline.models.counts import described
from podline.recipes.own_code import require_unchanged
from podline.recipes.settings import Recipe
from podline.settings.cluster import lost as lost_host
from podline.settings.launchers import Wanted, sharing
from podline.settings.machine import cluster, load
from podline.stages.completed import complete, manifest_sha256
from podline.stages.first_cause import first_cause, forget_causes
from podline.stages.specs import ARCHITECTURE, SPEC, WEIGHTS, TrainResult, TrainSpec
from podline.stages.tools import Pace, PaceSpec, Preflight, PreflightSpec
from podline.store.contract import Store
from podline.store.folder import FolderStore, temporary_store
from podline.store.one_writer import LEASE, writer_of
from podline.store.opening import open_store
from podline.training import devices
from podline.training.checkpoints import TimeSpent, restore_newest
from podline.training.course import rehearsed, train_from
from podline.training.decisions import ending, latest, stopped_by
from podline.training.export import KERAS, export_model
from podline.training.hooks import RunClock
from podline.training.loop import stop_on_sigterm
from podline.training.mirror import Mirror, fetch_run
from podline.training.run import Run, build_trainer, configure_process
from podline.training.state import TrainingState
from podline.training.workers import Agreement

# Share of the requested minutes that is planned: rehearsed steps are up to a tenth faster than the steps of a run.
_SURE = 0.9
# Outputs of a training that later stages do not need.
_BESIDE = (EVENTS, "checkpoints/", "tensorboard/")
_EARLY_ENDS: dict[type[Exception], EventKind] = {
    PreemptedError: "preempted",
    DivergenceError: "diverged",
    PrunedError: "pruned",
}


def train(spec: TrainSpec, reporter: Reporter) -> TrainResult:
    """Train a recipe on a data set, or resume an interrupted start of the same run.

    The training writes to ``runs/<run>``: ``spec.json``; ``metrics.jsonl`` and ``events.jsonl``
    (:mod:`podline.documents.metrics_log`); ``checkpoints/`` (:mod:`podline.training.checkpoints`); ``tensorboard/``;
    and ``model/`` (:mod:`podline.training.export`, :mod:`podline.documents.model_description`). On SIGTERM the
    training saves a checkpoint and ends.

    Raises:
        StoreError: the data set does not exist, or the store cannot be written.
        SettingsError: the recipe does not fit the data set, or the run was a champion.
        ArtifactError: the data set does not match its manifest or the spec, or changed while it was read.
        OtherWriterError: another process has taken over the run.
        DivergenceError: a loss, a gradient or a weight is not finite, or the loss exploded.
        PreemptedError: SIGTERM arrived; the progress is saved.
        PrunedError: the search pruned this trial; the progress is saved.
        WorkerLostError: one of several workers did not start, or was lost.
    """
    started = time.monotonic()
    shared = open_store(spec.root)
    champions.require_never_champion(shared, spec.recipe.name, spec.run)
    shared.sweep()
    if spec.by_workers:
        workers = cluster()
        forget_causes(shared, spec.folder, workers)
        _require_shares(spec.recipe, len(workers.addresses))
        reporter.log(f"worker {workers.place} of {len(workers.addresses)}, waiting for the others")
    try:
        make_run, agreement = _opened(spec, shared, reporter)
    except WorkerLostError as error:
        raise first_cause(shared, spec.folder, cluster(), error) from None
    with stop_on_sigterm() as asked, _writing(spec, shared, agreement, reporter) as (store, lost):
        # A failure before this line leaves no file of the run.
        shared.delete(f"{spec.folder}/{ORIGIN}")
        store.publish_json(f"{spec.folder}/{SPEC}", spec.model_dump(mode="json", exclude={"pruning"}), replace=True)
        writer = writer_of(store, spec.folder)
        events = EventLog(store.local(f"{spec.folder}/{EVENTS}"), writer and writer.require)
        with MetricsLog(store.local(f"{spec.folder}/{METRICS}")) as log:
            run = make_run(
                store=store,
                log=log,
                events=events,
                reporter=reporter,
                asked_to_stop=lambda: agreement.any(asked() or lost()),
            )
            step, before = _go_on(run)
            agreement.require_same("the steps from which to continue", str(step))
            clock = RunClock(before, started)
            with _noted(spec, events, run.state):
                meter = LoadMeter()
                traces = train_from(run, step, clock)
        return _finish(run, clock, traces, meter.load())


def _require_shares(recipe: Recipe, hosts: int) -> None:
    """Check that the number of hosts divides every batch size, before any host waits for the others."""
    sizes = {phase.batch_size for _, phase in recipe.by_phase}
    if (fitting := sharing(hosts, Wanted(0, ""), sizes)) != hosts:
        raise SettingsError(
            f"strategy=workers: got {hosts} hosts and batch_size={' and '.join(map(str, sorted(sizes)))}, expected a "
            f"number of hosts that divides every batch_size; start {fitting} hosts"
        )


@contextlib.contextmanager
def _writing(
    spec: TrainSpec, store: Store, agreement: Agreement, reporter: Reporter
) -> Iterator[tuple[Store, Callable[[], bool]]]:
    """Yield the output store of this process, and a function that returns whether the training must end.

    The chief writes to the store, or to a local mirror of a bucket. Other workers write to copies of the chief's run
    folder. Thus every process reads the same files, and restores the same states.
    """
    with contextlib.ExitStack() as stack:
        output, lost = store, lambda: False
        if writer := writer_of(store, spec.folder):
            lost = functools.partial(getattr, writer, "lost")
            if writer.waited and isinstance(store, FolderStore):
                _copy_open_files(store, spec.folder)
        if agreement.chief and not isinstance(store, FolderStore):
            mirror = stack.enter_context(Mirror(store, spec.folder, load().store.patience, reporter))
            output, lost = mirror.near, lambda: mirror.lost
        agreement.meet()  # the chief's files are in the store
        if not agreement.chief:
            output = stack.enter_context(temporary_store(store, "worker"))
            fetch_run(store, spec.folder, output)
        agreement.meet()
        yield output, lost


def _copy_open_files(store: FolderStore, folder: str) -> None:
    """Replace each file of a run by a copy, because a suspended former writer may still have the old files open."""
    for name in [name for name in store.list(folder) if not name.endswith(f"/{LEASE}")]:
        with store.workspace("copy") as place, contextlib.suppress(FileNotFoundError):  # the former writer deleted it
            copy = place / "copy"
            shutil.copyfile(store.local(name), copy)
            store.publish_file(copy, name, replace=True)


def preflight(spec: PreflightSpec, reporter: Reporter) -> Preflight:
    """Rehearse the training of a recipe from its beginning; the store keeps only which checks passed.

    Raises:
        PodlineError: see :func:`train` and :func:`podline.training.rehearsal.rehearse`.
    """
    store = open_store(spec.root)
    make_run, agreement = _opened(spec, store, reporter)
    with temporary_store(store, "preflight") as near, MetricsLog(near.root / METRICS) as log:
        events = EventLog(near.root / EVENTS)
        # The store that the run's checkpoints go to; only the chief writes to the shared store.
        output = store if isinstance(store, FolderStore) and agreement.chief else near
        run = make_run(store=output, log=log, events=events, reporter=reporter, asked_to_stop=lambda: False)
        run.load_start()
        return rehearsed(run)


def pace(spec: PaceSpec, reporter: Reporter) -> Pace:
    """Rehearse the training of a recipe, and scale its duration to the available minutes.

    Raises:
        SettingsError: the minutes are too few for one step.
        PodlineError: see :func:`preflight`.
    """
    started, store = time.monotonic(), open_store(spec.root)
    whole = preflight(PreflightSpec.model_validate(spec.model_dump(exclude={"minutes"})), reporter)
    seconds = _SURE * 60 * spec.minutes - whole.first_step
    if seconds < whole.step:
        raise SettingsError(
            f"{spec.minutes:g} minutes vs {whole.first_step:.1f} s until the first step and {whole.step:.2g} s for "
            "each step: give more minutes"
        )
    fitting = spec.recipe.duration.scaled(whole.share_within(seconds))
    share = fitting.amount / spec.recipe.duration.amount
    answer = Pace(folder=spec.folder, duration=fitting, training_seconds=share * whole.training_seconds)
    answer = answer.model_copy(update={"seconds": time.monotonic() - started})
    complete(store, spec.folder, spec, answer, ())
    return answer


def _opened(spec: TrainSpec, store: Store, reporter: Reporter) -> tuple[Callable[..., Run], Agreement]:
    """Return a function that makes the run from its store, logs, reporter and signal handler, and the agreement."""
    require_unchanged(spec.recipe)
    manifest_sha256(store, spec.dataset_folder)
    manifest = read_manifest(store, spec.dataset_folder, spec.manifest_digest)
    test_reader = open_split(store, spec.dataset_folder, manifest, TEST, reporter)
    strategy = configure_process(spec.recipe, spec.strategy)
    if warning := devices.fallback(spec.strategy):
        reporter.warn(warning)
    trainer = build_trainer(store, spec.dataset_folder, spec.recipe, manifest, strategy, reporter)
    agreement = devices.agreement(strategy)
    readers = {TEST: test_reader, TRAINING: trainer.training_reader}
    if (split := trainer.plan.evaluated) not in readers:
        readers[split] = open_split(store, spec.dataset_folder, manifest, split, reporter)
    make_run = functools.partial(
        Run,
        **vars(trainer),
        spec=spec,
        test_reader=test_reader,
        evaluated_reader=readers[split],
        agreement=agreement,
    )
    for line in (trainer.plan.evaluates, *trainer.objective.remarks):
        reporter.log(line)
    return make_run, agreement


def _go_on(run: Run) -> tuple[int, TimeSpent]:
    """Restore the newest state; return its step and the time spent up to it."""

    def passed_over(step: int, reason: str) -> None:
        message = f"the checkpoint of step {step} is skipped: {reason}"
        run.reporter.warn(message)
        run.events.write("checkpoint_damaged", step, message)

    checkpoint = restore_newest(run.checkpoints, run.log, run.restore, passed_over)
    total, where = run.plan.total_steps, devices.describe(run.strategy)
    if (hosts := run.agreement.processes) > 1:
        where = f"{where} of {hosts} hosts"
    if checkpoint is None:
        parameters = run.state.model.count_params()
        taken = run.load_start()
        begins = run.base.in_words if run.base else "from the beginning"
        if run.spec.lacked_champion:
            begins = "from scratch, as there was no champion yet"
        message = f"{run.spec.run}: {plural(total, 'step')} {begins}, {parameters:,} parameters, {where}"
        run.events.write("started", 0, message)
        if taken:
            document = taken.model_dump_json(indent=2) + "\n"
            run.store.publish_bytes(f"{run.spec.folder}/{INITIAL_WEIGHTS}", document.encode(), replace=True)
            run.reporter.log(f"the initial weights are those of {taken}")
    else:
        message = (
            f"{run.spec.run}: resuming from the newest complete checkpoint, of step {checkpoint.step} of {total}, "
            f"{where}"
        )
        run.events.write("restored", checkpoint.step, message)
    run.reporter.log(message)
    return (checkpoint.step, checkpoint.clock) if checkpoint else (0, TimeSpent())


@contextlib.contextmanager
def _noted(spec: TrainSpec, events: EventLog, state: TrainingState) -> Iterator[None]:
    """Write an event that says why the run ended early, if the body raises an error."""
    try:
        yield
    except (PreemptedError, DivergenceError, PrunedError) as error:
        event: EventKind = next(event for kind, event in _EARLY_ENDS.items() if isinstance(error, kind))
        events.write(event, state.step, str(error))
        raise
    except tf.errors.OpError as error:
        if spec.by_workers and (gone := lost_host(type(error).__name__, str(error))):
            cause = first_cause(open_store(spec.root), spec.folder, cluster(), gone)
            events.write("host_lost", state.step, one_line(cause))
            raise cause from error
        raise


def _pflop(run: Run) -> float:
    """Return the floating-point operations of the training in 10¹⁵, from the image sizes of each phase."""
    examples, steps = run.plan.order.epochs.examples_before, run.state.step
    return sum(
        training_pflop(
            run.multiply_adds(phase),
            examples(min(phase.end, steps)) - examples(phase.first),
        )
        for phase in run.plan.phases
        if phase.first < steps
    )


@measured("saving")
def _finish(run: Run, clock: RunClock, traces: int, used: Load | None) -> TrainResult:
    spec, plan, steps = run.spec, run.plan, run.state.step
    run.require_data_unchanged()
    run.state.let_train(("",))
    weights_sha256 = export_model(run.store, spec.folder, run.state.evaluated, run.some_images())
    init = run.recipe.init
    begun_with = str(init) if init and init.published else ""
    description = described(run.state.model).changed(weights=begun_with).model_dump_json(indent=2) + "\n"
    run.store.publish_bytes(f"{spec.folder}/{DESCRIPTION}", description.encode(), replace=True)
    run.agreement.require_same("the weights", weights_sha256)
    took = clock.read()
    examples = plan.order.epochs.examples_before(steps)
    log = MetricsLines(run.log.path)
    lines, [*_, last] = log.rare(), log.steps(1)
    stop = latest(lines, EarlyStopLine)
    result = TrainResult(
        seconds=took.wall,
        run=spec.run,
        folder=spec.folder,
        steps=steps,
        epochs=plan.epoch(steps),
        examples=examples,
        parameters=run.state.model.count_params(),
        weights_sha256=weights_sha256,
        loss=last.loss,
        ending=ending(stop, run.recipe.early_stop, plan.total_steps) or stopped_by(latest(lines, StopLine)),
        steps_before=run.base.steps if run.base else 0,
        epochs_before=run.base.epochs if run.base else 0,
        examples_per_second=examples / took.training,
        pflop=_pflop(run),
        waiting_for_input=took.waiting / took.training,
        traces=traces,
        load=used,
        resumed_from=tuple(
            event.step for event in run.events.read() if event.event == "restored" and event.step < steps
        ),
        devices=devices.describe(run.strategy),
    )
    run.events.write("finished", steps, f"{spec.run}: {plural(steps, 'step')} in {took.wall:.0f} s")
    run.checkpoints.prune(run.recipe.keep if isinstance(run.recipe.keep, int) else 1)
    begun = (INITIAL_WEIGHTS,) if init else ()
    names = [f"{spec.folder}/{name}" for name in (SPEC, METRICS, ARCHITECTURE, WEIGHTS, KERAS, DESCRIPTION, *begun)]
    left = tuple(f"{spec.folder}/{part}" for part in _BESIDE)
    beside = [found for found in run.store.listing(spec.folder) if found.name.startswith(left)]
    complete(run.store, spec.folder, spec, result, names, beside)
    # All processes wait for the chief: if it is lost, all of them resume.
    run.agreement.meet()
    return result
