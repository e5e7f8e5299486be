"""Evaluates a model on a split, every example once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.arrays import Array
from podline.data.reader import SplitReader, open_split
from podline.documents.manifest import Manifest
from podline.drawing.picture_sheet import Block, Picture, PictureRow
from podline.errors import DivergenceError
from podline.evaluation.case import Case, Judgement
from podline.evaluation.forward import News, answers_of
from podline.figures import metric_text
from podline.input.pipeline import EvaluationInput
from podline.kinds.by_example.answered import Answered
from podline.kinds.by_example.document import ImageFigures
from podline.kinds.by_example.measures import figures_of
from podline.measures import measure_named
from podline.progress import Reporter
from podline.recipes.settings import Recipe
from podline.stages.tools import ShowSpec
from podline.store.contract import Store
from podline.training.objective import IMAGE
from podline.training.plan import EVALUATION_SPLIT, TRAINING_SPLIT, plan_training

if TYPE_CHECKING:
    from podline.kinds.by_example.kind import ExampleKind


def judge(kind: ExampleKind, case: Case) -> Judgement:
    """Evaluate a run's model; write its answers to each example beside the document.

    Raises:
        ArtifactError: the data have changed, before or during reading.
        DivergenceError: the model's outputs are not finite.
    """
    spec, plan, fields = case.spec, plan_training(case.recipe, case.manifest), (IMAGE, kind.target)
    readers = {split: reader_of(case, split) for split in (spec.split, TRAINING_SPLIT)}
    judged = batches_of(case, readers[spec.split], fields)
    seen = batches_of(case, readers[TRAINING_SPLIT], fields, plan.order.ids[: judged.count])
    asked = [(case.before, judged), (case.after, judged), (case.after, seen)]
    news = News(case.reporter, sum(batches.count for _, batches in asked))
    untrained, trained, remembered = (
        _decoded(kind, case.recipe, ask(model, case.strategy, batches, kind.target, news.done))
        for model, batches in asked
    )
    for reader in readers.values():
        reader.require_unchanged()
    figures, measure = _figures(kind, trained, case), measure_named(kind.measure)
    guessing = _figures(kind, replace(trained, answers=kind.guesses(trained.labels)), case).metrics[kind.measure]
    value = figures.metrics[kind.measure].value
    document = kind.document(
        kind=kind.name,
        **case.of_run(),
        trained=figures,
        untrained=_figures(kind, untrained, case),
        seen=_figures(kind, remembered, case),
        guessing=guessing,
        better_than_guessing=measure.better(value, guessing.high if measure.higher_is_better else guessing.low),
    )
    return Judgement(document, {Answered.file: trained.to_bytes()})


def reader_of(case: Case, split: str) -> SplitReader:
    """Return the reader of a split of the run's data."""
    return open_split(case.store, case.spec.dataset_folder, case.manifest, split, case.reporter)


def batches_of(
    case: Case, reader: SplitReader, fields: tuple[str, ...], ids: npt.NDArray[np.int64] | None = None
) -> EvaluationInput:
    """Return the batches of a split, or of some of its records.

    Args:
        case: the run to evaluate.
        reader: the reader of a split.
        fields: the record fields to read.
        ids: positions of the records; all by default.
    """
    return EvaluationInput(
        reader,
        case.manifest,
        fields,
        batch_size=case.spec.batch_size,
        ids=ids,
    )


class Asked(NamedTuple):
    """A model's outputs for examples, float32 (n, outputs), and their targets, (n, …)."""

    outputs: npt.NDArray[np.float32]
    targets: Array


def ask(
    model: Callable[..., tf.Tensor],
    strategy: tf.distribute.Strategy,
    batches: EvaluationInput,
    target: str,
    news: Callable[[int], None],
) -> Asked:
    """Return a model's outputs for examples; ``news`` is called with the size of each batch.

    Raises:
        DivergenceError: the outputs are not finite.
    """
    outputs, targets = list[Array](), list[Array]()
    with batches.explained():
        for found, fields in answers_of(model, strategy)(batches):
            outputs.append(found)
            targets.append(fields[target])
            news(len(found))
    asked = Asked(np.concatenate(outputs), np.concatenate(targets))
    for record in np.flatnonzero(~np.isfinite(asked.outputs).all(axis=1)):
        raise DivergenceError(f"record {record}: the model's outputs are not finite; its training diverged")
    return asked


def answered(
    kind: ExampleKind,
    recipe: Recipe,
    model: keras.Model,
    reader: SplitReader,
    manifest: Manifest,
    reporter: Reporter,
    ids: npt.NDArray[np.int64] | None = None,
) -> Answered:
    """Run a model on every example of a split, or on some, and return the answers.

    Raises:
        ArtifactError: the data changed while they were read.
        DivergenceError: the model's outputs are not finite.
    """
    fields = (IMAGE, kind.target)
    batches = EvaluationInput(reader, manifest, fields, batch_size=recipe.evaluation_batch_size, ids=ids)
    news = News(reporter, batches.count)
    asked = ask(model, tf.distribute.get_strategy(), batches, kind.target, news.done)
    reader.require_unchanged()
    return _decoded(kind, recipe, asked)


def _decoded(kind: ExampleKind, recipe: Recipe, asked: Asked) -> Answered:
    return Answered(asked.targets, kind.decoded(asked.outputs, recipe))


def _figures(kind: ExampleKind, said: Answered, case: Case) -> ImageFigures:
    return ImageFigures(examples=len(said.labels), metrics=figures_of(said, kind.name, failed=case.problems.add))


def asked(
    kind: ExampleKind, spec: ShowSpec, model: keras.Model, store: Store, manifest: Manifest, reporter: Reporter
) -> tuple[Block, int, int]:
    """Return the first test examples with a run's answers."""
    reader = open_split(store, spec.dataset_folder, manifest, EVALUATION_SPLIT)
    said = answered(kind, spec.recipe, model, reader, manifest, reporter)
    first = np.arange(min(spec.examples, len(said.labels)))
    images = reader.gather(first, (IMAGE,))[IMAGE]
    answers, targets = (kind.words(values[first], manifest) for values in (said.answers, said.labels))
    pictures = [Picture(image, f"{a}\nis {t}") for image, a, t in zip(images, answers, targets, strict=True)]
    figure = metric_text(kind.measure, figures_of(said, kind.name)[kind.measure])
    about = f"test examples with its answers; its {measure_named(kind.measure).label} on all of them is {figure}"
    return Block(f"Answers of {spec.run}", about, [PictureRow("the first", pictures)]), 0, 0
