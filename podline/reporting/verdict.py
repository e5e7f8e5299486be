"""The top of a report: a sentence, and the figures that matter most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from podline import figures
from podline.documents.metric import Metric
from podline.documents.promotion import Promotion
from podline.kinds.table import kind_of
from podline.measures import measure_named
from podline.reporting import pictures
from podline.reporting.blocks import Block, Heading, Items, Picture, Pictures, Text
from podline.reporting.charts import Night, nights
from podline.reporting.drop import Explained
from podline.reporting.facts import RunFacts
from podline.reporting.over_nights import spark
from podline.reporting.pairs import LostExample
from podline.reporting.sections import section
from podline.reporting.standing import Rival, word_of

# Rules, classes or joints that refused a model and are named in the sentence.
_NAMED = 3


class Tile(NamedTuple):
    """A figure by itself.

    Attributes:
        name: what it is.
        figure: with its interval.
        change: since the run that it is held against, with its sign; empty where there is none.
        word: what to think of the change: ``better``, ``worse``, ``noise``; empty where nothing can be thought.
        line: of the last nights.
    """

    name: str
    figure: str
    change: str = ""
    word: str = ""
    line: Markup = Markup()

    @property
    def arrow(self) -> str:
        """The direction of the change."""
        return figures.arrow(self.change)


class Headline(NamedTuple):
    """What a kind of task says at the top.

    Attributes:
        about: what the metric that counts is a figure of, as the words that follow it.
        guessing: what it is measured against, in sentences.
        tiles: the figures beside it.
    """

    about: str
    guessing: str
    tiles: Sequence[Tile]


def content(facts: RunFacts, headline: Headline) -> dict[str, Any]:
    """Return what the page and its Markdown show of it."""
    evaluation, rival = facts.evaluation, facts.standing.rival
    measure = evaluation.measure
    metric = evaluation.trained.metrics[measure]
    figure = figures.with_name(measure, figures.value_text(measure, metric.value))
    return {
        "title": f"{facts.recipe.name}: {figure}",
        "split": evaluation.split,
        "figure": figure,
        "interval": figures.interval_text(measure, metric),
        "sentence": _sentence(facts, headline.about),
        "better_than_guessing": evaluation.better_than_guessing,
        "against_guessing": headline.guessing,
        "rival": rival,
        "rival_change": figures.change_text(measure, rival.difference.value) if rival else "",
        "against_rival": _against_rival(facts, rival) if rival else "",
        "promotion": facts.standing.promotion,
        "nights": len(facts.standing.nights),
        "caption": kind_of(evaluation).caption,
        "tiles": [*headline.tiles, *_training_tiles(facts)],
    }


def charts(facts: RunFacts) -> dict[str, Markup]:
    """The chart of the last nights, if there are any."""
    evaluation, standing = facts.evaluation, facts.standing
    if not standing.nights:
        return {}
    measure = evaluation.measure
    earlier = [Night(figures.day(entry.ended), _metrics(entry)[measure]) for entry in standing.nights]
    this = Night("this run", evaluation.trained.metrics[measure])
    champion = standing.rival if standing.rival and standing.rival.role == "champion" else None
    return {
        "nights": nights(earlier, this, measure, champion.evaluation.trained.metrics[measure] if champion else None)
    }


def metric_tile(facts: RunFacts, name: str) -> Tile:
    """A metric of the trained model, with what became of it."""
    metrics, standing = facts.evaluation.trained.metrics, facts.standing
    tile = Tile(measure_named(name).label, figures.metric_text(name, metrics[name]))
    before = [found[name].value for found in map(_metrics, standing.nights) if name in found]
    if before:
        tile = tile._replace(line=spark(name, [*before, metrics[name].value]))
    if standing.rival and name in standing.rival.differences:
        difference = standing.rival.differences[name]
        known = metrics[name].low != metrics[name].high
        tile = tile._replace(
            change=figures.change_text(name, difference.value), word=word_of(name, difference) if known else ""
        )
    return tile


def _metrics(entry: Any) -> dict[str, Metric]:
    return entry.outcome.metrics if entry.outcome else {}


def _sentence(facts: RunFacts, about: str) -> str:
    """What was trained on what, and what to think of the figure; the figure itself stands before it."""
    guessing = "better than guessing" if facts.evaluation.better_than_guessing else "no better than guessing"
    return (
        f"{about} by recipe {facts.recipe.name}, trained for {facts.training.epochs:.4g} epochs on "
        f"{figures.count(facts.manifest.split('train').records)} images: {', '.join([guessing, *_compared(facts)])}."
    )


def _compared(facts: RunFacts) -> list[str]:
    """What to think of the run beside its rival, in a few words."""
    rival, promotion = facts.standing.rival, facts.standing.promotion
    said = []
    if rival is not None:
        change = figures.change_text(facts.evaluation.measure, rival.difference.value)
        said = [
            {
                "noise": f"no more than chance away from the {rival.role} ({change})",
                "seed": f"{change} against the {rival.role}, which may be caused by the seed",
                "beyond": f"{change[1:]} {rival.word()} than the {rival.role}",
            }[rival.difference.chance]
        ]
    elif not facts.standing.nights:
        said = ["the first run with these settings"]
    return said if promotion is None else [*said, _decided(promotion)]


def _decided(promotion: Promotion) -> str:
    """The decision on its promotion in a few words; all of it is told below."""
    if promotion.promoted:
        return "promoted to champion"
    if promotion.undecided:
        return "undecided as champion"
    names = [check.name for check in promotion.refusals]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"refused as champion for {', '.join(names[:_NAMED])}{more}"


def _against_rival(facts: RunFacts, rival: Rival) -> str:
    """The comparison in full."""
    measure, difference = facts.evaluation.measure, rival.difference
    low, high = (figures.change_bound(measure, end) for end in (difference.low, difference.high))
    other = figures.metric_text(measure, rival.evaluation.trained.metrics[measure])
    told = f"; {difference.gained} gained, {difference.lost} lost" if difference.gained is not None else ""
    chance = {
        "noise": "chance alone could well have done that",
        "seed": "that may be caused by the seed",
        "beyond": "that is beyond chance",
    }[difference.chance]
    return (
        f" [{low}, {high}] against the {rival.role}, {rival.run}, with {other}: {chance} ({difference.method}{told})."
    )


@section("What differs")
def why_worse(run: RunFacts) -> Iterator[Block]:
    """Show what another run did better, with examples."""
    if run.standing.worse is None:
        return
    drop, in_pairs = run.standing.worse.drop, run.standing.worse.in_pairs
    yield Items([line for line in drop.lines() if not line.startswith("record ")])
    found = [
        _lost(run.standing.worse, lost, images)
        for lost, images in zip(drop.examples, run.standing.worse.pictures, strict=True)
    ]
    if not found:
        return
    yield Heading(drop.heading())
    yield Pictures(found, "pairs" if in_pairs else "small")
    sides = f"Before the arrow: what {drop.against} says."
    if in_pairs:
        sides = (
            f"On the left, and before the arrow, what {drop.against} finds; on the right what this run finds. "
            "Instances that only the first finds are framed; joints that only the first puts in their place are ringed "
            "there. An instance is found at OKS 0.5, a joint is close at a similarity of 0.5."
        )
    yield Text(sides, "note")


def _lost(worse: Explained, lost: LostExample, images: Sequence[npt.NDArray[np.uint8]]) -> Picture:
    drop, record = worse.drop, figures.count(lost.record)
    if not worse.in_pairs:
        shown = [(pictures.data_uri(images[0]), f"Test example {record}, {lost.name}")]
        return Picture(shown, f"{lost.name}: {lost.before} → {lost.after}", [f"record {record}"])
    of = f"{lost.name[:1].upper()}{lost.name[1:]} with the instances that"
    alts = (f"{of} {drop.against} finds", f"{of} this run finds")
    shown = [(pictures.photo_uri(image, pictures.LOST_PHOTO), alt) for image, alt in zip(images, alts, strict=True)]
    return Picture(shown, f"{lost.before} → {lost.after}", [f"{lost.name}, record {record}"])


def _training_tiles(facts: RunFacts) -> list[Tile]:
    """What training cost."""
    return [
        Tile("parameters", figures.short_count(facts.training.parameters)),
        Tile("training", figures.duration(facts.training.seconds)),
        Tile("examples a second", figures.rate(facts.training.examples_per_second)),
    ]
