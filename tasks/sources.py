"""The raw data of a flow run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from podline.data.sources.coco_sample import write_coco_sample
from podline.data.sources.sample import FOLDER, write_sample
from podline.datasets import fingerprint
from podline.recipes.settings import DatasetName
from podline.stages.specs import ConvertSpec
from podline.stages.table import CONVERT
from podline.store.opening import open_store
from podline.tasks.parameters import TrainingParameters
from podline.tasks.runs.listening import terminal

# What draws a sample, and the folder that is there when it is done.
_SAMPLES: dict[DatasetName, tuple[Callable[[Path], object], str]] = {
    "sample": (write_sample, FOLDER),
    "coco_sample": (write_coco_sample, "annotations"),
}


def source_of(parameters: TrainingParameters, root: str) -> str:
    """Where the raw data lies; the sample is drawn into the store if no source is named and it is not there yet.

    Raises:
        StoreError: the store cannot be written.
    """
    if parameters.drawn is None:
        is_local = "://" not in parameters.source
        return str(Path(parameters.source).expanduser().absolute()) if is_local else parameters.source
    folder = open_store(root).beside / "sources" / parameters.drawn
    write, whole = _SAMPLES[parameters.drawn]
    if not (folder / whole).is_dir():
        _say(f"no source is given: drawing {parameters.drawn} into {folder}")
        write(folder)
    return str(folder)


def conversion_of(parameters: TrainingParameters, root: str, workers: int) -> ConvertSpec:
    """The conversion of a flow run.

    Args:
        parameters: the run's.
        root: the store.
        workers: processes, where the parameters do not say.

    Raises:
        StoreError: the sample cannot be drawn.
    """
    recipe = parameters.training_recipe()
    of_poses: dict[str, Any] = {"side": recipe.pose.side, "max_people": recipe.pose.max_people} if recipe.pose else {}
    return ConvertSpec(
        root=root,
        dataset=recipe.dataset,
        source=source_of(parameters, root),
        workers=parameters.machine.workers or workers,
        beam_options=parameters.machine.beam_options,
        keep_jpeg=parameters.keeps_jpeg,
        allow_left_out=parameters.machine.allow_left_out,
        **of_poses,
    )


def look_at_source(parameters: TrainingParameters, root: str) -> None:
    """Finds out early what a conversion would find out late.

    Raises:
        SourceError: the source is missing, damaged or another data set.
        StoreError: the store cannot be written.
    """
    fingerprint.source_of(conversion_of(parameters, root, 1), open_store(root))


def _say(message: str) -> None:
    terminal()({"event": "log", "stage": CONVERT.name, "level": "info", "message": message})
