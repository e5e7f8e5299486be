"""What a person is told when a stage is done: a few lines for each kind of result."""

from __future__ import annotations

from functools import singledispatch

from podline.documents.metric import Metric
from podline.figures import count, duration, metric_text, percent, rate, size
from podline.inventory.catalogue import training_of
from podline.measures import measure_named, shown
from podline.plurals import plural
from podline.recipes.datasets import noun_in
from podline.stages.preflight import Preflight
from podline.stages.specs import ConvertResult, EvaluateResult, ReportResult, Result, TrainResult, ValidateResult
from podline.store.contract import Store


@singledispatch
def _lines(result: Result, _store: Store) -> list[str]:
    return [result.model_dump_json(indent=2)]


def result_lines(store: Store, result: Result) -> list[str]:
    """A stage's result in words.

    Args:
        store: where the names that the result holds are.
        result: what the stage answered.
    """
    return _lines(result, store)


@_lines.register
def _(result: ConvertResult, store: Store) -> list[str]:
    splits = ", ".join(f"{count(records)} {name}" for name, records in result.splits.items())
    lines = [f"{result.dataset}: {splits} examples, {size(result.bytes)}", f"{store.where(result.folder)}"]
    if result.quarantined:
        lines.append(f"quarantined: {count(result.quarantined)} of {plural(result.read, 'record')}; see the manifest")
    return lines


@_lines.register
def _(result: ValidateResult, _store: Store) -> list[str]:
    count = result.duplicates_within
    twice = f"; not the only one of its split: {plural(count, 'image')}" if count else ""
    checked = f"as the manifest says: {plural(result.records, 'record')} in {plural(result.shards, 'shard')}"
    return [checked + twice]


@_lines.register
def _(result: TrainResult, store: Store) -> list[str]:
    return [
        f"{result.run}: {plural(result.steps, 'step')} in {duration(result.seconds)}, loss {result.loss:.3f}",
        f"{rate(result.examples_per_second)} examples/s, {percent(result.waiting_for_input)} of it waiting for input",
        f"{store.where(result.folder)}",
    ]


@_lines.register
def _(result: Preflight, _store: Store) -> list[str]:
    return result.lines()


@_lines.register
def _(result: EvaluateResult, store: Store) -> list[str]:
    noun = noun_in(training_of(store, result.run).recipe.dataset)
    figures = [
        f"{noun.said(measure.label)} {metric_text(measure.name, result.metrics[measure.name])}"
        for measure in shown(result.metrics)
    ]
    if result.over_views:
        averaged = metric_text(result.measure, result.over_views[result.measure])
        figures.append(f"{noun.said(measure_named(result.measure).label)} over {result.views} views {averaged}")
    untrained = metric_text(result.measure, Metric(value=result.untrained, low=result.untrained, high=result.untrained))
    return [f"{result.run}: {plural(result.examples, 'example')}, untrained {untrained}", *figures]


@_lines.register
def _(result: ReportResult, store: Store) -> list[str]:
    return [f"{store.where(result.html)}", f"{store.where(result.markdown)}"]
