"""The sections of every run's report: training, findings, data, model, the run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from podline.base import figures
from podline.base.errors import ArtifactError, StoreError
from podline.base.plurals import first_few, plural
from podline.data.versions.changed_data import compared, pictures
from podline.documents.initial_weights import read_initial_weights
from podline.documents.ledger_entry import Origin
from podline.documents.manifest import Manifest
from podline.documents.metrics_log import (
    DecisionLine,
    EarlyStopLine,
    EventLine,
    FindingLine,
    PlateauLine,
    StepsLine,
    rejected_steps,
)
from podline.documents.model_description import ModelDescription
from podline.ledger.inventory.catalogue import training_of, version_before
from podline.ledger.time_spent import CLASSES
from podline.recipes.measures import shown
from podline.recipes.settings import Recipe
from podline.report import charts
from podline.report.blocks import (
    Block,
    Chart,
    Code,
    Column,
    Fold,
    Grid,
    Heading,
    Items,
    Picture,
    Pictures,
    Table,
    Text,
)
from podline.report.facts import RunFacts
from podline.report.ledger_lines import code_in_words
from podline.report.pictures import SMALL_PHOTO, data_uri
from podline.report.sections import section
from podline.settings.machine import flat
from podline.tpu.tpu_log import read_tpu_log, rows

MOST_CLASSES = 500
"""Largest number of classes in a table or a chart; more would make the page too large."""
# Tables with more classes than this are folded.
_MANY_CLASSES = 20
# Number of records that are listed for each reason of quarantine.
_NAMED_RECORDS = 5
# Packages in the order of display; only one of the two TensorFlow builds is installed.
_PACKAGES = ("tensorflow", "tensorflow-tpu", "keras", "apache-beam", "prefect", "numpy", "pandas", "matplotlib")


@section("Training")
def training(run: RunFacts) -> Iterator[Block]:
    """Show the training curves, the speed, and the decisions based on evaluations."""
    steps = run.steps
    held_out = (run.evaluations, rejected_steps(run.decisions))
    drawn = [Chart(charts.curve("Loss", "loss", steps, *held_out), "Loss")]
    if not all(math.isnan(line.accuracy) for line in steps):
        drawn.append(Chart(charts.curve("Accuracy", "accuracy", steps, *held_out), "Accuracy"))
    measured = shown(run.recipe.held_out_measures)
    drawn += [Chart(charts.curve(each.label, each.name, (), *held_out), each.label) for each in measured]
    drawn.append(Chart(charts.curve("Learning rate", "learning_rate", steps), "Learning rate"))
    drawn += [Chart(svg, title) for title, svg in charts.stage_measures(steps).items()]
    yield Grid(*drawn, Chart(charts.throughput(steps), "Throughput"))
    yield Text(_pace(run))
    if spent := run.spent:
        share = figures.percent(spent.get("steps", 0.0) / sum(spent.values()))
        named = [(CLASSES[kind], seconds) for kind, seconds in spent.items()]
        drawn = charts.times("time", "Time of the training by use", named)
        yield Fold(f"Where the time went: {share} in productive steps", Chart(drawn))
    yield Text(
        "The training curves are measured on augmented batches while the model learns from them; the training loss "
        "includes label smoothing and the model’s penalties. So these curves may be worse than those of evaluations.",
        "note",
    )
    if last := _last_measures(run.steps):
        yield Fold("Measures of the stages at the end of training", last)
    if run.decisions:
        whose = "of the data set’s validation split" if run.manifest.has_validation else "held out of training"
        by = f"these evaluations, by {plural(run.evaluations[-1].examples, 'example')} {whose}"
        yield Fold(f"{plural(len(run.decisions), 'decision')} by {by}", _decisions(run.decisions))


def _pace(run: RunFacts) -> str:
    batches = dict.fromkeys(figures.count(recipe.batch_size) for _, recipe in run.recipe.by_phase)
    sizes = ", then ".join(batches)
    trained = run.training
    pace = (
        f"{plural(trained.steps, 'step')} of {sizes} examples, {trained.epochs:.4g} epochs, on {trained.devices}: "
        f"{figures.rate(trained.examples_per_second)} examples/s, {figures.pflop(trained.pflop)}; "
        f"{figures.percent(trained.waiting_for_input)} of the time went by waiting for input."
    )
    begun = f"Trained further from {run.recipe.further}." if run.recipe.further else ""
    if training_of(run.store, run.spec.run).lacked_champion:
        begun = "Started from scratch, as its recipe had no champion yet."
    ended = f"The training {trained.ending}." if trained.ending.startswith("ended") else ""
    kept = f"{trained.ending[:1].upper()}{trained.ending[1:]}." if trained.ending and not ended else ""
    return " ".join(filter(None, (begun, pace, ended or kept, run.slow)))


def _last_measures(steps: Sequence[StepsLine]) -> Table | None:
    """Return the measures of a pose network's stages at the end of training, one row per stage; else None."""
    found: dict[str, dict[str, str]] = {}
    for name, value in (steps[-1].measures if steps else {}).items():
        stage, _, measure = name.partition("/")
        found.setdefault(stage, {"stage": stage.replace("_", " ")})[measure.replace("_", " ")] = f"{value:.4g}"
    return Table.of(found.values()) if found else None


def _decisions(lines: Iterable[DecisionLine]) -> Table:
    decided = [(figures.count(line.step), *_decided(line)) for line in lines]
    return Table(["step", "what", "looked at", "why", "decision"], decided, words=5)


def _decided(line: DecisionLine) -> tuple[str, str, str, str]:
    if isinstance(line, PlateauLine):
        lowered = f"lowered to {figures.rounded(line.factor)} of the schedule’s" if line.lowered else "left as it is"
        why = f"best {line.best:.4f}; {line.stalled} in a row without an improvement"
        return "learning rate", f"{line.value:.4f}", "patience is exhausted" if line.lowered else why, lowered
    if isinstance(line, EarlyStopLine):
        why = f"best {line.best:.4f}, keeps step {line.state:,}; {line.stalled} in a row without an improvement"
        back = f"back to the state of step {line.state:,}" if line.restored and line.state != line.step else ""
        decision = ", ".join(filter(None, ("the run ends early" if line.stopped else "", back)))
        return "end", f"{line.value:.4f}", why, decision or "goes on"
    why = (
        f"{line.rise:.4f} higher: probability {line.probability:.3f} at temperature {line.temperature:.2g}, "
        f"draw {line.draw:.3f}"
    )
    decision = "accepted" if line.accepted else f"rejected: back to the state of step {line.state:,}"
    return "state", f"{line.energy:.4f}", why if line.rise else "no higher than before", decision


@section("Findings")
def findings(run: RunFacts) -> Iterator[Block]:
    """Show the problems of the training, and skipped checkpoints."""
    table = findings_table(run.findings, run.events)
    yield table or Text(
        "No findings: no layer died or exploded, no output became constant, gradients flowed, input was there in "
        "time, every checkpoint was whole."
    )


def findings_table(lines: Iterable[FindingLine], events: Iterable[EventLine]) -> Table:
    """Return a table of findings with first and last step, and of damaged checkpoints; without either, no rows."""
    found: dict[tuple[str, str], list[dict[str, str]]] = {}
    for line in lines:
        spells = found.setdefault((line.finding, line.where), [])
        if line.over:
            spells[-1]["to step"] = figures.count(line.step)
        else:
            spells.append(_finding(line.finding, line.where, line.step, line.message, line.suggestion))
    damaged = [
        _finding(event.event, "checkpoints", event.step, event.message, "check the disk")
        for event in events
        if event.event == "checkpoint_damaged"
    ]
    return Table.of([*(row for spells in found.values() for row in spells), *damaged], words=6)


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


@section("Data")
def data(run: RunFacts) -> Iterator[Block]:
    """Show the data set, its splits and source files, and the records left out."""
    manifest = run.manifest
    classes = _class_counts(manifest)
    counts: list[Block] = [Heading("Records of each class"), classes] if classes else []
    if (all_classes := len(manifest.class_names)) > _MANY_CLASSES:
        which = f"the first {MOST_CLASSES} of {all_classes} classes" if len(classes) < all_classes else "each class"
        counts = [Fold(f"Records of {which}", classes)]
    if manifest.counted:
        rules = [(rule, figures.count(times)) for rule, times in manifest.counted.items()]
        counts += [Heading("Rules that applied"), Table(["rule of the conversion", "times"], rows=rules)]
    yield Grid(Column(_dataset(manifest), _splits(manifest)), *([Column(*counts)] if counts else []))
    for remark in run.remarks:
        yield Text(f"{remark}.")
    yield Heading("Quarantine")
    yield _quarantine(manifest) or Text("No record was left out.")
    files = [(file.name, figures.count(file.bytes), file.sha256) for file in manifest.source]
    summary = f"{plural(len(files), 'source file')} with checksums"
    yield Fold(summary, Table(["file", "bytes", "sha256"], files, words=3))


def _dataset(manifest: Manifest) -> Table:
    height, width, channels = manifest.image_shape
    converter = ", ".join(f"{name} {value}" for name, value in manifest.converter.items())
    quarantined = len(manifest.quarantined)
    beside = "TFRecord's frame of 16" + (" and the image file" if manifest.field("image").encoding == "file" else "")
    return Table.of_facts(
        [
            ("data set", manifest.dataset),
            ("fingerprint", manifest.fingerprint),
            ("images", f"{height} × {width} × {channels}, {manifest.field('image').dtype}"),
            ("kind", manifest.kind),
            *([("classes", figures.count(len(manifest.class_names)))] if manifest.class_names else []),
            ("records read", figures.count(manifest.read)),
            ("= written + quarantined", f"{figures.count(manifest.written)} + {figures.count(quarantined)}"),
            ("bytes of a record", f"{figures.count(manifest.record_length)} and {beside}"),
            ("converter", converter),
        ]
    )


def _splits(manifest: Manifest) -> Table:
    """Return size, and mean and standard deviation of the pixels per channel, with one column per split."""
    columns = [
        (
            split.name,
            figures.count(split.records),
            figures.count(len(split.every_shard)),
            figures.size(split.every_shard.bytes),
            " ".join(f"{value:.2f}" for value in split.mean),
            " ".join(f"{value:.2f}" for value in split.std),
        )
        for split in manifest.splits
    ]
    names = ("split", "records", "shards", "size", "mean of the pixels", "standard deviation")
    header, *facts = zip(names, *columns, strict=True)
    return Table(header, facts)


def _class_counts(manifest: Manifest) -> Table:
    return Table.of(
        {"class": name} | {split.name: figures.count(split.class_counts[label]) for split in manifest.splits}
        for label, name in enumerate(manifest.class_names[:MOST_CLASSES])
    )


def _quarantine(manifest: Manifest) -> Table:
    reasons: dict[tuple[str, str], list[str]] = {}
    for entry in manifest.quarantined:
        reasons.setdefault((entry.split, entry.reason), []).append(entry.record)
    found = [
        (split, reason, figures.count(len(records)), first_few(records, _NAMED_RECORDS))
        for (split, reason), records in reasons.items()
    ]
    return Table(["split", "reason", "records", "which"], found, words=4)


@section("What changed in the data")
def changes(run: RunFacts) -> Iterator[Block]:
    """Show the changes from the previous version of the user's own data set, if it still exists."""
    before = version_before(run.store, run.manifest)
    if before is None:
        return
    try:
        result, versions = compared(run.store, before, run.manifest)
        rows_of_pictures = pictures(versions)
    except (StoreError, ArtifactError) as error:
        yield Text(f"Not compared with the previous version: {error}", "warning")
        return
    yield Items(result.sentences())
    counts = [
        (split, name, figures.count(old), figures.count(new))
        for split, classes in result.counts.items()
        for name, (old, new) in classes.items()
        if old != new
    ]
    if counts:
        yield Table(["split", "class", "records before", "now"], counts[:MOST_CLASSES], words=2)
    for row in rows_of_pictures:
        yield Heading(row.label.capitalize())
        yield Pictures(
            [Picture([(data_uri(one.image, SMALL_PHOTO), one.caption)], one.caption) for one in row.pictures]
        )


@section("Model")
def model(run: RunFacts) -> Iterator[Block]:
    """Show the model's layers and costs, and the recipe."""
    yield Table.of_facts(_costs(run.model))
    if run.recipe.init:
        yield Heading("Initial weights")
        yield Table.of_facts(read_initial_weights(run.store, run.spec.folder).rows())
    yield Fold("The recipe’s settings", Table.of_facts(_settings(run.recipe)))
    yield Fold(plural(len(run.model.layers), "layer"), Table.of(_layers(run.model), words=2))


def _settings(recipe: Recipe) -> Iterator[tuple[str, str]]:
    for path, value in flat(recipe.model_dump(mode="json")).items():
        if isinstance(value, list):
            yield path, ", ".join(map(str, value))
        elif value is not None:
            yield path, figures.rounded(value) if isinstance(value, float) else str(value)


def _costs(description: ModelDescription) -> Iterator[tuple[str, str]]:
    height, width, channels = description.image_shape
    yield "kind", description.kind
    yield "input", f"{height} × {width} × {channels}, uint8"
    yield (
        "output",
        plural(description.classes, "logit") if description.classes else "heatmaps and fields of each stage",
    )
    yield "parameters", figures.count(description.parameters)
    yield "of which trainable", figures.count(description.trainable_parameters)
    yield "bytes of all parameters", figures.count(description.bytes)
    yield "bytes of the trainable ones", figures.count(description.trainable_bytes)
    yield "multiply-adds an example", f"{figures.count(description.multiply_adds)} {description.uncounted}".strip()


def _layers(description: ModelDescription) -> Iterator[Mapping[str, str]]:
    for layer in description.layers:
        yield {
            "layer": layer.name,
            "kind": layer.kind,
            "output": " × ".join(map(str, layer.output_shape)),
            "parameters": figures.count(layer.parameters),
            "bytes": figures.count(layer.bytes),
            "multiply-adds": "unknown" if layer.multiply_adds is None else figures.count(layer.multiply_adds),
        }


@section("The run")
def the_run(run: RunFacts) -> Iterator[Block]:
    """Show the stages' times, code and environment, events, and the command that repeats the run."""
    together = sum(took for _, took in run.stages)
    rows_of_stages = [
        {"stage": stage, "time": figures.duration(took), "share": figures.percent(took / together if together else 0.0)}
        for stage, took in [*run.stages, ("together", together)]
    ]
    yield Grid(
        Column(
            Heading("Time of each stage"),
            Chart(charts.times("stages", "Time of each stage", run.stages)),
            Table.of(rows_of_stages),
            Text("Duration of each stage when it did its work. A later run re-uses finished work.", "note"),
        ),
        Column(Heading("What produced it"), Table.of_facts(_origin(run.origin))),
    )
    yield Heading("What happened")
    events = [(figures.moment(line.time), figures.count(line.step), line.event, line.message) for line in run.events]
    yield Table(["when", "step", "event", "what"], events, words=4)
    if entries := read_tpu_log(run.store, run.spec.folder):
        yield Heading("The TPU")
        yield Table.of(rows(entries), words=4)
    if run.spec.command:
        yield Heading("Do it again")
        yield Code(run.spec.command)


def _origin(origin: Origin | None) -> Iterator[tuple[str, str]]:
    """Yield (name, value) for code, machine and the main packages; ``origin.json`` has all packages."""
    if origin is None:
        yield "not known", "the run's folder has no origin.json"
        return
    where = origin.environment
    yield "code", code_in_words(origin.code)
    yield "podline", origin.code.version
    yield "python", where.python
    for package in _PACKAGES:
        if package in where.packages:
            yield package, where.packages[package]
    yield "platform", where.platform
    yield "cores", str(where.cores)
    yield "memory", figures.size(where.memory)
