"""The report's tables, as rows of text for both page and Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from podline import figures
from podline.documents.evaluation import Evaluation
from podline.documents.manifest import Manifest
from podline.documents.metrics_log import AnnealingLine, EventLine, FindingLine, PlateauLine
from podline.documents.model_description import ModelDescription
from podline.ledger.differences import NONE
from podline.measures import shown
from podline.recipes.settings import Recipe
from podline.reporting.quoted import Quotes
from podline.reporting.templates import TEMPLATES, Markdown, markdown
from podline.settings import flat
from podline.tpu.tpu_log import TpuLogEntry, rows

# Pairs of classes that are listed as the most frequent confusions.
_CONFUSIONS = 10
# Classes that are listed as the weakest, where there are too many to look at each.
_WEAKEST = 10
MOST_CLASSES = 500
"""Classes in a table or a chart: a page with more is too large to open."""
# Records that are named for each reason of quarantine.
_NAMED_RECORDS = 5


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        columns: their names.
        rows: texts, of which some may be quoted; the first of a row says what the row is about.
        words: how many columns, from the left, hold words; the others hold figures, which are aligned right.
        header: whether the columns' names say anything.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    header: bool = True

    def html(self) -> Markup:
        """The table as an element of the page, in a frame that scrolls where the page is too narrow for it."""
        filled = TEMPLATES.get_template("table.html").render(
            kind="facts" if self.words == len(self.columns) else f"figures words-{self.words}",
            header=self.header,
            columns=self.columns,
            rows=self.rows,
        )
        return Markup(filled)  # noqa: S704 (the template has escaped the texts)

    def markdown(self) -> Markdown:
        """The table in GitHub's Markdown."""
        rules = [":--" if place < self.words else "--:" for place in range(len(self.columns))]
        rows = [self.columns, rules, *self.rows]
        return Markdown("\n".join("| " + " | ".join(map(markdown, row)) + " |" for row in rows))

    def __len__(self) -> int:
        """Rows."""
        return len(self.rows)


def _or_unknown(count: int | None) -> str:
    return "unknown" if count is None else figures.count(count)


def table_of(rows: Iterable[Mapping[str, str]], words: int = 1) -> Table:
    """Return rows, column → text, as a table; a dash is where a row lacks a column that another one has."""
    found = [*rows]
    columns = [*dict.fromkeys(column for row in found for column in row)]
    return Table(columns, [[row.get(column, NONE) for column in columns] for row in found], words)


def facts(pairs: Iterable[tuple[str, str]]) -> Table:
    """Facts, each with its name before it."""
    return Table(["", ""], [*pairs], words=2, header=False)


def metrics(evaluation: Evaluation) -> Table:
    """Every metric of the trained model, of the untrained one, and on examples that the model was trained on."""
    sides = {
        f"trained, {evaluation.split} split": "trained",
        f"untrained, {evaluation.split} split": "untrained",
        "trained, examples it has seen": "seen",
    }
    if evaluation.over_views:
        sides[f"trained, mean over {evaluation.views} views of each image"] = "over_views"

    fig = Quotes(evaluation=evaluation)

    def row(words: str, key: str, cell: Callable[[str], str] = fig) -> dict[str, str]:
        return {"": words} | {title: cell(f"evaluation.{side}.{key}") for title, side in sides.items()}

    rows = [row(measure.label, f"metrics.{measure.name}", fig.metric) for measure in shown(evaluation.trained.metrics)]
    rows.append(row("right", "correct"))
    rows.append(row("examples", "examples"))
    return table_of(rows)


def per_class(evaluation: Evaluation) -> Table:
    """Each class by label: how many examples, how many right, how often it was named, accuracy with interval.

    Of more than :data:`MOST_CLASSES`, that many with the lowest accuracy.
    """
    found = evaluation.per_class
    if len(found) > MOST_CLASSES:
        return _weakest(evaluation, MOST_CLASSES)
    return _classes(evaluation, range(len(found)))


def weakest(evaluation: Evaluation) -> Table:
    """The classes with the lowest accuracy, as in :func:`per_class`, the lowest first."""
    return _weakest(evaluation, _WEAKEST)


def _weakest(evaluation: Evaluation, most: int) -> Table:
    found = evaluation.per_class
    judged = [label for label, scored in enumerate(found) if scored.examples]
    return _classes(evaluation, sorted(judged, key=lambda label: found[label].accuracy.value)[:most])


def _classes(evaluation: Evaluation, labels: Iterable[int]) -> Table:
    fig = Quotes(evaluation=evaluation)
    return table_of(
        {
            "class": evaluation.per_class[label].name,
            "label": str(label),
            "examples": fig(f"{place}.examples"),
            "right": fig(f"{place}.correct"),
            "named": fig(f"{place}.predicted"),
            "accuracy": fig.value(f"{place}.accuracy", "top1"),
            "95 % interval": fig.interval(f"{place}.accuracy", "top1"),
        }
        for label in labels
        for place in (f"evaluation.per_class.{label}",)
    )


def confusion(evaluation: Evaluation) -> Table:
    """The confusion matrix's counts: a row for each label, a column for each prediction."""
    names, fig = evaluation.class_names, Quotes(evaluation=evaluation)
    return table_of(
        {"label": names[label]}
        | {names[other]: fig(f"evaluation.confusion.{label}.{other}") for other in range(len(row))}
        for label, row in enumerate(evaluation.confusion)
    )


def confusions(evaluation: Evaluation) -> Table:
    """The most frequent confusions, the most frequent first."""
    names, classes, fig = evaluation.class_names, evaluation.per_class, Quotes(evaluation=evaluation)

    def place_of(place: int, label: int, prediction: int) -> str:
        return f"confused.{place}.2" if evaluation.confused else f"confusion.{label}.{prediction}"

    rows = [
        {
            "label": names[label],
            "taken for": names[prediction],
            "times": fig(f"evaluation.{place_of(place, label, prediction)}"),
            "of its class": figures.percent(n / classes[label].examples),
        }
        for place, (label, prediction, n) in enumerate(evaluation.confusions[:_CONFUSIONS])
    ]
    return table_of(rows, words=2)


def calibration(evaluation: Evaluation) -> Table:
    """The bins of the reliability diagram that hold examples."""
    fig = Quotes(evaluation=evaluation)
    return table_of(
        {
            "confidence in": f"{100 * entry.low:.0f}–{100 * entry.high:.0f} %",
            "examples": fig(f"evaluation.calibration.{place}.examples"),
            "mean confidence": fig(f"evaluation.calibration.{place}.confidence", figures.percent),
            "right": fig(f"evaluation.calibration.{place}.accuracy", figures.percent),
        }
        for place, entry in enumerate(evaluation.calibration)
        if entry.examples
    )


def mistakes(evaluation: Evaluation) -> Table:
    """The most confident mistakes, in words."""
    names = evaluation.class_names
    rows = [
        {
            "label": names[mistake.label],
            "prediction": names[mistake.prediction],
            "record": figures.count(mistake.record),
            "confidence": figures.percent(mistake.confidence),
            "given to the label": figures.percent(mistake.label_probability),
        }
        for mistake in evaluation.mistakes
    ]
    return table_of(rows, words=2)


def splits(manifest: Manifest) -> Table:
    """Each split's size, and its pixels' mean and standard deviation per channel; a column for each split."""
    columns = [
        (
            split.name,
            figures.count(split.records),
            figures.count(len(split.shards)),
            figures.size(split.shards.bytes),
            " ".join(f"{value:.2f}" for value in split.mean),
            " ".join(f"{value:.2f}" for value in split.std),
        )
        for split in manifest.splits
    ]
    names = ("split", "records", "shards", "size", "mean of the pixels", "standard deviation")
    header, *rows = zip(names, *columns, strict=True)
    return Table(header, rows)


def class_counts(manifest: Manifest) -> Table:
    """How many records of each class each split has; of more than :data:`MOST_CLASSES`, of the first ones."""
    noun = manifest.skeleton.noun
    return table_of(
        {"class": noun.said(name)} | {split.name: figures.count(split.class_counts[label]) for split in manifest.splits}
        for label, name in enumerate(manifest.class_names[:MOST_CLASSES])
    )


def quarantine(manifest: Manifest) -> Table:
    """Records that were left out, by split and reason; empty when there are none."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for entry in manifest.quarantined:
        reasons.setdefault((entry.split, entry.reason), []).append(entry.record)
    rows = [
        (split, reason, figures.count(len(records)), ", ".join(_shortened(records)))
        for (split, reason), records in reasons.items()
    ]
    return Table(["split", "reason", "records", "which"], rows, words=4)


def _shortened(records: Sequence[str]) -> Iterator[str]:
    yield from records[:_NAMED_RECORDS]
    if len(records) > _NAMED_RECORDS:
        yield f"and {len(records) - _NAMED_RECORDS:,} more"


def sources(manifest: Manifest) -> Table:
    """The raw files, with their checksums."""
    rows = [(file.name, figures.count(file.bytes), file.sha256) for file in manifest.source]
    return Table(["file", "bytes", "sha256"], rows, words=3)


def dataset(manifest: Manifest) -> Table:
    """What the data set is, as a whole."""
    height, width, channels = manifest.image_shape
    converter = ", ".join(f"{name} {value}" for name, value in manifest.converter.items())
    quarantined = len(manifest.quarantined)
    beside = "TFRecord's frame of 16" + (" and a JPEG file" if manifest.field("image").encoding == "jpeg" else "")
    return facts(
        [
            ("data set", manifest.dataset),
            ("fingerprint", manifest.fingerprint),
            ("images", f"{height} × {width} × {channels}, {manifest.field('image').dtype}"),
            ("classes", figures.count(len(manifest.class_names))),
            ("records read", figures.count(manifest.read)),
            ("= written + quarantined", f"{figures.count(manifest.written)} + {figures.count(quarantined)}"),
            ("bytes of a record", f"{figures.count(manifest.record_length)} and {beside}"),
            ("converter", converter),
        ]
    )


def model(description: ModelDescription) -> Table:
    """What the model costs."""
    height, width, channels = description.image_shape
    pairs = [
        ("kind", description.kind),
        ("input", f"{height} × {width} × {channels}, uint8"),
        ("output", f"{description.classes} logits" if description.classes else "heatmaps and fields of each stage"),
        ("parameters", figures.count(description.parameters)),
        ("of which trainable", figures.count(description.trainable_parameters)),
        ("bytes of all parameters", figures.count(description.bytes)),
        ("bytes of the trainable ones", figures.count(description.trainable_bytes)),
        ("multiply-adds an example", f"{figures.count(description.multiply_adds)} {description.uncounted}".strip()),
    ]
    if description.micronet:
        score = description.micronet
        shares = f"storage {score.storage_share:.4f} + operations {score.operations_share:.4f}"
        pairs.append(("MicroNet score (WideResNet-28-10 is 2)", f"{score.score:.4f} = {shares}"))
    return facts(pairs)


def layers(description: ModelDescription) -> Table:
    """The model's layers."""
    rows = [
        {
            "layer": layer.name,
            "kind": layer.kind,
            "output": " × ".join(map(str, layer.output_shape)),
            "parameters": figures.count(layer.parameters),
            "bytes": figures.count(layer.bytes),
            "multiply-adds": _or_unknown(layer.multiply_adds),
        }
        for layer in description.layers
    ]
    return table_of(rows, words=2)


def recipe(settings: Recipe) -> Table:
    """Return every setting of the recipe, nested ones by their path, but those that are not given."""
    return facts(in_words(settings.model_dump(mode="json")).items())


def in_words(document: Mapping[str, Any]) -> dict[str, str]:
    """Return every value of a document in words, nested ones by their path, but those that are not given."""
    return {path: _in_words(value) for path, value in flat(document).items() if value not in (None, [])}


def _in_words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return figures.rounded(value) if isinstance(value, float) else str(value)


def by_run(names: Sequence[str], rows: Mapping[str, Sequence[str]]) -> Table:
    """What is told of several runs: a column for each run."""
    return table_of({"": what, **dict(zip(names, texts, strict=True))} for what, texts in rows.items())


def stages(seconds: Iterable[tuple[str, float]]) -> Table:
    """What each stage took, and all of them together."""
    rows = [*seconds]
    total = sum(took for _, took in rows)
    return table_of(
        {"stage": stage, "time": figures.duration(took), "share": figures.percent(took / total if total else 0.0)}
        for stage, took in [*rows, ("together", total)]
    )


def findings(lines: Iterable[FindingLine], events: Iterable[EventLine]) -> Table:
    """What was not right with the training, and checkpoints that were passed over; empty when there is nothing."""
    rows: dict[tuple[str, str], list[dict[str, str]]] = {}
    for line in lines:
        spells = rows.setdefault((line.finding, line.where), [])
        if line.over:
            spells[-1]["to step"] = figures.count(line.step)
        else:
            spells.append(_finding(line.finding, line.where, line.step, line.message, line.suggestion))
    damaged = [
        _finding(event.event, "checkpoints", event.step, event.message, "have the disk checked")
        for event in events
        if event.event == "checkpoint_damaged"
    ]
    return table_of([*(row for spells in rows.values() for row in spells), *damaged], words=6)


def _finding(kind: str, where: str, step: int, message: str, suggestion: str) -> dict[str, str]:
    end = "the end" if kind != "checkpoint_damaged" else figures.count(step)
    return {
        "finding": kind.replace("_", " "),
        "where": where,
        "from step": figures.count(step),
        "to step": end,
        "what": message,
        "what to do": suggestion,
    }


def events(lines: Iterable[EventLine]) -> Table:
    """What happened to the run, in order."""
    rows = [(figures.moment(line.time), figures.count(line.step), line.event, line.message) for line in lines]
    return Table(["when", "step", "event", "what"], rows, words=4)


def tpu(entries: Iterable[TpuLogEntry]) -> Table:
    """What happened to the TPU, and how long it took."""
    return table_of(rows(entries), words=4)


def decisions(lines: Iterable[PlateauLine | AnnealingLine]) -> Table:
    """What was decided by the evaluations, in order."""
    rows = [(figures.count(line.step), *_decided(line)) for line in lines]
    return Table(["step", "what", "looked at", "why", "decision"], rows, words=5)


def _decided(line: PlateauLine | AnnealingLine) -> tuple[str, str, str, str]:
    if isinstance(line, PlateauLine):
        lowered = f"lowered to {figures.rounded(line.factor)} of the schedule’s" if line.lowered else "left as it is"
        why = f"best {line.best:.4f}; {line.stalled} in a row without an improvement"
        return "learning rate", f"{line.value:.4f}", "patience is at its end" if line.lowered else why, lowered
    why = (
        f"{line.rise:.4f} higher: probability {line.probability:.3f} at temperature {line.temperature:.2g}, "
        f"draw {line.draw:.3f}"
    )
    decision = "accepted" if line.accepted else f"rejected: back to the state of step {line.state:,}"
    return "state", f"{line.energy:.4f}", why if line.rise else "no higher than before", decision
