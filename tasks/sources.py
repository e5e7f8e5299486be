"""The raw data of a flow run."""

from __future__ import annotations

from pathlib import Path

from podline.data.fingerprint import source_cache
from podline.data.sources.opening import open_source
from podline.data.sources.sample import FOLDER, write_sample
from podline.stages import CONVERT
from podline.storage import open_store
from tasks.listening import terminal
from tasks.parameters import CifarParameters


def source_of(parameters: CifarParameters, root: str) -> str:
    """Where the raw data lies; the sample is drawn into the store if no source is named and it is not there yet.

    Raises:
        StoreError: the store cannot be written.
    """
    if parameters.source:
        is_local = "://" not in parameters.source
        return str(Path(parameters.source).expanduser().absolute()) if is_local else parameters.source
    folder = open_store(root).beside / "sources" / "sample"
    if not (folder / FOLDER).is_dir():
        message = f"drawing the sample into {folder}"
        terminal()({"event": "log", "stage": CONVERT.name, "level": "info", "message": message})
        write_sample(folder)
    return str(folder)


def look_at_source(parameters: CifarParameters, root: str) -> None:
    """Finds out early what a conversion would find out late.

    Raises:
        SourceError: the source is missing, damaged or another data set.
        StoreError: the store cannot be written.
    """
    dataset = parameters.training_recipe().dataset
    open_source(dataset, source_of(parameters, root), source_cache(open_store(root)))
