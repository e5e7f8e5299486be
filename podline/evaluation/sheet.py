"""A picture sheet: a model's input before and after augmentation, and a run's answers."""

from __future__ import annotations

import os
import time
from pathlib import Path

from matplotlib.figure import Figure

from podline.documents.manifest import read_manifest
from podline.drawing.picture_sheet import Sheet
from podline.kinds.table import kind_of
from podline.progress import Reporter
from podline.stages.completed import manifest_sha256
from podline.stages.tools import ShowResult, ShowSpec
from podline.store.contract import explained
from podline.store.opening import open_store


def run(spec: ShowSpec, reporter: Reporter) -> ShowResult:
    """Draws the sheet into ``spec.out``.

    Raises:
        StoreError: there is no such data set or no such finished run, or the file cannot be written.
        SettingsError: the recipe does not fit the data set.
        ArtifactError: the data set or the weights are not what they were.
    """
    started = time.monotonic()
    figure, examples, correct = drawn(spec, reporter)
    _save(figure, Path(spec.out))
    return ShowResult(seconds=time.monotonic() - started, png=spec.out, examples=examples, correct=correct)


def drawn(spec: ShowSpec, reporter: Reporter) -> tuple[Sheet, int, int]:
    """Return the sheet, and how many test examples a classifier's run was asked about and got right."""
    store = open_store(spec.root)
    manifest_sha256(store, spec.dataset_folder)
    manifest = read_manifest(store, spec.dataset_folder)
    return kind_of(spec.recipe).sheet(spec, store, manifest, reporter)


def _save(figure: Figure, file: Path) -> None:
    """Writes a PNG whole: whoever looks at the file never sees half of it."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with explained("write", file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            figure.savefig(temporary, format="png")
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
