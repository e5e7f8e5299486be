"""The evaluation stage: evaluates a trained model on a split, every example once."""

# pyright: standard
from __future__ import annotations

import contextlib
import math
import time

from podline.base.errors import SettingsError
from podline.base.plurals import plural
from podline.base.progress import Reporter
from podline.contract.case import Case, Judgement
from podline.contract.kind import kind_of
from podline.documents.any_evaluation import EVALUATION, AnyEvaluation
from podline.documents.completion import read_result
from podline.documents.manifest import TEST, TRAINING, read_manifest
from podline.evaluation.forward import milliseconds_an_image
from podline.ledger.inventory.catalogue import training_of
from podline.models.of_run import untrained_model
from podline.recipes import measures
from podline.recipes.measures import measure_named, value_text
from podline.stages.completed import complete, manifest_sha256
from podline.stages.from_recipe import doubt_about
from podline.stages.specs import EvaluateResult, EvaluateSpec, TrainResult
from podline.store.contract import Store
from podline.store.folder import temporary_store
from podline.store.opening import open_store
from podline.training import devices
from podline.training.export import load_model
from podline.training.plan import plan_training
from podline.training.run import configure_process

# For a model that learned nothing, the message suggests the steps times the first number, at least the second number.
_MORE, _LEAST_STEPS = 5, 400


def evaluate(spec: EvaluateSpec, reporter: Reporter) -> EvaluateResult:
    """Evaluate a run's model, and the same network with random weights, and write ``evaluation.json``.

    It is written into ``spec.record_folder``, with files of the answer to each example. No figure depends on
    ``batch_size``. A model that is not better than guessing gives a result with a ``failure``, so that a report can
    still be written.

    Raises:
        StoreError: the data set or the run does not exist.
        SettingsError: the run was trained on another data set, the recipe does not fit it, or the main measure fails.
        ArtifactError: the weights or the data have changed, before or during reading; or the split has no label.
        DivergenceError: a model's outputs are not finite.
        WorkerLostError: the evaluation uses several processes, and some did not start.
    """
    started = time.monotonic()
    store = open_store(spec.root)
    manifest_sha256(store, spec.dataset_folder)
    manifest = read_manifest(store, spec.dataset_folder, spec.manifest_digest)
    training = training_of(store, spec.run)
    if training.dataset_folder != spec.dataset_folder:
        raise SettingsError(
            f"run {spec.run} was trained on {training.dataset_folder}, so it cannot be evaluated on "
            f"{spec.dataset_folder}; give the data set of the training"
        )
    recipe = training.recipe.changed(task=training.recipe.task.changed(**spec.judging))
    # This comes first, like in training, because it sets the seeds of the initial weights.
    strategy = configure_process(recipe, spec.strategy)
    if warning := devices.fallback(spec.strategy):
        reporter.warn(warning)
    devices.warn_of_padding("evaluation_batch_size", spec.batch_size, strategy, reporter)
    agreement = devices.agreement(strategy)
    with strategy.scope():
        before = untrained_model(store, spec.folder, recipe.seed)
        after = load_model(store, spec.folder, spec.weights_sha256)
    case = Case(spec, recipe, before, after, strategy, store, manifest, reporter)
    judgement = kind_of(recipe).judge(case)
    milliseconds = milliseconds_an_image(after, strategy)
    with contextlib.nullcontext(store) if agreement.chief else temporary_store(store, "worker") as mine:
        result = _published(case, mine, judgement, milliseconds, time.monotonic() - started)
    # All processes wait for the chief.
    agreement.meet()
    for problem in sorted({*case.problems, *measures.loaded().problems}):
        reporter.warn(f"{problem}; this figure is left out: repair or uninstall the package of the measure")
    if result.failure:
        reporter.warn(result.failure)
    return result


def _published(case: Case, store: Store, judgement: Judgement, milliseconds: float, seconds: float) -> EvaluateResult:
    spec, folder, document = case.spec, case.spec.record_folder, judgement.document
    for name, data in judgement.files.items():
        store.publish_bytes(f"{folder}/{name}", data, replace=True)
    name = f"{folder}/{EVALUATION}"
    store.publish_json(name, document.model_dump(mode="json"), replace=True)
    result = EvaluateResult(
        seconds=seconds,
        run=spec.run,
        dataset=spec.dataset,
        examples=document.examples,
        metrics=document.trained.metrics,
        measure=document.measure,
        untrained=document.untrained.metrics[document.measure].value,
        milliseconds=milliseconds,
        evaluation_sha256=store.sha256(name),
        failure=_sanity_check(case, document),
        notes=judgement.notes,
    )
    complete(store, folder, spec, result, [name, *(f"{folder}/{file}" for file in judgement.files)])
    return result


def _sanity_check(case: Case, document: AnyEvaluation) -> str:
    """Return the message for a model that is not better than guessing, with remedies; "" for a better model."""
    if document.better_than_guessing:
        return ""
    up = measure_named(document.measure).higher_is_better
    images = plural(case.manifest.split(TRAINING).records, "training image")
    helps = [f"more than {images}"]
    if not (case.recipe.init or case.recipe.further):
        helps.append(f"pretrained weights ({case.recipe.task.asks_for_weights})")
    trained, most, seen = (
        " and ".join(f"{measure_named(name).label} {value_text(name, value)}" for name, value in values.items())
        for values in (
            {name: document.trained.metrics[name].value for name in document.guessed},
            {name: guess.high if up else guess.low for name, guess in document.guessed.items()},
            {name: document.seen.metrics[name].value for name in document.guessed},
        )
    )
    found = f"on training images it has the {seen}"
    if document.learned:
        found += ", so more steps alone do not help"
    else:
        helps.insert(0, _more_steps(case))
        helps.append("another learning rate, correct labels")
    doubt = doubt_about(case.recipe, case.manifest) if document.split == TEST else None
    tested = f"; {doubt.words}" if doubt else ""
    return (
        f"sanity check: {document.run} has the {trained} on {document.examples} {document.split} examples, and "
        f"guessing gives {'up' if up else 'down'} to {most}; {found}; what may help: {'; '.join(helps)}{tested}"
    )


def _more_steps(case: Case) -> str:
    """Return the suggestion of a longer training: its steps, and the minutes that they would take on that machine."""
    steps = plan_training(case.recipe, case.manifest).total_steps
    more = max(_MORE * steps, _LEAST_STEPS)
    trained = read_result(case.store, case.spec.folder, "train", TrainResult)
    seconds = trained.examples / trained.examples_per_second if trained.examples_per_second else trained.seconds
    minutes = math.ceil(seconds / 60 * more / max(trained.steps, 1))
    return f"more than {plural(steps, 'step')} (--steps {more}, or --minutes {minutes})"
