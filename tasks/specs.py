"""What each stage of a night is given."""

from __future__ import annotations

from pathlib import Path

from podline import settings
from podline.data.sources.remote import is_remote, open_remote
from podline.datasets import fingerprint
from podline.progress import Reporter
from podline.recipes import datasets
from podline.settings import Settings
from podline.stages.completed import manifest_sha256
from podline.stages.from_recipe import converter_settings, pace_spec, training_spec
from podline.stages.promotion import PromoteResult, PromoteSpec
from podline.stages.specs import (
    ConvertResult,
    ConvertSpec,
    EvaluateResult,
    ReportSpec,
    TrainResult,
    TrainSpec,
    ValidateSpec,
)
from podline.stages.table import CONVERT, TRAIN
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.tasks.night import Night
from podline.tasks.parameters import TrainingForm
from podline.tasks.runs.listening import terminal
from podline.tasks.runs.run_log import stage_listener
from podline.tasks.stages import pace


def conversion_of(night: Night) -> ConvertSpec:
    """Return the conversion of a night; the sample is drawn if no source is named and it is not there yet.

    Raises:
        StoreError: the sample cannot be drawn.
    """
    return conversion(night.form, night.store, night.machine)


def conversion(form: TrainingForm, store: Store, machine: Settings) -> ConvertSpec:
    """Return the conversion that a form asks for; see :func:`conversion_of`."""
    recipe, where = form.training_recipe(), form.machine
    kept = {"keep_files": True} if form.data.keep_files else {}
    return ConvertSpec(
        root=store.uri,
        dataset=recipe.dataset,
        source=source_of(form, store),
        engine=where.engine or machine.engine,
        workers=where.workers or machine.workers,
        beam_options=where.beam_options,
        settings=converter_settings(recipe.dataset, recipe, kept),
        allow_left_out=form.data.allow_left_out,
    )


def source_of(form: TrainingForm, store: Store) -> str:
    """Return where the raw data lies; the sample is drawn into the store if none is named and it is not there yet.

    Raises:
        StoreError: the store cannot be written.
    """
    if form.drawn is None:
        is_local = "://" not in form.source
        return str(Path(form.source).expanduser().absolute()) if is_local else form.source
    folder = store.beside / "sources" / form.drawn
    dataset = datasets.find(form.drawn)
    if not (folder / dataset.drawn).is_dir():
        Reporter(CONVERT.name, terminal()).log(f"no source is given: drawing {form.drawn} into {folder}")
        dataset.code(dataset.draw)(folder)
    return str(folder)


def validation_of(night: Night, data: ConvertResult) -> ValidateSpec:
    """Return the validation of a converted data set."""
    return ValidateSpec(
        root=night.store.uri,
        dataset=data.dataset,
        fingerprint=data.fingerprint,
        manifest_sha256=manifest_sha256(night.store, data.folder),
    )


def training_of(night: Night, data: ConvertResult) -> TrainSpec:
    """Return the training on a data set, as long as fits into the minutes that were asked for."""
    tell = Reporter(TRAIN.name, stage_listener(TRAIN.name)).log
    spec = training_spec(night.store, night.recipe, data.fingerprint, night.strategy, tell)
    if not night.form.minutes:
        return spec
    fits = pace(pace_spec(spec, night.form.minutes))
    return spec.model_copy(update={"recipe": fits.of(spec.recipe)})


def promotion_of(training: TrainSpec, trained: TrainResult, evaluated: EvaluateResult) -> PromoteSpec:
    """Return the promotion of a run that was trained and evaluated, by its recipe's rules."""
    return PromoteSpec(
        root=training.root,
        run=trained.run,
        dataset=training.recipe.dataset,
        fingerprint=training.fingerprint,
        recipe=training.recipe.name,
        weights_sha256=trained.weights_sha256,
        evaluation_sha256=evaluated.evaluation_sha256,
        rules=training.recipe.promotion,
    )


def reporting_of(
    night: Night, data: ConvertResult, trained: TrainResult, evaluated: EvaluateResult, verdict: PromoteResult | None
) -> ReportSpec:
    """Return the report on a run that was evaluated."""
    return ReportSpec(
        root=night.store.uri,
        run=trained.run,
        dataset=data.dataset,
        fingerprint=data.fingerprint,
        evaluation_sha256=evaluated.evaluation_sha256,
        promotion_sha256=verdict.promotion_sha256 if verdict else "",
        command=night.form.command(night.store.uri),
    )


def require_source(form: TrainingForm, root: str) -> None:
    """Check at once that the source is there.

    Raises:
        SourceError: it is missing.
        StoreError: its bucket cannot be read.
    """
    source = form.source
    if form.drawn is not None or ("://" not in source and Path(source).expanduser().exists()):
        return
    if is_remote(source):
        open_remote(source)
    else:
        look_at_source(form, root)  # which says what it may be


def look_at_source(form: TrainingForm, root: str) -> None:
    """Find out early what a conversion would find out late; a source that was converted before is not opened.

    Raises:
        SourceError: the source is missing, damaged or another data set.
        StoreError: the store cannot be written.
    """
    store = open_store(root)
    spec = conversion(form, store, settings.load())
    if not fingerprint.memory_of(spec, store).fingerprint:
        fingerprint.source_of(spec, store)
