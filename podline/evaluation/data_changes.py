"""The stage that compares two versions of a data set."""

from __future__ import annotations

from pathlib import Path

from podline.base.drawing.picture_sheet import sheet
from podline.base.progress import Reporter
from podline.data.versions.changed_data import block, compared
from podline.documents.manifest import dataset_folder, read_manifest
from podline.evaluation.sheet import save
from podline.stages.data_changes import DataChanges, DataChangesSpec
from podline.store.opening import open_store


def changes(spec: DataChangesSpec, _reporter: Reporter) -> DataChanges:
    """Compare two versions, and draw pictures of the changes if the spec names a file.

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
