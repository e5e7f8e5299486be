"""Evaluates a model on a split, every example once."""

# pyright: standard
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.base.arrays import Array, Tensor
from podline.base.errors import ArtifactError, DivergenceError
from podline.base.progress import Reporter
from podline.contract.case import Case, Judgement
from podline.data.reader import SplitReader, open_split
from podline.data.records import IMAGE
from podline.documents.manifest import TRAINING, VALIDATION, Manifest
from podline.evaluation.forward import News, answers_of
from podline.input.pipeline import EvaluationInput
from podline.kinds.by_example.hooks import A, ExampleHooks, Judged, Views
from podline.recipes.kind_table import read_evaluation
from podline.recipes.measures import measure_named, metric_text
from podline.recipes.settings import Recipe
from podline.store.contract import Store
from podline.training.plan import plan_training

Model = Callable[..., Tensor]
_HELD_OUT, _OVER_VIEWS = "held_out", "over_views"


def judge(kind: ExampleHooks[A], case: Case) -> Judgement:
    """Evaluate a run's model; return the document, and files with the model's answer to each example.

    Raises:
        ArtifactError: the data have changed, before or during reading.
        DivergenceError: the model's outputs are not finite.
    """
    measure, names, views = (
        measure_named(kind.measure),
        case.manifest.class_names,
        kind.over_views(case.after, case.recipe),
    )
    found = _found(kind, case, views)
    chosen_on, held_out = (VALIDATION, found.pop(_HELD_OUT)) if _HELD_OUT in found else (TRAINING, found["seen"])
    thresholds = held_out.thresholds()
    found = {name: answers.at_thresholds(thresholds) for name, answers in found.items()}
    trained, guessing = found["trained"], kind.guessing(found["trained"])
    figures = {name: kind.figures(answers, len(names), case.problems.add) for name, answers in found.items()}
    limit, notes = guessing.high if measure.higher_is_better else guessing.low, list[str]()
    if views:
        averaged = figures[_OVER_VIEWS].metrics[measure.name]
        notes = [f"{measure.label} over {views.number} views {metric_text(measure.name, averaged)}"]
    better = {name: measure.better(each.metrics[measure.name].value, limit) for name, each in figures.items()}
    document = {
        **case.of_run(),
        **figures,
        **({"views": views.number} if views else {}),
        **kind.fields(Judged(names, trained, held_out, thresholds, chosen_on)),
        "kind": kind.name,
        "class_names": names,
        "guessing": guessing,
        "better_than_guessing": better["trained"],
        "learned": better["seen"],
    }
    written = {kind.read_by.file: trained.to_bytes()}
    return Judgement(kind.facts.document.model_validate(document), written, tuple(notes))


def _found(kind: ExampleHooks[A], case: Case, views: Views | None) -> dict[str, A]:
    """Run the models; return the answers that each field of the document is computed from, by the field's name."""
    spec, manifest, plan = case.spec, case.manifest, plan_training(case.recipe, case.manifest)
    holds_out = kind.read_by.has_thresholds and plan.evaluated in (TRAINING, VALIDATION)
    splits = (spec.split, TRAINING, *([plan.evaluated] if holds_out else []))
    readers = {
        split: open_split(case.store, spec.dataset_folder, case.manifest, split, case.reporter) for split in splits
    }

    def batches_of(split: str, ids: npt.NDArray[np.int64] | None = None) -> EvaluationInput:
        fields = IMAGE, kind.target
        return EvaluationInput(readers[split], manifest, fields, batch_size=spec.batch_size, ids=ids)

    judged = batches_of(spec.split)
    seen = batches_of(TRAINING, plan.order.ids[: judged.count])
    asked: dict[str, tuple[Model, EvaluationInput]] = {
        "untrained": (case.before, judged),
        "trained": (case.after, judged),
        "seen": (case.after, seen),
    }
    if holds_out:
        asked[_HELD_OUT] = case.after, batches_of(plan.evaluated, plan.held_out)
    if views:
        asked[_OVER_VIEWS] = views.model, judged
    news = News(case.reporter, sum(batches.count for _, batches in asked.values()))
    found = {
        name: _answers(kind, case.recipe, answers_of(model, case.strategy), batches, news.done)
        for name, (model, batches) in asked.items()
    }
    for reader in readers.values():
        reader.require_unchanged()
    return found


def _answers(
    kind: ExampleHooks[A],
    recipe: Recipe,
    answers: Callable[[EvaluationInput], Iterator[tuple[Any, dict[str, Array]]]],
    batches: EvaluationInput,
    news: Callable[[int], None],
) -> A:
    found, done = list[A](), 0
    with batches.explained():
        for outputs, fields in answers(batches):
            for place in np.flatnonzero(~np.isfinite(outputs).all(axis=tuple(range(1, outputs.ndim)))).tolist():
                raise DivergenceError(
                    f"{_record(batches, done + place)}: the model's outputs are not finite, since its training "
                    "diverged; train again with a lower learning rate"
                )
            if problem := kind.facts.targets.check(fields, batches.manifest):
                raise ArtifactError(f"{_record(batches, done + problem[0])} {problem[1]}")
            found.append(kind.answered(outputs, fields[kind.target], recipe))
            news(len(outputs))
            done += len(outputs)
    return kind.read_by.joined(found)


def _record(batches: EvaluationInput, place: int) -> str:
    """Return the name of the example at a position in the batches, such as ``record 6 of the test split``."""
    record = place if batches.ids is None else batches.ids[place]
    return f"record {record} of the {batches.reader.info.name} split"


def answered(
    kind: ExampleHooks[A],
    recipe: Recipe,
    model: Model,
    reader: SplitReader,
    manifest: Manifest,
    reporter: Reporter,
    ids: npt.NDArray[np.int64] | None = None,
) -> A:
    """Run a model on every example of a split, or on some, and return the answers.

    Raises:
        ArtifactError: the data changed while they were read, or a record's targets are invalid.
        DivergenceError: the model's outputs are not finite.
    """
    batches = EvaluationInput(reader, manifest, (IMAGE, kind.target), batch_size=recipe.evaluation_batch_size, ids=ids)
    answers = answers_of(model, tf.distribute.get_strategy())
    found = _answers(kind, recipe, answers, batches, News(reporter, batches.count).done)
    reader.require_unchanged()
    return found


def at_its_thresholds(kind: ExampleHooks[A], answers: A, store: Store, folder: str) -> A:
    """Return answers with the thresholds that the evaluation in a run's folder chose, if its kind has any.

    Raises:
        StoreError: the evaluation is missing.
        ArtifactError: the evaluation cannot be read, or belongs to another kind.
    """
    if not kind.read_by.has_thresholds:
        return answers
    return answers.at_thresholds(kind.thresholds_in(read_evaluation(store, folder)))
