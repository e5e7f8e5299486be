"""The promotion stage: decides whether a model becomes the champion of its recipe."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from podline.base.errors import ArtifactError, SettingsError, StoreError
from podline.base.plurals import plural
from podline.base.progress import Reporter
from podline.champions.exports import IMAGES, checked_exports
from podline.champions.rules import checks_of, export_checks, thresholds
from podline.compare.comparison import Grounds, examples_of
from podline.compare.examples import Places, SharedExamples
from podline.compare.known import answers_on, evaluated, known_trainings
from podline.contract.answers import AnyAnswers, CommonExamples
from podline.contract.kind import kind_of
from podline.contract.rules import MAIN, Compared, ModelCost
from podline.data.reader import open_split
from podline.documents import champions
from podline.documents.any_evaluation import AnyEvaluation
from podline.documents.champions import Candidate, Crowned
from podline.documents.completion import completion_name
from podline.documents.manifest import Manifest, read_manifest
from podline.documents.model_description import read_description
from podline.documents.promotion import PROMOTION, SAVED_MODEL, TFLITE, Check, ComparedExamples, Promotion
from podline.ledger.inventory.catalogue import training_of
from podline.recipes.kind_table import read_evaluation
from podline.recipes.measures import measure_named, metric_text
from podline.stages.completed import complete
from podline.stages.specs import WEIGHTS, PromoteResult, PromoteSpec, TrainSpec
from podline.stages.table import EVALUATE
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.export import load_model


@dataclass(frozen=True)
class _Case:
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
    def answers(self) -> AnyAnswers:
        """The provider of answers for this kind of model."""
        return kind_of(self.evaluation).answers()

    @property
    def examples(self) -> CommonExamples:
        """The examples of the candidate's evaluation."""
        return CommonExamples(self.store, self.spec.dataset_folder, self.manifest, self.spec.split, self.reporter)


def promote(spec: PromoteSpec, reporter: Reporter) -> PromoteResult:
    """Compare a model with its recipe's reference; promote it to champion if the rules show that it is not worse.

    Writes ``promotion.json`` and the exported files (:mod:`podline.champions.exports`) to ``runs/<run>``. A promotion
    is one atomic entry in the history of champions (:mod:`podline.documents.champions`). A dry run writes nothing.

    Raises:
        SettingsError: ``promotion.reference`` is not a champion, or a rule of an installed package fails.
        StoreError: the run does not exist, or a file cannot be written.
        ArtifactError: the weights, the evaluation or the data have changed.
        OvertakenError: another process changed the champion meanwhile.
    """
    started = time.monotonic()
    case = _opened(spec, reporter)
    store = case.store
    model: Any = load_model(store, spec.folder, spec.weights_sha256)
    entries = champions.history(store, spec.recipe)
    before, crowned = _against(entries, spec)
    # A former champion that is promoted again must not be compared with itself.
    line = [entry for entry in champions.standing(entries) if entry.run != spec.run]
    reference = reference_of(line, spec.rules.reference)
    compared = _compared_if_whole(case, reference) if reference is not None else _Comparison([])
    # After all checks that can fail, because these files replace those of an earlier promotion (not in a dry run).
    images = _some_images(case)
    reporter.log(f"checking each export of the model on {len(images)} test images")
    exports = checked_exports(store, spec.folder, model, images, lite=spec.rules.tflite, dry_run=spec.dry_run)
    checks = [*_sanity(case), *export_checks(exports), *compared.checks]
    # An exported file with wrong outputs must not be used, even with --anyway.
    refused = any(check.refused and (check.rule == "export" or not spec.anyway) for check in checks)
    undecided = not (refused or spec.anyway) and any(check.undecided for check in checks)
    promoted = crowned is not None or not (refused or undecided)
    better = any(check.better for check in compared.checks if check.rule == MAIN)
    if crowned is None and promoted and not spec.dry_run:
        crowned = champions.crown(
            store,
            spec.recipe,
            Candidate(spec.run, spec.weights_sha256, spec.dataset, spec.fingerprint, spec.anyway or better),
            entries[-1] if entries else None,
            "promoted anyway" if spec.anyway else "promoted",
            spec.reason,
        )
    # The history of a champion that is promoted again keeps whether it became the reference.
    better &= crowned is None or crowned.reference
    decision = Promotion(
        run=spec.run,
        recipe=spec.recipe,
        weights_sha256=spec.weights_sha256,
        reference=reference.run if reference else "",
        champion=before.run if before else "",
        known=compared.known,
        better=better,
        measure=case.measure,
        thresholds=thresholds(compared.checks),
        promoted=promoted,
        anyway=spec.anyway,
        undecided=undecided and not promoted,
        number=crowned.number if crowned else len(entries) + 1 if promoted else 0,
        checks=tuple(sorted(checks, key=lambda check: (not check.refused, not check.undecided, not check.warned))),
        exports=tuple(exports),
        compared=compared.examples,
    )
    return _published(case, decision, time.monotonic() - started)


def _published(case: _Case, decision: Promotion, seconds: float) -> PromoteResult:
    spec, store = case.spec, case.store
    name = f"{spec.folder}/{PROMOTION}"
    if not spec.dry_run:
        store.publish_json(name, decision.model_dump(mode="json"), replace=True)
    for line in () if spec.dry_run else decision.lines():
        case.reporter.log(line)
    result = PromoteResult(
        seconds=seconds,
        run=spec.run,
        recipe=spec.recipe,
        promoted=decision.promoted,
        reference=decision.reference,
        measure=decision.measure,
        refusals=decision.reasons,
        doubt=decision.doubt(),
        more_trainings=decision.more_trainings(),
        thresholds=decision.thresholds,
        notes=decision.notes,
        floor=decision.floor(
            case.evaluation.trained.metrics[case.measure].value,
            higher_is_better=measure_named(case.measure).higher_is_better,
        ),
        compared=decision.compared.sentence() if decision.compared else "",
        headline=decision.headline(),
        promotion_sha256="" if spec.dry_run else store.sha256(name),
    )
    if spec.dry_run:
        return result
    made = [tflite] if store.exists(tflite := f"{spec.folder}/{TFLITE}") else []
    complete(store, spec.folder, spec, result, [name, *store.list(f"{spec.folder}/{SAVED_MODEL}"), *made])
    return result


def _opened(spec: PromoteSpec, reporter: Reporter) -> _Case:
    store = open_store(spec.root)
    _require_same_as_promoted(store, spec)
    evaluation = read_evaluation(store, spec.record_folder, spec.evaluation_sha256)
    training = training_of(store, spec.run)
    manifest = read_manifest(store, training.dataset_folder)
    return _Case(spec, store, training, manifest, evaluation, reporter)


def _require_same_as_promoted(store: Store, spec: PromoteSpec) -> None:
    """Refuse a run whose weights changed since its promotion, before its exports are replaced."""
    for entry in champions.history(store, spec.recipe):
        problem = entry.run == spec.run and entry.other_weights(store.where(spec.folder), spec.weights_sha256)
        if problem:
            raise ArtifactError(
                f"{problem}; restore the run's files, or promote another run; if this run is the champion, "
                f"`podline models rollback {spec.recipe}`"
            )


def _some_images(case: _Case) -> Any:
    reader = open_split(case.store, case.spec.dataset_folder, case.manifest, case.spec.split)
    chosen = np.unique(np.linspace(0, len(reader), min(IMAGES, len(reader)), endpoint=False).astype(np.int64))
    return reader.gather(chosen, ["image"])["image"]


def _against(entries: list[Crowned], spec: PromoteSpec) -> tuple[Crowned | None, Crowned | None]:
    """Return the champion before this model, and the entry that already made this model the champion; each may be None.

    The second is not None if the model is promoted again, or a promotion was killed after writing its entry. With
    ``--anyway``, a champion that is not the reference gets a new entry.
    """
    line = champions.standing(entries)
    before = next((entry for entry in reversed(line) if entry.run != spec.run), None)
    reference = reference_of(line)
    again = line and line[-1].run == spec.run and not (spec.anyway and reference and reference.run != spec.run)
    return before, line[-1] if again else None


def _sanity(case: _Case) -> list[Check]:
    better = case.evaluation.better_than_guessing
    metrics, name = case.evaluation.trained.metrics, measure_named(case.measure).label
    figure = metrics[case.measure]
    results = " or ".join(f"{measure_named(each).label} {metrics[each].value:.3f}" for each in case.evaluation.guessed)
    message = f"{results} {'is better than' if better else 'cannot be told from'} guessing"
    return [Check(rule="guessing", name=name, after=figure.value, refused=not better, message=message)]


class _Comparison(NamedTuple):
    """The results of a comparison with the reference.

    Attributes:
        checks: the result of each rule.
        known: the runs whose mean is compared; the reference is the first. Empty without a comparison.
        examples: the compared examples if the data differ, else None.
    """

    checks: list[Check]
    known: tuple[str, ...] = ()
    examples: ComparedExamples | None = None


def _compared_if_whole(case: _Case, reference: Crowned) -> _Comparison:
    """Compare with the reference; with ``--anyway``, skip the comparison if the reference is damaged."""
    problem = _damage(case.store, reference)
    if not problem:
        return _compared(case, reference)
    if case.spec.anyway:
        message = f"not compared: {problem}"
        return _Comparison([Check(rule="comparable", name="reference", refused=False, warned=True, message=message)])
    raise ArtifactError(
        f"the reference {reference.run} cannot be compared with {case.spec.run}: {problem}; restore the file, or "
        f"`podline models rollback {case.spec.recipe}`, or `podline models promote {case.spec.run} --anyway`"
    )


def _damage(store: Store, entry: Crowned) -> str:
    """Return why a champion's files are not those that were promoted; empty if they are."""
    name = f"runs/{entry.run}/{WEIGHTS}"
    try:
        read_manifest(store, training_of(store, entry.run).dataset_folder)
        found = store.sha256(name)
    except (ArtifactError, StoreError) as error:
        return str(error)
    return entry.other_weights(store.where(name), found)


def _compared(case: _Case, reference: Crowned) -> _Comparison:
    store, spec = case.store, case.spec
    problem = _incomparable(case, reference)
    if problem:
        return _Comparison([Check(rule="comparable", name="data", refused=True, message=problem)])
    training = training_of(store, reference.run)
    grounds = examples_of(store, training, case.training, spec.split, case.reporter, leaks=True)
    answers, examples = case.answers, grounds.examples
    sides = (
        _reference(case, training, reference.weights_sha256),
        answers.left(store, spec.record_folder, case.evaluation),
    )
    other, own = (answers.part(examples, each) for each in sides)
    more = known_trainings(store, training, (spec.run,), lambda run: answers_on(store, run, grounds.splits))
    *known, candidate = (answers.judged(examples, each) for each in (other, *(found for _, found in more), own))
    costs, names = (_cost(case, training), _cost(case, case.training)), case.manifest.class_names
    checks = checks_of(Compared(case.evaluation.kind, known, candidate, names, costs), spec.rules)
    return _Comparison(
        [*(grounds.shared.leaks if grounds.shared else ()), *checks],
        (reference.run, *(run for run, _ in more)),
        _described(case, training, grounds, *sides),
    )


def _described(
    case: _Case, training: TrainSpec, grounds: Grounds, reference: Any, candidate: Any
) -> ComparedExamples | None:
    shared: SharedExamples | None = grounds.shared
    if shared is None or training.fingerprint == case.training.fingerprint:
        return None

    def figures(places: Places) -> list[str | None]:
        if not (len(places) and len(shared.fresh)):
            return [None, None]
        examples = replace(case.examples, places=places)
        found = [case.answers.part(examples, each) for each in (reference, candidate)]
        return [metric_text(case.measure, case.answers.main(examples, each)) for each in found]

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
    """Return why data set, classes or image shape forbid a comparison with the reference; empty if none does."""
    spec = case.spec
    remedy = f"promote it without a comparison (`podline models promote {spec.run} --anyway`), or rename the recipe"
    if before.dataset != spec.dataset:
        return f"data set: the reference {before.run} is of {before.dataset}, this run is of {spec.dataset}; {remedy}"
    was = read_manifest(case.store, training_of(case.store, before.run).dataset_folder)
    if was.class_names != case.manifest.class_names:
        return (
            f"classes: the reference {before.run} has {plural(len(was.class_names), 'class', 'classes')}, this run has "
            f"{len(case.manifest.class_names)}, or their names differ; {remedy}"
        )
    if was.image_shape != case.manifest.image_shape:
        return (
            f"images: the reference {before.run} has input shape {was.image_shape}, this run has "
            f"{case.manifest.image_shape}; {remedy}"
        )
    return ""


def _reference(case: _Case, training: TrainSpec, weights_sha256: str) -> Any:
    """Return the reference's outputs for the candidate's test examples, stored ones or from a new evaluation."""
    store, spec = case.store, case.spec
    if store.exists(completion_name(training.folder, EVALUATE.name)):
        found = evaluated(store, training.run)
        if found.evaluation.weights_sha256 == weights_sha256:
            answers = found.answers(store, [case.examples])
            if answers is not None:
                return answers
    case.reporter.log(f"evaluating the reference {training.run} on the test examples of {spec.run}")
    model: Any = load_model(store, training.folder, weights_sha256)
    return case.answers.again(case.examples, training, model)


def reference_of(line: Sequence[Crowned], named: str = "") -> Crowned | None:
    """Return the champion that candidates are compared with; None if ``line`` is empty.

    This is the run ``named``, which is ``promotion.reference``, if it is given. Else it is the last champion that was
    significantly better than its reference, or that was promoted with ``--anyway``; otherwise the first champion. So
    small drops within the margin cannot add up from champion to champion. ``line`` has the champions that were not
    rolled back, the current one last.

    Raises:
        SettingsError: the run ``named`` is not a champion in ``line``.
    """
    if named:
        found = [entry for entry in line if entry.run == named]
        if not found:
            listed = ", ".join(entry.run for entry in line) or "there is none yet"
            raise SettingsError(f"promotion.reference={named} is no champion of the recipe; give one of: {listed}")
        return found[-1]
    return next((entry for entry in reversed(line) if entry.reference), line[0] if line else None)


def _cost(case: _Case, training: TrainSpec) -> ModelCost:
    model = read_description(case.store, training.folder)
    return ModelCost(model.bytes, model.multiply_adds)
