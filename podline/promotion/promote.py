"""The promotion stage: decides whether a model becomes the champion of its recipe."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np

from podline.data.reader import open_split
from podline.documents import champions
from podline.documents.any_evaluation import EVALUATION, AnyEvaluation
from podline.documents.champions import Candidate, Crowned
from podline.documents.manifest import Manifest, read_manifest
from podline.documents.promotion import PROMOTION, SAVED_MODEL, TFLITE, Check, ComparedExamples, Promotion
from podline.errors import ArtifactError
from podline.figures import metric_text
from podline.inventory.catalogue import run_of, training_of
from podline.kinds.table import kind_of, read_evaluation
from podline.measures import measure_named
from podline.models.descriptions import describe_run
from podline.progress import Reporter
from podline.promotion.answers import Answers, JudgedSplit
from podline.promotion.exports import IMAGES, checked_exports, milliseconds
from podline.promotion.figure import ModelCost, Pair
from podline.promotion.rules import checks_of, detects, export_checks
from podline.promotion.trainings import examples_of, known_of, reference_of, said_on
from podline.reporting.shared_examples import Places, SharedExamples, learned_anew, shared_examples
from podline.stages.completed import complete
from podline.stages.specs import PromoteResult, PromoteSpec, TrainSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.export import load_model


@dataclass(frozen=True)
class _Case:
    """The candidate of a decision.

    Attributes:
        spec: the stage's spec.
        store: the store.
        training: the spec of the candidate's training.
        manifest: the manifest of its data.
        evaluation: its evaluation.
        reporter: reports progress.
    """

    spec: PromoteSpec
    store: Store
    training: TrainSpec
    manifest: Manifest
    evaluation: AnyEvaluation
    reporter: Reporter

    @property
    def measure(self) -> str:
        """The main metric."""
        return self.evaluation.measure

    @property
    def answers(self) -> Answers:
        """The provider of answers for this kind of model."""
        return kind_of(self.evaluation).answers()

    @property
    def examples(self) -> JudgedSplit:
        """The examples of the candidate's evaluation."""
        return JudgedSplit(self.store, self.spec.dataset_folder, self.manifest, self.spec.split, self.reporter)


def promote(spec: PromoteSpec, reporter: Reporter) -> PromoteResult:
    """Compare a model with its recipe's champion; make it the champion if it is shown not to be worse.

    It writes to ``runs/<run>``: ``promotion.json``, and the published forms of the model
    (:mod:`podline.promotion.exports`). The change itself is one entry in the champion's history
    (:mod:`podline.documents.champions`), which makes it atomic.

    Args:
        spec: the model and the rules.
        reporter: reports progress.

    Raises:
        StoreError: the run does not exist, or a file cannot be written.
        ArtifactError: the weights, the evaluation or the data have changed.
        OvertakenError: another process changed the champion meanwhile.
    """
    started = time.monotonic()
    case = _opened(spec, reporter)
    store = case.store
    model: Any = load_model(store, spec.folder, spec.weights_sha256)
    images = _some_images(case)
    reporter.log(f"checking each export of the model on {len(images)} test images")
    exports = checked_exports(store, spec.folder, model, images, lite=spec.rules.tflite)
    entries = champions.history(store, spec.recipe)
    before, crowned = _against(entries, spec)
    reference = reference_of(champions.standing(entries)[: before.number if before else 0], spec.rules.reference)
    compared = _compared(case, reference, images) if reference is not None else _Comparison([])
    checks = [*_sanity(case), *export_checks(exports), *compared.checks]
    # A file with other answers must not be used, even if a person promotes the model.
    refused = any(check.refused and (check.rule == "export" or not spec.anyway) for check in checks)
    undecided = not (refused or spec.anyway) and any(check.undecided for check in checks)
    if crowned is None and not (refused or undecided):
        crowned = champions.crown(
            store,
            spec.recipe,
            Candidate(spec.run, spec.weights_sha256, spec.dataset, spec.fingerprint, spec.anyway or compared.better),
            entries[-1] if entries else None,
            "promoted anyway" if spec.anyway else "promoted",
            spec.reason,
        )
    decision = Promotion(
        run=spec.run,
        recipe=spec.recipe,
        weights_sha256=spec.weights_sha256,
        against=reference.run if reference else "",
        champion=before.run if before else "",
        known=compared.known,
        better=compared.better,
        measure=case.measure,
        detects=compared.detects,
        promoted=crowned is not None,
        anyway=spec.anyway,
        undecided=undecided and crowned is None,
        number=crowned.number if crowned else 0,
        checks=tuple(sorted(checks, key=lambda check: (not check.refused, not check.undecided))),
        exports=tuple(exports),
        milliseconds=milliseconds(model, images),
        milliseconds_before=compared.milliseconds,
        compared=compared.examples,
    )
    return _published(case, decision, time.monotonic() - started)


def _published(case: _Case, decision: Promotion, seconds: float) -> PromoteResult:
    spec, store = case.spec, case.store
    name = f"{spec.folder}/{PROMOTION}"
    store.publish_json(name, decision.model_dump(mode="json"), replace=True)
    for line in decision.lines():
        case.reporter.log(line)
    result = PromoteResult(
        seconds=seconds,
        run=spec.run,
        recipe=spec.recipe,
        promoted=decision.promoted,
        against=decision.against,
        measure=decision.measure,
        refusals=tuple(check.message for check in decision.refusals),
        doubt=decision.doubt(),
        more_trainings=decision.more_trainings(),
        detects=decision.detects,
        floor=decision.floor(
            case.evaluation.trained.metrics[case.measure].value,
            higher_is_better=measure_named(case.measure).higher_is_better,
        ),
        compared=decision.compared.sentence() if decision.compared else "",
        headline=decision.headline(),
        promotion_sha256=store.sha256(name),
    )
    made = [tflite] if store.exists(tflite := f"{spec.folder}/{TFLITE}") else []
    complete(store, spec.folder, spec, result, [name, *store.list(f"{spec.folder}/{SAVED_MODEL}"), *made])
    return result


def _opened(spec: PromoteSpec, reporter: Reporter) -> _Case:
    store = open_store(spec.root)
    name = f"{spec.record_folder}/{EVALUATION}"
    found = store.sha256(name)
    if found != spec.evaluation_sha256:
        raise ArtifactError(
            f"{store.where(name)} has sha256 {found[:12]}… vs {spec.evaluation_sha256[:12]}… in the spec; "
            "evaluate the run again"
        )
    training = training_of(store, spec.run)
    manifest = read_manifest(store, training.dataset_folder)
    return _Case(spec, store, training, manifest, read_evaluation(store, spec.record_folder), reporter)


def _some_images(case: _Case) -> Any:
    reader = open_split(case.store, case.spec.dataset_folder, case.manifest, case.spec.split)
    chosen = np.unique(np.linspace(0, len(reader), min(IMAGES, len(reader)), endpoint=False).astype(np.int64))
    return reader.gather(chosen, ["image"])["image"]


def _against(entries: list[Crowned], spec: PromoteSpec) -> tuple[Crowned | None, Crowned | None]:
    """Return the champion to compare with, and the entry that already makes this model the champion, or None.

    A promotion that was killed directly after its change is completed by the next call, with the previous champion.
    """
    line = champions.standing(entries)
    if line and (line[-1].run, line[-1].weights_sha256) == (spec.run, spec.weights_sha256):
        return (line[-2] if len(line) > 1 else None), line[-1]
    return (line[-1] if line else None), None


def _sanity(case: _Case) -> list[Check]:
    better = case.evaluation.better_than_guessing
    figure, name = case.evaluation.trained.metrics[case.measure], measure_named(case.measure).label
    message = f"{name} {figure.value:.3f} {'is better than' if better else 'cannot be told from'} guessing"
    return [Check(rule="guessing", name=name, after=figure.value, refused=not better, message=message)]


@dataclass(frozen=True)
class _Comparison:
    """The result of comparing a model with the reference.

    Attributes:
        checks: the results of the rules.
        known: the runs whose figures were compared, the reference first.
        better: whether the model is shown to be better.
        detects: the margins as text.
        milliseconds: the reference's time per image; None if the two cannot be compared.
        examples: the compared examples, if the data differ.
    """

    checks: list[Check]
    known: tuple[str, ...] = ()
    better: bool = False
    detects: str = ""
    milliseconds: float | None = None
    examples: ComparedExamples | None = None


def _compared(case: _Case, reference: Crowned, images: Any) -> _Comparison:
    store, spec = case.store, case.spec
    strange = _incomparable(case, reference)
    if strange:
        return _Comparison([Check(rule="comparable", name="data", refused=True, message=strange)])
    training = training_of(store, reference.run)
    model: Any = load_model(store, training.folder, reference.weights_sha256)
    rivals = _rivals(case, training, model)
    known = [(reference.run, rivals.reference), *known_of(store, reference, spec.run, rivals.said)]
    pair = Pair(
        kind_of(case.evaluation).name,
        [case.answers.judged(rivals.examples, said) for _, said in known],
        case.answers.judged(rivals.examples, rivals.candidate),
        (_cost(case, training), _cost(case, case.training)),
        case.manifest.class_names,
    )
    checks = checks_of(pair, spec.rules)
    return _Comparison(
        [*rivals.leaks, *checks],
        tuple(run for run, _ in known),
        any(check.better for check in checks if check.rule == "main"),
        detects(checks),
        milliseconds(model, images),
        rivals.compared,
    )


@dataclass(frozen=True)
class _Rivals:
    """The reference and the candidate on the compared examples.

    Attributes:
        reference: the reference's answers.
        candidate: the candidate's answers.
        examples: the compared examples, in the candidate's data set.
        said: returns another run's answers, or None if it was not evaluated on these examples.
        leaks: refusals for examples that one of the two was trained on, which are not compared.
        compared: a description of the examples, if the data differ.
    """

    reference: Any
    candidate: Any
    examples: JudgedSplit
    said: Callable[[str], Any]
    leaks: tuple[Check, ...] = ()
    compared: ComparedExamples | None = None


def _rivals(case: _Case, training: TrainSpec, model: keras.Model) -> _Rivals:
    store, spec = case.store, case.spec
    reference = _reference(case, training, model)
    candidate = case.answers.left(store, spec.record_folder, case.evaluation)
    if not learned_anew(case.training, training):
        return _Rivals(reference, candidate, case.examples, lambda run: said_on(store, run, [case.examples]))
    shared = shared_examples(store, training, case.training, spec.split, case.reporter)
    chosen = replace(case.examples, places=shared.counting)
    splits = [chosen]
    if shared.enough:
        was = read_manifest(store, folder := training.dataset_folder)
        splits.append(JudgedSplit(store, folder, was, spec.split, case.reporter, shared.before))
    return _Rivals(
        case.answers.part(chosen, reference),
        case.answers.part(chosen, candidate),
        chosen,
        lambda run: said_on(store, run, splits),
        shared.leaks,
        _described(case, training, shared, reference, candidate),
    )


def _described(
    case: _Case, training: TrainSpec, shared: SharedExamples, reference: Any, candidate: Any
) -> ComparedExamples | None:
    if training.fingerprint == case.training.fingerprint:
        return None

    def figures(places: Places) -> list[str | None]:
        if not (len(places) and len(shared.fresh)):
            return [None, None]
        examples = replace(case.examples, places=places)
        said = [case.answers.part(examples, each) for each in (reference, candidate)]
        return [metric_text(case.measure, case.answers.main(examples, each)) for each in said]

    both, fresh = figures(shared.after), figures(shared.fresh)
    return ComparedExamples(
        before=f"{training.recipe.dataset}-{training.fingerprint}",
        after=f"{case.spec.dataset}-{case.spec.fingerprint}",
        shared=len(shared.after),
        fresh=len(shared.fresh),
        all_count=not shared.enough,
        measure=measure_named(case.measure).label,
        shared_before=both[0],
        shared_after=both[1],
        fresh_before=fresh[0],
        fresh_after=fresh[1],
    )


def _incomparable(case: _Case, before: Crowned) -> str:
    """Return why a model cannot be compared with the champion at all; empty if it can."""
    spec = case.spec
    remedy = f"start again with `podline models promote {spec.run} --anyway`, or give the recipe another name"
    if before.dataset != spec.dataset:
        return f"data set: the reference {before.run} was trained on {before.dataset} vs {spec.dataset}; {remedy}"
    was = read_manifest(case.store, training_of(case.store, before.run).dataset_folder)
    if was.class_names != case.manifest.class_names:
        return (
            f"classes: the reference {before.run} has {len(was.class_names)} vs {len(case.manifest.class_names)}, or "
            f"others by name; {remedy}"
        )
    if was.image_shape != case.manifest.image_shape:
        return f"images: the reference {before.run} takes {was.image_shape} vs {case.manifest.image_shape}; {remedy}"
    return ""


def _reference(case: _Case, training: TrainSpec, model: keras.Model) -> Any:
    """Return the reference's answers to the candidate's examples: from its evaluation, or by running it."""
    store, spec = case.store, case.spec
    was = read_manifest(store, training.dataset_folder)
    done = run_of(store, training.run).stages
    if examples_of(was, spec.split) == examples_of(case.manifest, spec.split) and "evaluate" in done:
        return case.answers.left(store, training.folder, read_evaluation(store, training.folder))
    case.reporter.log(f"judging the reference, {training.run}, on the examples that {spec.run} was judged on")
    return case.answers.again(case.examples, training, model)


def _cost(case: _Case, training: TrainSpec) -> ModelCost:
    model = describe_run(case.store, training, case.manifest)
    return ModelCost(model.bytes, model.multiply_adds)
