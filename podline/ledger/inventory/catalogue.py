"""Lists a store's data sets and runs, by their completion records."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from podline.base.errors import SettingsError, StoreError
from podline.base.progress import Reporter
from podline.documents.completion import Completion, completion_name, read_completion, read_result, result_in
from podline.documents.manifest import MANIFEST, Manifest, dataset_folder, read_manifest
from podline.documents.reading import read_model
from podline.documents.versions import version_of, versions
from podline.recipes import official
from podline.recipes.datasets import settings_of
from podline.recipes.settings import Recipe
from podline.stages.specs import SPEC, ConvertResult, TrainResult, TrainSpec
from podline.stages.table import CONVERT, TRAIN
from podline.store.contract import Store, holding_of


@dataclass(frozen=True)
class Dataset:
    """A converted data set; ``published`` is the Unix time at which its manifest was written."""

    name: str
    fingerprint: str
    published: float

    @property
    def folder(self) -> str:
        """The folder, relative to the store's root."""
        return dataset_folder(self.name, self.fingerprint)


def datasets(store: Store, name: str | None = None) -> list[Dataset]:
    """Return the data sets of a store that have a manifest, newest first; folders of other programs are left out.

    Args:
        store: the store.
        name: return only data sets of this name.
    """
    of_names = [f"datasets/{name}"] if name else store.folders("datasets")
    manifests = [store.find(f"{folder}/{MANIFEST}") for each in of_names for folder in store.folders(each)]
    there = [(facts.name.split("/"), facts.published) for facts in manifests if facts and holding_of(facts.name)]
    found = [Dataset(parts[1], parts[2], published) for parts, published in there]
    return sorted(found, key=lambda dataset: (-dataset.published, dataset.name, dataset.fingerprint))


def choose_dataset(
    store: Store,
    name: str,
    fingerprint: str | None,
    reporter: Reporter,
    side: int | None = None,
    settings: Mapping[str, int | str] | None = None,
) -> Dataset:
    """Return the data set with a fingerprint, or the start of a fingerprint, or a version such as ``@3``.

    Without a fingerprint, return the newest version; if the data set has no versions, the newest conversion. A choice
    among several is logged.

    Args:
        store: the store.
        name: the name of the data set.
        fingerprint: the first digits of the fingerprint, or ``@`` and the number of a version.
        reporter: logs the choice among several data sets.
        side: required height of the images in pixels, if no fingerprint is given.
        settings: required settings of the conversion, if no fingerprint is given.

    Raises:
        StoreError: no data set or version fits, or several data sets have this fingerprint.
        ArtifactError: a document of the data set is damaged.
    """
    if fingerprint and fingerprint.startswith("@"):
        fingerprint = version_of(store, name, fingerprint[1:]).fingerprint
    found = datasets(store, name)
    if not fingerprint:
        found = _newest_version_first(store, name, found)
    if side and not fingerprint:
        found = [dataset for dataset in found if manifest_of(store, dataset).image_shape[0] == side]
    if settings and not fingerprint:
        found = [dataset for dataset in found if settings.items() <= manifest_of(store, dataset).converter.items()]
    if not found:
        of_side, option = (f" with images of {side} pixels", f" --side {side}") if side else ("", "")
        of_side += "".join(f", {key} {value}" for key, value in (settings or {}).items())
        others = ", ".join(sorted({dataset.name for dataset in datasets(store)} - {name}))
        raise StoreError(
            f"{store.uri} has no data set {name}{of_side}{f', only {others}' if others else ''}; "
            f"make one with `podline convert {name} --source DIR --root {store.uri}{option}`"
        )
    fitting = [dataset for dataset in found if dataset.fingerprint.startswith(fingerprint or "")]
    if fingerprint and len(fitting) != 1:
        known = ", ".join(dataset.fingerprint for dataset in found)
        raise StoreError(
            f"{store.uri}: {len(fitting)} data sets {name} have a fingerprint that starts with {fingerprint}; "
            f"there are: {known}"
        )
    if len(fitting) > 1:
        reporter.log(f"{store.uri} has {len(fitting)} data sets {name}; taking the newest, {fitting[0].fingerprint}")
    return fitting[0]


def _newest_version_first(store: Store, name: str, found: list[Dataset]) -> list[Dataset]:
    """Return the data sets that are versions, newest first; all data sets if none is a version.

    A killed conversion or compaction leaves a folder that is not a version.
    """
    numbers = {version.fingerprint: version.number for version in versions(store, name)}
    complete = [dataset for dataset in found if dataset.fingerprint in numbers]
    return sorted(complete, key=lambda dataset: -numbers[dataset.fingerprint]) or found


def dataset_for(store: Store, recipe: Recipe, fingerprint: str | None, reporter: Reporter) -> Dataset:
    """Return the data set that a recipe trains on, converted with the recipe's conversion settings.

    For poses, the images must have the size of the network's input.

    Raises:
        StoreError: see :func:`choose_dataset`.
    """
    converter = {} if fingerprint else settings_of(recipe.dataset, recipe.conversion).converter()
    settings = {name: converter[name] for name in recipe.conversion if name in converter}
    return choose_dataset(store, recipe.dataset, fingerprint, reporter, recipe.task.image_side, settings)


def version_before(store: Store, manifest: Manifest) -> Manifest | None:
    """Return the manifest of the previous version of a data set; None if it does not exist or was deleted."""
    known = [version.fingerprint for version in versions(store, manifest.dataset)]
    before = {after: fingerprint for fingerprint, after in itertools.pairwise(known)}
    if manifest.fingerprint not in before:
        return None
    folder = dataset_folder(manifest.dataset, before[manifest.fingerprint])
    return read_manifest(store, folder) if store.exists(f"{folder}/{MANIFEST}") else None


def manifest_of(store: Store, dataset: Dataset) -> Manifest:
    """Return a data set's manifest."""
    return read_manifest(store, dataset.folder)


def remarks(store: Store, folder: str, manifest: Manifest) -> list[str]:
    """Return remarks on a data set: differences from the official data set, and contradicting labels.

    Raises:
        ArtifactError: the completion record of the conversion cannot be read.
    """
    conversion = None
    if store.exists(completion_name(folder, CONVERT.name)):
        conversion = read_result(store, folder, CONVERT.name, ConvertResult)
    check, contradicting = (conversion.official, conversion.contradicting) if conversion else (None, {})
    converted = {split.name: split.records for split in manifest.splits}
    return official.remarks(manifest.dataset, converted, manifest.quarantined, check, contradicting)


def completion_of(store: Store, run: str, stage: str) -> Completion | None:
    """Return the completion record of a run's stage; None if the stage is not finished.

    Raises:
        StoreError: the run does not exist.
        ArtifactError: the record cannot be read.
    """
    if store.exists(completion_name(f"runs/{run}", stage)):
        return read_completion(store, f"runs/{run}", stage)
    _require_run(store, run)
    return None


def train_result(store: Store, run: str) -> TrainResult:
    """Return the result of a finished training.

    Raises:
        StoreError: the run does not exist, or is not finished.
        ArtifactError: the completion record cannot be read.
    """
    record = completion_of(store, run, TRAIN.name)
    if record is None:
        raise StoreError(f"{store.uri}: run {run} is not finished; finish it with `podline train {run}`")
    return result_in(store, f"runs/{run}", record, TrainResult)


def _require_run(store: Store, name: str) -> None:
    file = f"runs/{name}/{SPEC}"
    if not store.exists(file):
        raise StoreError(f"{store.where(file)} does not exist; {_instead_of(store, name)}")


def _instead_of(store: Store, name: str) -> str:
    """Return the remedy if no run has this name; the name may be a recipe's."""
    own = [run for folder in store.folders("runs") if (run := folder.rpartition("/")[2]).rpartition("-")[0] == name]
    if own:
        return f"{name} is a recipe; give one of its runs, such as {own[0]}"
    return "`podline runs list` shows all runs"


def training_of(store: Store, name: str, recipe: Recipe | None = None) -> TrainSpec:
    """Return the training spec of a run, finished or not.

    Args:
        store: the store.
        name: the name of the run.
        recipe: a recipe whose data set must be the run's; None to skip the check.

    Raises:
        StoreError: the run does not exist.
        ArtifactError: the run's spec cannot be read.
        SettingsError: the run uses another data set.
    """
    _require_run(store, name)
    stored = read_model(store, f"runs/{name}/{SPEC}", TrainSpec, "a training spec", "train the run again")
    training = stored.model_copy(update={"root": store.uri})
    if recipe is not None and training.recipe.dataset != recipe.dataset:
        raise SettingsError(
            f"run {name} was trained on {training.recipe.dataset}, but recipe {recipe.name} is for {recipe.dataset}; "
            "give the recipe of the run"
        )
    return training
