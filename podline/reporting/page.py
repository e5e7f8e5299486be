"""The report's HTML page and its Markdown twin, from the same tables and sentences."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from podline import figures
from podline.measures import shown
from podline.reporting import charts, pictures, quoted, tables, verdict
from podline.reporting.class_facts import ClassFacts
from podline.reporting.facts import RunFacts
from podline.reporting.origin_table import origin_table
from podline.reporting.over_nights import thinned
from podline.reporting.templates import MARKDOWN_TEMPLATES, TEMPLATES, unbroken
from podline.store.contract import INDEX


def html(facts: ClassFacts) -> str:
    """The page: one self-contained HTML document."""
    template = TEMPLATES.get_template("page.html")
    return unbroken(template.render(_content(facts), charts=_charts(facts), pictures=_pictures(facts)))


def markdown(facts: ClassFacts) -> str:
    """The same in Markdown, with the same figures; without charts and pictures."""
    return MARKDOWN_TEMPLATES.get_template("page.md").render(_content(facts))


def run_content(facts: RunFacts) -> dict[str, Any]:
    """What is shown of a run of any kind: data, recipe, training and what happened."""
    manifest = facts.manifest
    return {
        "run": facts.spec.run,
        "index": "../" * len(facts.spec.record_folder.split("/")) + INDEX,
        "recipe_name": facts.recipe.name,
        "dataset": manifest.dataset,
        "finished": figures.moment(facts.events[-1].time) if facts.events else "",
        "data": tables.dataset(manifest),
        "splits": tables.splits(manifest),
        "class_counts": tables.class_counts(manifest),
        "remarks": facts.remarks,
        "quarantine": tables.quarantine(manifest),
        "sources": tables.sources(manifest),
        "model": tables.model(facts.model),
        "layers": tables.layers(facts.model),
        "recipe": tables.recipe(facts.recipe),
        "stages": tables.stages(facts.stages),
        "together": figures.duration(sum(seconds for _, seconds in facts.stages)),
        "throughput": _throughput(facts),
        "findings": tables.findings(facts.findings, facts.events),
        "decisions": tables.decisions(facts.decisions),
        "events": tables.events(facts.events),
        "tpu": tables.tpu(facts.tpu),
        "initial_weights": tables.facts(facts.initial_weights.rows()) if facts.initial_weights else None,
        "origin": origin_table(facts.origin),
        "command": facts.spec.command,
        "sections": facts.sections,
    }


def _content(facts: ClassFacts) -> dict[str, Any]:
    """What both templates show."""
    evaluation = facts.evaluation
    about = f"of the {evaluation.split} split of {evaluation.dataset} labelled correctly"
    return (
        run_content(facts)
        | verdict.content(facts, about, _against_guessing(facts), _tiles(facts))
        | {
            "evaluated": facts.evaluations[-1].split if facts.evaluations else evaluation.split,
            "many_classes": len(evaluation.class_names) > charts.MANY_CLASSES,
            "metrics": tables.metrics(evaluation),
            "per_class": tables.per_class(evaluation),
            "weakest": tables.weakest(evaluation),
            "all_classes": len(evaluation.class_names),
            "matrix_rows": charts.MATRIX_ROWS,
            "confusion": tables.confusion(evaluation),
            "confusions": tables.confusions(evaluation),
            "calibration": tables.calibration(evaluation),
            "mistakes": tables.mistakes(evaluation),
        }
    )


def _against_guessing(facts: ClassFacts) -> str:
    """Return what the figure is measured against, in words."""
    evaluation, fig = facts.evaluation, facts.fig
    judged = (
        ""
        if evaluation.better_than_guessing
        else " The result cannot be told from guessing: look for what is wrong before anything else."
    )
    return quoted.joined(
        f"Always naming the most frequent class of the {evaluation.split} split would be right for ",
        fig.metric("evaluation.guessing", "top1"),
        ", the same network before training for ",
        fig.metric("evaluation.untrained.metrics.top1"),
        f".{judged} On ",
        fig("evaluation.seen.examples"),
        " examples that it was trained on the model is right for ",
        fig.metric("evaluation.seen.metrics.top1"),
        ".",
    )


def _tiles(facts: ClassFacts) -> list[verdict.Tile]:
    """What is looked at first, after the accuracy."""
    metrics = facts.evaluation.trained.metrics
    return [verdict.metric_tile(facts, measure.name) for measure in shown(metrics) if measure.name != "top1"]


def _throughput(facts: RunFacts) -> str:
    fig = facts.fig
    sizes = ", then ".join(figures.count(size) for size in facts.recipe.batch_sizes)
    return quoted.joined(
        fig("training.steps"),
        f" steps of {sizes} examples, ",
        fig("training.epochs", lambda epochs: f"{epochs:.4g}"),
        f" epochs, on {facts.training.devices}: ",
        fig("training.examples_per_second", figures.rate),
        " examples/s; ",
        fig("training.waiting_for_input", figures.percent),
        " of the time went by waiting for input.",
        f" {facts.slow}" if facts.slow else "",
    )


def _charts(facts: ClassFacts) -> dict[str, Markup]:
    evaluation = facts.evaluation
    top1 = evaluation.trained.metrics["top1"].value
    return (
        run_charts(facts)
        | verdict.charts(facts)
        | {
            "verdict": charts.verdict(evaluation, "top1", "on seen examples"),
            "accuracy": charts.accuracy(thinned(facts.steps), facts.evaluations, facts.rejected),
            "confusion": charts.confusion(evaluation),
            "per_class": charts.per_class(evaluation.per_class, top1, tables.MOST_CLASSES),
            "calibration": charts.calibration(
                evaluation.calibration, evaluation.trained.metrics["calibration_error"].value
            ),
        }
    )


def run_charts(facts: RunFacts) -> dict[str, Markup]:
    """The charts that a run of any kind has."""
    steps = thinned(facts.steps)
    return {
        "loss": charts.loss(steps, facts.evaluations, facts.rejected),
        "learning_rate": charts.learning_rate(steps),
        "throughput": charts.throughput(steps),
        "stages": charts.stages(facts.stages),
    }


def _pictures(facts: ClassFacts) -> list[dict[str, str]]:
    names = facts.evaluation.class_names
    return [
        {
            "uri": pictures.data_uri(image),
            "label": names[mistake.label],
            "prediction": names[mistake.prediction],
            "confidence": figures.percent(mistake.confidence),
            "record": figures.count(mistake.record),
        }
        for mistake, image in zip(facts.evaluation.mistakes, facts.mistakes, strict=True)
    ]
