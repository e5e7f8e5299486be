"""The raw data of a flow run."""

from __future__ import annotations

from pathlib import Path

from podline import settings
from podline.data.sources.remote import is_remote, objects_of
from podline.datasets import fingerprint
from podline.recipes import datasets
from podline.settings import Settings
from podline.stages.from_recipe import converter_settings
from podline.stages.specs import ConvertSpec
from podline.stages.table import CONVERT
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.tasks.parameters import TrainingParameters
from podline.tasks.runs.listening import terminal


def source_of(parameters: TrainingParameters, store: Store) -> str:
    """Where the raw data lies; the sample is drawn into the store if no source is named and it is not there yet.

    Raises:
        StoreError: the store cannot be written.
    """
    if parameters.drawn is None:
        is_local = "://" not in parameters.source
        return str(Path(parameters.source).expanduser().absolute()) if is_local else parameters.source
    folder = store.beside / "sources" / parameters.drawn
    dataset = datasets.find(parameters.drawn)
    if not (folder / dataset.drawn).is_dir():
        _say(f"no source is given: drawing {parameters.drawn} into {folder}")
        dataset.code(dataset.draw)(folder)
    return str(folder)


def conversion_of(parameters: TrainingParameters, store: Store, machine: Settings) -> ConvertSpec:
    """The conversion of a flow run.

    Args:
        parameters: the run's.
        store: the store.
        machine: says where the conversion runs, where the parameters do not.

    Raises:
        StoreError: the sample cannot be drawn.
    """
    recipe = parameters.training_recipe()
    kept = {"keep_files": True} if parameters.machine.keep_files else {}
    return ConvertSpec(
        root=store.uri,
        dataset=recipe.dataset,
        source=source_of(parameters, store),
        engine=parameters.machine.engine or machine.engine,
        workers=parameters.machine.workers or machine.workers,
        beam_options=parameters.machine.beam_options,
        settings=converter_settings(recipe.dataset, recipe, kept),
        allow_left_out=parameters.machine.allow_left_out,
    )


def require_source(parameters: TrainingParameters, root: str) -> None:
    """Find out at once whether the source is there.

    Raises:
        SourceError: it is missing.
        StoreError: its bucket cannot be read.
    """
    source = parameters.source
    if parameters.drawn is not None or ("://" not in source and Path(source).expanduser().exists()):
        return
    if is_remote(source):
        objects_of(source)
    else:
        look_at_source(parameters, root)  # which says what it may be


def look_at_source(parameters: TrainingParameters, root: str) -> None:
    """Find out early what a conversion would find out late; a source that was converted before is not opened.

    Raises:
        SourceError: the source is missing, damaged or another data set.
        StoreError: the store cannot be written.
    """
    store = open_store(root)
    conversion = conversion_of(parameters, store, settings.load())
    if not fingerprint.memory_of(conversion, store).fingerprint:
        fingerprint.source_of(conversion, store)


def _say(message: str) -> None:
    terminal()({"event": "log", "stage": CONVERT.name, "level": "info", "message": message})
