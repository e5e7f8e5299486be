"""The page and its Markdown twin: templates filled with the same tables and the same sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from podline.evaluation.document import Evaluation
from podline.reporting import charts, figures, pictures, tables
from podline.reporting.facts import Facts, RunFacts
from podline.reporting.templates import TEMPLATES


def html(facts: Facts) -> str:
    """The page: one self-contained HTML document."""
    template = TEMPLATES.get_template("page.html")
    return unbroken(template.render(_content(facts), charts=_charts(facts), pictures=_pictures(facts)))


def unbroken(page: str) -> str:
    """A page on which a figure and its unit are never on two lines."""
    # A figure and its unit stay on one line, and so do the ends of an interval.
    page = re.sub(r"(\d) %", "\\1\N{NO-BREAK SPACE}%", page)
    return re.sub(r"(\[[\d.]+,) ([\d.]+\])", "\\1\N{NO-BREAK SPACE}\\2", page)


def markdown(facts: Facts) -> str:
    """The same in Markdown, with the same figures; without charts and pictures."""
    return TEMPLATES.get_template("page.md").render(_content(facts))


def run_content(facts: RunFacts) -> dict[str, Any]:
    """What is shown of a run of any kind: data, recipe, training and what happened."""
    manifest = facts.manifest
    return {
        "run": facts.spec.run,
        "recipe_name": facts.recipe.name,
        "dataset": manifest.dataset,
        "finished": figures.moment(facts.events[-1].time) if facts.events else "",
        "data": tables.dataset(manifest),
        "splits": tables.splits(manifest),
        "class_counts": tables.class_counts(manifest),
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
        "versions": tables.versions(facts.versions),
        "command": facts.spec.command,
    }


def _content(facts: Facts) -> dict[str, Any]:
    """What both templates show."""
    evaluation = facts.evaluation
    top1 = evaluation.trained.metrics["top1"]
    return run_content(facts) | {
        "split": evaluation.split,
        "evaluated": facts.evaluations[-1].split if facts.evaluations else evaluation.split,
        "accuracy": figures.percent(top1.value),
        "interval": figures.interval(top1),
        "sentences": _sentences(facts),
        "better_than_guessing": evaluation.better_than_guessing,
        "tiles": [*_metric_tiles(evaluation), *training_tiles(facts)],
        "many_classes": len(evaluation.class_names) > charts.MANY_CLASSES,
        "metrics": tables.metrics(evaluation),
        "per_class": tables.per_class(evaluation),
        "weakest": tables.weakest(evaluation),
        "confusion": tables.confusion(evaluation),
        "confusions": tables.confusions(evaluation),
        "calibration": tables.calibration(evaluation),
        "mistakes": tables.mistakes(evaluation),
    }


def _sentences(facts: Facts) -> list[str]:
    """The verdict in words: what the figure is measured against."""
    evaluation = facts.evaluation
    guessing, untrained = evaluation.guessing, evaluation.untrained.metrics["top1"]
    against = (
        f"Always naming the most frequent class of the training split would be right for "
        f"{figures.percent_within(guessing)}, the same network before training for {figures.percent_within(untrained)}."
    )
    judged = (
        "The result is better than guessing."
        if evaluation.better_than_guessing
        else "The result cannot be told from guessing: look for what is wrong before anything else."
    )
    seen = evaluation.seen
    memory = (
        f"On {figures.count(seen.examples)} examples that it was trained on the model is right for "
        f"{figures.percent_within(seen.metrics['top1'])}."
    )
    return [against, judged, memory]


def _metric_tiles(evaluation: Evaluation) -> list[tuple[str, str]]:
    """(name, figure) for what is looked at first, after the accuracy."""
    scored = evaluation.trained
    return [
        (words, figures.metric_text(name, scored.metrics[name]))
        for name, words in figures.METRIC_NAMES.items()
        if name != "top1" and name in scored.metrics
    ]


def training_tiles(facts: RunFacts) -> list[tuple[str, str]]:
    """(name, figure) for what training cost."""
    training = facts.training
    return [
        ("parameters", figures.short_count(training.parameters)),
        ("training", figures.duration(training.seconds)),
        ("examples a second", figures.rate(training.examples_per_second)),
    ]


def _throughput(facts: RunFacts) -> str:
    training = facts.training
    sizes = ", then ".join(figures.count(size) for size in facts.recipe.batch_sizes)
    speed, waiting = figures.rate(training.examples_per_second), figures.percent(training.waiting_for_input)
    return (
        f"{figures.count(training.steps)} steps of {sizes} examples, "
        f"{training.epochs:.4g} epochs, on {training.devices}: {speed} examples/s; "
        f"{waiting} of the time went by waiting for input."
    )


def _charts(facts: Facts) -> dict[str, Markup]:
    evaluation = facts.evaluation
    top1 = evaluation.trained.metrics["top1"].value
    drawn = run_charts(facts) | {
        "verdict": charts.verdict(evaluation, "top1", "on seen examples"),
        "accuracy": charts.accuracy(facts.steps, facts.evaluations, facts.rejected),
        "confusion": charts.confusion(evaluation),
        "per_class": charts.per_class(evaluation.per_class, top1),
        "calibration": charts.calibration(
            evaluation.calibration, evaluation.trained.metrics["calibration_error"].value
        ),
    }
    return marked(drawn)


def run_charts(facts: RunFacts) -> dict[str, str]:
    """The charts that a run of any kind has."""
    return {
        "loss": charts.loss(facts.steps, facts.evaluations, facts.rejected),
        "learning_rate": charts.learning_rate(facts.steps),
        "throughput": charts.throughput(facts.steps),
        "stages": charts.stages(facts.stages),
    }


def marked(drawn: Mapping[str, str]) -> dict[str, Markup]:
    """Charts as parts of a page, which nothing escapes."""
    return {name: Markup(svg) for name, svg in drawn.items()}  # noqa: S704 (our own drawing; its alt text is escaped)


def _pictures(facts: Facts) -> list[dict[str, str]]:
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
