"""Finds the raw data of a run. Imports no Prefect: an embedded run checks its source before its server starts."""

from __future__ import annotations

from pathlib import Path

from podline.base.progress import Listener, Reporter, terminal
from podline.base.stopwatch import measured
from podline.data.sources.remote import is_remote, objects_of
from podline.data.versions import fingerprint
from podline.data.versions.few_images import conversion_spec
from podline.recipes import datasets
from podline.settings import machine as settings
from podline.settings.machine import Settings
from podline.stages.specs import ConvertSpec
from podline.stages.table import CONVERT
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.tasks.forms import TrainingForm


@measured("between")
def conversion(form: TrainingForm, store: Store, machine: Settings, listener: Listener | None = None) -> ConvertSpec:
    """Return the spec of a form's conversion; without a source, generate the synthetic data set first if it is missing.

    Args:
        form: the form.
        store: the store.
        machine: the settings of this machine.
        listener: gets the log line about values chosen by the number of images; by default the terminal.

    Raises:
        SettingsError: pretrained weights, or the weights that the training begins with, are missing.
        SourceError: the source of the first conversion of a name cannot be opened.
        StoreError: the synthetic data set cannot be written.
    """
    where, source = form.machine, source_of(form, store)
    return conversion_spec(
        store,
        form.training_recipe(),
        {"keep_jpeg": True} if form.data.keep_jpeg else {},
        Reporter(CONVERT.name, listener or terminal()).log,
        source=source,
        engine=where.engine or machine.engine,
        workers=where.workers or machine.workers,
        beam_options=where.beam_options,
        allow_left_out=form.data.allow_left_out,
    )


def source_of(form: TrainingForm, store: Store) -> str:
    """Return the path of the raw data; without a source, generate the synthetic data set if it is missing.

    Raises:
        StoreError: the store cannot be written.
    """
    if form.drawn is None:
        is_local = "://" not in form.source
        return str(Path(form.source).expanduser().absolute()) if is_local else form.source
    folder = store.beside / "sources" / form.drawn
    dataset = datasets.find(form.drawn)
    if not (folder / dataset.drawn).is_dir():
        Reporter(CONVERT.name, terminal()).log(f"no source is given: generating synthetic data in {folder}")
        dataset.code(dataset.draw)(folder)
    return str(folder)


def require_source(form: TrainingForm, root: str) -> None:
    """Check quickly that the source exists.

    Raises:
        SourceError: the source is missing.
        StoreError: the source's bucket cannot be read.
    """
    source = form.source
    if form.drawn is not None or ("://" not in source and Path(source).expanduser().exists()):
        return
    if is_remote(source):
        objects_of(source)
    else:
        look_at_source(form, root)  # raises an error with advice


def look_at_source(form: TrainingForm, root: str) -> None:
    """Detect problems of a source early; skip a source that was converted before.

    Raises:
        SourceError: the source is missing, damaged or another data set.
        StoreError: the store cannot be written.
    """
    store = open_store(root)
    spec = fingerprint.effective(conversion(form, store, settings.load()), store)
    if not fingerprint.memory_of(spec, store).fingerprint:
        fingerprint.source_of(spec, store)
