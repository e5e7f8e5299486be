"""The promotion stage: decides whether a model becomes the champion of its recipe."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from podline.data.coco_truth import read_truth
from podline.data.reader import open_split
from podline.documents import champions
from podline.documents.champions import Candidate, Crowned
from podline.documents.evaluation import EVALUATION, Evaluation, read_evaluation
from podline.documents.manifest import Manifest, read_manifest
from podline.documents.pose_evaluation import PoseEvaluation, read_people
from podline.documents.promotion import PROMOTION, SAVED_MODEL, TFLITE, Check, Promotion
from podline.errors import ArtifactError, SettingsError
from podline.evaluation.evaluate import logits_of, tally
from podline.evaluation.forward import News
from podline.evaluation.guesses import Guesses, read_guesses
from podline.evaluation.installed_measures import compared
from podline.evaluation.oks import judged, tables
from podline.evaluation.poses import FIELDS, find_people, pose_answers
from podline.input.pipeline import EvaluationInput
from podline.inventory.catalogue import run_of, training_of
from podline.measures import installed, measure_named
from podline.models.counts import describe_recipe
from podline.progress import Reporter
from podline.promotion.exports import IMAGES, checked_exports, milliseconds
from podline.promotion.rules import ENOUGH_PEERS, Cost, Guarded, ModelFigures, Paired, checks_of, export_checks
from podline.promotion.standings import (
    class_standing,
    examples_of,
    paired_classes,
    paired_poses,
    peers_of,
    pose_standing,
    standing_of,
)
from podline.stages.completed import complete
from podline.stages.promotion import PromoteResult, PromoteSpec
from podline.stages.specs import TrainSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.export import load_model
from podline.training.objectives import objective_of


@dataclass(frozen=True)
class _Judged:
    """A model on the candidate's examples: its standing, and what it said of each of them.

    Attributes:
        standing: how good it is.
        guesses: of a classifier.
        people: of a pose network, COCO results.
    """

    standing: ModelFigures
    guesses: Guesses | None = None
    people: list[dict[str, Any]] | None = None


@dataclass(frozen=True)
class _Case:
    """What a decision is about.

    Attributes:
        spec: what the stage was given.
        store: the store.
        training: what the candidate was trained with.
        manifest: of its data.
        evaluation: of it.
        reporter: told of progress.
    """

    spec: PromoteSpec
    store: Store
    training: TrainSpec
    manifest: Manifest
    evaluation: Evaluation | PoseEvaluation
    reporter: Reporter

    @property
    def measure(self) -> Any:
        """The metric that counts."""
        return "top1" if isinstance(self.evaluation, Evaluation) else "ap"


def promote(spec: PromoteSpec, reporter: Reporter) -> PromoteResult:
    """Holds a model against the champion of its recipe and, if no rule refuses it, makes it the champion.

    It writes, in ``runs/<run>``: ``promotion.json``, and the forms of the model that are handed on
    (:mod:`podline.promotion.exports`); the change itself is one entry in the champion's history
    (:mod:`podline.documents.champions`), the one moment at which anything is decided.

    Args:
        spec: the model, and the rules.
        reporter: is told of progress.

    Raises:
        StoreError: there is no such run, or something cannot be written.
        ArtifactError: the weights, the evaluation or the data are not what they were.
        OvertakenError: somebody else changed the champion meanwhile.
    """
    started = time.monotonic()
    case = _opened(spec, reporter)
    store = case.store
    model: Any = load_model(store, spec.folder, spec.weights_sha256)
    images = _some_images(case)
    reporter.log(f"asking each form of the model about {len(images)} test images")
    exports = checked_exports(store, spec.folder, model, images, lite=spec.rules.tflite)
    entries = champions.history(store, spec.recipe)
    before, crowned = _against(entries, spec)
    if crowned is not None:
        champions.keep_head(store, spec.recipe, crowned)
    checks, peers, was = [*_sanity(case), *export_checks(exports)], (), None
    if before is not None:
        compared, peers, was = _compared(case, before, images)
        checks += compared
    # A file that gives other answers must not be used, whatever anybody says.
    refused = any(check.refused and (check.rule == "export" or not spec.anyway) for check in checks)
    if crowned is None and not refused:
        crowned = champions.crown(
            store,
            spec.recipe,
            Candidate(spec.run, spec.weights_sha256, spec.dataset, spec.fingerprint),
            entries[-1] if entries else None,
            "promoted anyway" if spec.anyway else "promoted",
            spec.reason,
        )
    decision = Promotion(
        run=spec.run,
        recipe=spec.recipe,
        weights_sha256=spec.weights_sha256,
        against=before.run if before else "",
        peers=peers,
        measure=case.measure,
        rate=spec.rules.rate,
        promoted=crowned is not None,
        anyway=spec.anyway,
        number=crowned.number if crowned else 0,
        checks=tuple(sorted(checks, key=lambda check: not check.refused)),
        exports=tuple(exports),
        milliseconds=milliseconds(model, images),
        milliseconds_before=was,
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
        headline=decision.headline(),
        promotion_sha256=store.sha256(name),
    )
    made = [tflite] if store.exists(tflite := f"{spec.folder}/{TFLITE}") else []
    complete(store, spec.folder, spec, result, [name, *store.list(f"{spec.folder}/{SAVED_MODEL}"), *made])
    return result


def _opened(spec: PromoteSpec, reporter: Reporter) -> _Case:
    store = open_store(spec.root)
    name = f"{spec.verdict_folder}/{EVALUATION}"
    found = store.sha256(name)
    if found != spec.evaluation_sha256:
        raise ArtifactError(
            f"{store.where(name)} has sha256 {found[:12]}… vs {spec.evaluation_sha256[:12]}… that is to be judged; "
            "evaluate the run again"
        )
    training = training_of(store, spec.run)
    manifest = read_manifest(store, training.dataset_folder)
    return _Case(spec, store, training, manifest, read_evaluation(store, spec.verdict_folder), reporter)


def _some_images(case: _Case) -> Any:
    reader = open_split(case.store, case.spec.dataset_folder, case.manifest, case.spec.split)
    chosen = np.unique(np.linspace(0, len(reader), min(IMAGES, len(reader)), endpoint=False).astype(np.int64))
    return reader.gather(chosen, ["image"])["image"]


def _against(entries: list[Crowned], spec: PromoteSpec) -> tuple[Crowned | None, Crowned | None]:
    """The champion to beat, and the entry by which the model is the champion already, if it is.

    A promotion that was killed right after its one change is finished by the next: against the champion before.
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


def _compared(case: _Case, before: Crowned, images: Any) -> tuple[list[Check], tuple[str, ...], float | None]:
    """What the rules say against the champion; the peers; milliseconds of the champion."""
    store, spec = case.store, case.spec
    strange = _incomparable(case, before)
    if strange:
        check = Check(rule="comparable", name="data", refused=True, message=strange)
        return [check], (), None
    training = training_of(store, before.run)
    model: Any = load_model(store, training.folder, before.weights_sha256)
    examples = examples_of(case.manifest, spec.split)
    champion, candidate = _champion(case, training, model, examples), _candidate(case)
    peers = [champion.standing, *peers_of(store, before, spec.run, examples, spec.split)]
    paired = None if len(peers) >= ENOUGH_PEERS else _paired(case, champion, candidate)
    costs = _cost(case, training), _cost(case, case.training)
    guarded = _guarded(case, champion, candidate)
    checks = checks_of(candidate.standing, peers, paired, costs, spec.rules, guarded)
    return checks, tuple(peer.run for peer in peers), milliseconds(model, images)


def _guarded(case: _Case, champion: _Judged, candidate: _Judged) -> list[Guarded]:
    """The guarded measures of both models.

    Raises:
        SettingsError: a name is no installed measure's of which more is better, or the model is no classifier.
    """
    before, after, found = champion.guesses, candidate.guesses, []
    measures = {measure.name: measure for measure in installed() if measure.higher_is_better}
    for name in case.spec.rules.guards:
        if name not in measures:
            known = ", ".join(measures) or "none is installed"
            raise SettingsError(f"promotion.guards: {name} vs the installed measures of which more is better: {known}")
        if before is None or after is None:
            raise SettingsError(f"promotion.guards: {name} is a measure of classes, and {case.spec.run} finds people")
        classes = len(case.manifest.class_names)
        figures = compared(measures[name], after.labels, before.predictions, after.predictions, classes)
        found.append(Guarded(measures[name].label, *figures))
    return found


def _incomparable(case: _Case, before: Crowned) -> str:
    """Why a model cannot be held against the champion at all; empty if it can."""
    spec = case.spec
    remedy = f"start anew with `podline models promote {spec.run} --anyway`, or give the recipe a name of its own"
    if before.dataset != spec.dataset:
        return f"data set: the champion {before.run} was trained on {before.dataset} vs {spec.dataset}; {remedy}"
    was = read_manifest(case.store, training_of(case.store, before.run).dataset_folder)
    if was.class_names != case.manifest.class_names:
        return (
            f"classes: the champion {before.run} knows {len(was.class_names)} vs {len(case.manifest.class_names)}, or "
            f"others by name; {remedy}"
        )
    if was.image_shape != case.manifest.image_shape:
        return f"images: the champion {before.run} takes {was.image_shape} vs {case.manifest.image_shape}; {remedy}"
    return ""


def _candidate(case: _Case) -> _Judged:
    return _left(case.store, case.spec.verdict_folder, case.evaluation)


def _left(store: Store, folder: str, evaluation: Evaluation | PoseEvaluation) -> _Judged:
    """What an evaluation left."""
    if isinstance(evaluation, Evaluation):
        return _Judged(standing_of(evaluation), guesses=read_guesses(store, folder))
    return _Judged(standing_of(evaluation), people=read_people(store, folder, evaluation.split))


def _champion(case: _Case, training: TrainSpec, model: keras.Model, examples: tuple[str, ...]) -> _Judged:
    """The champion on the candidate's examples: as it was judged, if that was on the same ones; else judged anew."""
    store, spec = case.store, case.spec
    was = read_manifest(store, training.dataset_folder)
    done = run_of(store, training.run).stages
    if examples_of(was, spec.split) == examples and "evaluate" in done:
        return _left(store, training.folder, read_evaluation(store, training.folder))
    case.reporter.log(f"judging the champion, {training.run}, on the examples that {spec.run} was judged on")
    return _judged_anew(case, training, model)


def _judged_anew(case: _Case, training: TrainSpec, model: keras.Model) -> _Judged:
    spec, store, manifest = case.spec, case.store, case.manifest
    reader, strategy = open_split(store, spec.dataset_folder, manifest, spec.split), tf.distribute.get_strategy()
    size, poses = training.recipe.evaluation_batch_size, training.recipe.pose
    fields = FIELDS if poses else objective_of(training.recipe).fields
    batches = EvaluationInput(reader, manifest, fields, batch_size=size)
    news = News(case.reporter, batches.count)
    if poses:
        people = find_people(pose_answers(model, strategy, poses), batches, poses, news.done)
        # As it would come back from a file.
        people = json.loads(json.dumps(people))
        reader.require_unchanged()
        found = tables(judged(read_truth(store, spec.dataset_folder, manifest, spec.split), people))
        return _Judged(pose_standing(training.run, found.figures.ap, found.people, found.joints), people=people)
    counted = tally(logits_of(model, strategy), batches, len(manifest.class_names), news.done)
    reader.require_unchanged()
    standing = class_standing(training.run, counted.figures(), counted.per_class(manifest.class_names))
    return _Judged(standing, guesses=counted.guesses())


def _paired(case: _Case, champion: _Judged, candidate: _Judged) -> Paired:
    rules = case.spec.rules
    if champion.guesses is not None and candidate.guesses is not None:
        return paired_classes(champion.guesses, candidate.guesses, case.manifest.class_names, rules)
    truth = read_truth(case.store, case.spec.dataset_folder, case.manifest, case.spec.split)
    before, after = (judged(truth, each.people or []) for each in (champion, candidate))
    return paired_poses(before, after, rules)


def _cost(case: _Case, training: TrainSpec) -> Cost:
    height, width, channels = case.manifest.image_shape
    model = describe_recipe(training.recipe, (height, width, channels), len(case.manifest.class_names))
    return Cost(model.bytes, model.multiply_adds)
