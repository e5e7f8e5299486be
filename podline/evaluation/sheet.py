"""Draws sheets of pictures: a model's input, a run's answers, and changed records of a data set."""

# pyright: standard
from __future__ import annotations

import time
from pathlib import Path

from matplotlib.figure import Figure

from podline.base.drawing.picture_sheet import LARGE, SMALL, PictureRow, Sheet, SheetBlock, sheet
from podline.base.progress import Reporter
from podline.contract.kind import kind_of
from podline.data.reader import open_split
from podline.data.versions.changed_data import block, compared
from podline.documents.manifest import TRAINING, Manifest, dataset_folder, read_manifest
from podline.evaluation.forward import finished_model
from podline.input.pipeline import TrainingInput
from podline.stages.completed import manifest_sha256
from podline.stages.data_changes import DataChanges, DataChangesSpec
from podline.stages.tools import ShowResult, ShowSpec
from podline.store.contract import Store
from podline.store.local_files import appearing
from podline.store.opening import open_store
from podline.training.plan import plan_batches


def run(spec: ShowSpec, reporter: Reporter) -> ShowResult:
    """Draw the sheet into ``spec.out``.

    Raises:
        StoreError: the data set, the finished run or its evaluation does not exist, or the file cannot be written.
        SettingsError: the recipe does not fit the data set.
        ArtifactError: the data set or the weights have changed.
        DivergenceError: the model's outputs are not finite.
    """
    started = time.monotonic()
    figure, examples, correct = drawn(spec, reporter)
    save(figure, Path(spec.out))
    return ShowResult(seconds=time.monotonic() - started, png=spec.out, examples=examples, correct=correct)


def drawn(spec: ShowSpec, reporter: Reporter) -> tuple[Sheet, int, int]:
    """Return the sheet, and the numbers of judged and of correct test examples.

    Both are 0 without a run, and if answers are neither right nor wrong.
    """
    store, kind = open_store(spec.root), kind_of(spec.recipe)
    manifest_sha256(store, spec.dataset_folder)
    manifest = read_manifest(store, spec.dataset_folder)
    side, fed = LARGE if kind.facts.large_pictures else SMALL, _fed(spec, store, manifest)
    if not spec.run:
        return sheet([fed], side), 0, 0
    answers, examples, correct = kind.sheet_block(spec, finished_model(store, spec.run), store, manifest, reporter)
    return sheet([fed, answers], side), examples, correct


def _fed(spec: ShowSpec, store: Store, manifest: Manifest) -> SheetBlock:
    """Return the first examples of the first batch, as stored and, if the recipe augments, for the first epochs."""
    recipe, kind = spec.recipe, kind_of(spec.recipe)
    reader = open_split(store, spec.dataset_folder, manifest, TRAINING)
    order = plan_batches(recipe, manifest, reader).order
    fields, augmentation = kind.objective(recipe, manifest).fields, recipe.image_augmentation
    source = TrainingInput(reader, manifest, fields, order=order, augmentation=augmentation)
    _, ids, stored = source.read(0)
    ids, stored = ids[: spec.examples], {name: values[: spec.examples] for name, values in stored.items()}
    rows = [PictureRow("as stored", kind.drawn(stored, manifest))]
    if augmentation == type(augmentation)():
        how = "the recipe has no augmentation, so the model gets them as stored"
    else:
        how = "below, augmented for each of the first epochs"
        rows += [
            PictureRow(f"epoch {epoch + 1}", kind.drawn(source.augmented(epoch, ids, stored), manifest))
            for epoch in range(spec.epochs)
        ]
    about = f"examples of the training split of {manifest.dataset}; {how}"
    return SheetBlock(f"Input of the model of {recipe.name}", about, rows)


def save(figure: Figure, file: Path) -> None:
    """Write a PNG atomically, so that readers never see a part of it."""
    with appearing(file) as temporary:
        figure.savefig(temporary, format="png")


def changes(spec: DataChangesSpec, _reporter: Reporter) -> DataChanges:
    """Compare two versions, and draw pictures of the changes, if there are any and the spec names a file.

    Raises:
        SettingsError: the data set has no versions.
        StoreError: a version is missing, or the file cannot be written.
        ArtifactError: a version is damaged.
    """
    store = open_store(spec.root)
    before, after = (read_manifest(store, dataset_folder(spec.dataset, name)) for name in (spec.before, spec.after))
    result, found = compared(store, before, after)
    drawn = block(found)
    if not spec.out or drawn is None:
        return result
    save(sheet([drawn]), Path(spec.out))
    return result.model_copy(update={"png": spec.out})
