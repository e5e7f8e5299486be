"""Renders the top of a report: a sentence about the run, and the main metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from podline.base import figures
from podline.base.drawing.svg import Svg
from podline.base.plurals import first_few, plural
from podline.compare.comparison import Pairing
from podline.compare.lost import Explained
from podline.compare.words import Word, signed, word_of
from podline.contract.answers import LostExample
from podline.documents.ledger_entry import Entry
from podline.documents.manifest import NEARLY_REPEAT, USUAL_KIND
from podline.documents.metric import Metric
from podline.documents.promotion import Promotion
from podline.recipes import measures
from podline.recipes.measures import measure_named
from podline.report import charts, pictures
from podline.report.blocks import (
    Block,
    Change,
    Chart,
    Code,
    Grid,
    Heading,
    Items,
    Kicker,
    Picture,
    Pictures,
    Standing,
    Table,
    Text,
    Tile,
    Tiles,
    Title,
)
from podline.report.facts import RunFacts
from podline.report.kind_report import reported_kind
from podline.report.over_nights import spark
from podline.report.sections import section
from podline.store.contract import INDEX

# Largest number of refusing rules, classes or joints, of findings and of remarks that are listed.
_NAMED = 3
# If the interval of the main metric is wider, the page warns that the test split is too small.
_WIDE = 0.2
_WORDS: dict[str, Word] = {"promoted": "better", "refused": "worse", "undecided": "noise"}


def header(run: RunFacts, worst: str) -> Iterator[Block]:
    """Yield the blocks at the top of the page; ``worst`` is a sentence about the worst mistake."""
    evaluation, standing = run.evaluation, run.standing
    kind, measure = reported_kind(evaluation), evaluation.measure
    headline, metric = kind.headline(run), evaluation.trained.metrics[measure]
    finished = [f"trained {figures.moment(run.events[-1].time)}"] if run.events else []
    yield Kicker([f"run {run.spec.run}", *finished], "../" * len(run.spec.record_folder.split("/")) + INDEX)
    yield Title(title(run), _sentence(run, headline.about), measures.interval_text(measure, metric))
    if lines := [*_attention(run)]:
        yield Standing("Look at this first", "", lines, "worse" if not evaluation.better_than_guessing else "noise")
    if standing.rival:
        yield _against_rival(standing.rival, standing.role)
    if standing.promotion:
        first, *lines = standing.promotion.lines()
        verdict = standing.promotion.verdict
        yield Standing(verdict.capitalize(), f": {first}.", lines, _WORDS[verdict])
        compared = standing.promotion.compared
        if compared and (rows := compared.rows()):
            yield Table(["test examples", "how many", f"{compared.measure}, this run", "the reference"], rows)
    guessing = Text(f"{headline.guessing} {worst}".strip(), "" if evaluation.better_than_guessing else "warning")
    result = Chart(charts.verdict(evaluation), caption=kind.facts.caption)
    if standing.nights:
        caption = "Earlier runs with the same settings, and this run; bars are 95 % intervals."
        yield Grid(Chart(_nights(run), caption=caption), result)
        yield guessing
    else:
        yield Grid(guessing, result)
    yield Tiles([*headline.tiles, *_training_tiles(run)], _legend(run))


def title(run: RunFacts) -> str:
    """Return value and name of the main metric as text."""
    measure = run.evaluation.measure
    return measures.with_name(measure, measures.value_text(measure, run.evaluation.trained.metrics[measure].value))


def _nights(run: RunFacts) -> Svg:
    evaluation, standing = run.evaluation, run.standing
    measure = evaluation.measure
    points = [(figures.day(entry.ended), _metrics(entry)[measure]) for entry in standing.nights]
    points.append(("this run", evaluation.trained.metrics[measure]))
    reference = standing.rival.before.evaluation if standing.rival and standing.role == "reference" else None
    return charts.nights(points, measure, reference.trained.metrics[measure] if reference else None)


def _legend(run: RunFacts) -> str:
    standing = run.standing
    if standing.rival is None:
        return ""
    lines = " Small lines: the runs of the chart." if standing.nights else ""
    return f"Arrows: change from the {standing.role}; green is significantly better, red significantly worse.{lines}"


def metric_tile(facts: RunFacts, name: str) -> Tile:
    """Return a tile with a metric of the trained model, and, if known, the change from the rival and a sparkline."""
    metrics, standing = facts.evaluation.trained.metrics, facts.standing
    tile = Tile(measure_named(name).label, measures.metric_text(name, metrics[name]))
    before = [found[name].value for found in map(_metrics, standing.nights) if name in found]
    if before:
        tile = tile._replace(line=spark(name, [*before, metrics[name].value]))
    if standing.rival and name in standing.rival.comparison.differences:
        change = standing.rival.comparison.differences[name]
        known = metrics[name].low != metrics[name].high
        word = word_of(name, change.value, change.chance) if known else ""
        tile = tile._replace(change=Change(measures.change_text(name, change.value), word))
    return tile


def _metrics(entry: Entry) -> dict[str, Metric]:
    return entry.outcome.metrics if entry.outcome else {}


def _sentence(facts: RunFacts, about: str) -> str:
    guessing = "Better than guessing" if facts.evaluation.better_than_guessing else "No better than guessing"
    epochs = facts.training.epochs
    passes = "epoch" if epochs == 1 else "epochs"
    images = figures.count(facts.manifest.split("train").records)
    return (
        f"{about}. {', '.join([guessing, *_compared(facts)])}. Recipe {facts.recipe.name}, {epochs:.4g} {passes} of "
        f"{images} images."
    )


def _attention(run: RunFacts) -> Iterator[str]:
    """Yield the problems to look at first: a small split, findings, problems of the data, slow training."""
    evaluation = run.evaluation
    metric = evaluation.trained.metrics[evaluation.measure]
    if metric.high - metric.low > _WIDE and metric.high <= 1:
        few = plural(evaluation.examples, f"{evaluation.split} example")
        low, high = (measures.value_text(evaluation.measure, bound) for bound in (metric.low, metric.high))
        yield f"Only {few}: the figure may be anything from {low} to {high}; add {evaluation.split} images"
    found = {(line.finding, line.where): line for line in run.findings if not line.over}
    for line in [*found.values()][:_NAMED]:
        yield f"{line.finding.replace('_', ' ').capitalize()}: {line.message}; {line.suggestion}"
    if len(found) > _NAMED:
        yield f"{plural(len(found) - _NAMED, 'more finding')} below"
    for rule, times in run.manifest.counted.items():
        if NEARLY_REPEAT in rule:
            yield f"{figures.count(times)} {rule}: the figure may not hold for new images"
    if left_out := run.manifest.quarantined:
        first = f"{left_out[0].record} {left_out[0].reason}"
        yield f"{plural(len(left_out), 'record')} of the source left out, such as {first}; see Data"
    yield from run.remarks[:_NAMED]
    if run.slow:
        yield run.slow


def _compared(facts: RunFacts) -> list[str]:
    """Describe comparison and promotion in a few words each, such as ``57.0 points worse than the night before``."""
    standing, said = facts.standing, []
    if standing.rival:
        found = standing.rival.comparison
        by = signed(found.measure, found.difference.value)
        than = f"the same as the {standing.role}" if by == "the same" else f"{by} than the {standing.role}"
        said = [than, *filter(None, [found.what_changed])]
    elif not standing.nights:
        said = ["the first run with these settings"]
    return [*said, *([_decided(standing.promotion)] if standing.promotion else [])]


def _decided(promotion: Promotion) -> str:
    if promotion.promoted:
        return "promoted to champion"
    if promotion.undecided:
        return "undecided as champion"
    return f"refused as champion for {first_few([check.name for check in promotion.refusals], _NAMED)}"


def _against_rival(rival: Pairing, role: str) -> Standing:
    """Return the comparison with the rival as a highlighted sentence, like ``podline runs compare``."""
    found, measure = rival.comparison, rival.comparison.measure
    change = measures.change_text(measure, found.difference.value)
    # On common examples, the other run's metric differs from its own evaluation.
    theirs = measures.metric_text(measure, rival.before.evaluation.trained.metrics[measure])
    own = "" if found.examples else f", {theirs}"
    text = f" against the {role}{own}: {found.sentence()}."
    return Standing(change, text, style=found.word, sign=figures.arrow(change))


@section("What next")
def what_next(run: RunFacts) -> Iterator[Block]:
    """Show the next commands."""
    name, standing, dataset = run.spec.run, run.standing, run.manifest.dataset
    commands = {
        f"podline models predict {name} photos/ --table answers.parquet": "answers for a folder",
        f"podline models serve {name}": "answers over HTTP",
    }
    if standing.rival:
        against = standing.rival.comparison.against
        commands[f"podline runs compare {name} {against} --why"] = "what differs, with examples"
    if standing.promotion is None:
        commands[f"podline models promote {name} --dry-run"] = "whether it would become the champion"
    if "." in dataset and run.recipe.kind == USUAL_KIND:
        commands[f"podline data suspects {run.recipe.name}"] = "labels that are probably wrong"
    yield Code.of(commands)
    yield Text("Add --root if the store is not the default one. More images like the mistakes help most.", "note")


@section("What differs")
def why_worse(run: RunFacts) -> Iterator[Block]:
    """Show why the run is significantly worse than the rival, with examples that only the rival answers correctly."""
    if run.standing.worse is None:
        return
    worse, why, in_pairs = run.standing.worse, run.standing.worse.why, run.standing.worse.in_pairs
    yield Items(why.causes())
    looked_at = worse.looked_at or [None] * len(why.examples)
    found = [_lost(worse, *example) for example in zip(why.examples, worse.pictures, looked_at, strict=True)]
    if not found:
        return
    yield Heading(why.heading())
    yield Pictures(found, "pairs" if in_pairs else "small")
    sides = f"Before the arrow: the answer of {why.comparison.against}."
    if worse.looked_at:
        sides += " Below, in yellow: the places that support this run’s answer most (Grad-CAM)."
    if in_pairs:
        sides = (
            f"On the left, and before the arrow: the instances that {why.comparison.against} predicts; on the right "
            "those of this run. A frame marks an instance that only the run on the left finds, at an OKS of 0.5. A "
            "ring marks a labelled joint that only the run on the left predicts closely, at a similarity of 0.5."
        )
    yield Text(sides, "note")


def _lost(
    worse: Explained,
    lost: LostExample,
    images: Sequence[npt.NDArray[np.uint8]],
    looked_at: npt.NDArray[np.uint8] | None,
) -> Picture:
    record = figures.count(lost.record)
    if not worse.in_pairs:
        shown = [(pictures.data_uri(images[0]), f"Test example {record}, {lost.name}")]
        if looked_at is not None:
            shown.append((pictures.data_uri(looked_at), "Places where this run's model looks"))
        return Picture(shown, f"{lost.name}: {lost.before} → {lost.after}", [f"record {record}"])
    of = f"{lost.name[:1].upper()}{lost.name[1:]} with the instances that"
    alts = (f"{of} {worse.why.comparison.against} finds", f"{of} this run finds")
    shown = [(pictures.photo_uri(image, pictures.LOST_PHOTO), alt) for image, alt in zip(images, alts, strict=True)]
    return Picture(shown, f"{lost.before} → {lost.after}", [f"{lost.name}, record {record}"])


def _training_tiles(facts: RunFacts) -> Iterator[Tile]:
    yield Tile("size of the model", figures.size(facts.model.bytes))
    if facts.milliseconds:
        yield Tile("ms an image", figures.rounded(float(f"{facts.milliseconds:.2g}")))
    yield Tile("training", figures.duration(facts.training.seconds))
