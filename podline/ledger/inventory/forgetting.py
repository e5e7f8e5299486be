"""Forgets an image: deletes its bytes from all versions of its data set, from this machine's caches, and from pages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np

from podline.base.errors import ArtifactError, SettingsError, StoreUnavailableError
from podline.base.frozen import Frozen
from podline.base.progress import Reporter
from podline.data.identity import IDENTITY_BYTES, identified
from podline.data.record_table import RecordTable
from podline.data.versions.compaction import compact
from podline.data.versions.fingerprint import source_cache
from podline.data.versions.record_names import RecordNames, identities
from podline.documents import champions, suspects
from podline.documents.completion import completion_name
from podline.documents.corrections import FORGOTTEN, forgotten, publish_forgotten
from podline.documents.manifest import Manifest
from podline.documents.versions import JOBS, versions
from podline.ledger.inventory.catalogue import datasets, manifest_of, training_of
from podline.ledger.inventory.inventory import holdings
from podline.ledger.inventory.machine_files import cached_sources
from podline.stages.specs import SPEC, TrainSpec
from podline.stages.table import REPORT, SUSPECTS
from podline.store.contract import Store, explained
from podline.store.folder import FolderStore

_IDENTITY = re.compile(f"[0-9a-f]{{{2 * IDENTITY_BYTES}}}")
_PAGE, _SHEETS = "report.html", "sheets"
# The folder of a run's evaluation on another split begins with this.
_ON = "on-"


class Forgetting(Frozen):
    """The result of forgetting an image.

    Attributes:
        dataset: name of the data set.
        image: identity of the image.
        version: number of the new version without the image; 0 if the newest version used no shard with the image.
        removed: fingerprints of deleted versions, finished or not, whose shards could contain the image.
        pages: names of deleted pages and picture sheets.
        runs: runs that were trained on a version deleted now or before; their models are kept.
        champions: recipes whose current or former champion is one of these runs.
        caches: deleted cache folders of sources on this machine.
        dry_run: whether nothing was changed.
    """

    dataset: str
    image: str
    version: int
    removed: tuple[str, ...]
    pages: tuple[str, ...]
    runs: tuple[str, ...]
    champions: tuple[str, ...]
    caches: tuple[str, ...]
    dry_run: bool

    def lines(self) -> list[str]:
        """Return the actions, and then the commands that remain for the user, as lines; a dry run has a heading."""
        listed = {
            "removed version": self.removed,
            "deleted page": self.pages,
            "deleted cache": self.caches,
            "run that may have seen it": self.runs,
            "champion of": self.champions,
        }
        made = [f"version: {self.dataset}@{self.version}, without it"] if self.version else []
        again = [f"again: {_command(page)}" for page in self.pages if page.endswith(_PAGE)]
        told = [*made, *(f"{what}: {name}" for what, names in listed.items() for name in names), *again]
        return ["without --dry-run, which changed nothing:", *told] if self.dry_run else told


def _command(report: str) -> str:
    """Return the command that writes a report again."""
    _, run, *on = report.split("/")[:-1]
    return " ".join((f"podline report {run}", *(f"--split {each.removeprefix(_ON)}" for each in on)))


def forget(
    store: Store, dataset: str, key: str, reason: str, reporter: Reporter, *, dry_run: bool = False
) -> Forgetting:
    """Forget an image; after an interruption, the same call continues the work.

    Args:
        store: the store of the data set.
        dataset: name of the data set.
        key: the image's path in the source, its identity, or the path of its file.
        reason: the reason, which is written to manifests.
        reporter: reports the progress.
        dry_run: return the actions without carrying them out.

    Raises:
        SettingsError: no image, or several images, of the versions and the forgotten images match ``key``, which is
            not the path of a file; a split would become empty; or the data set is a published one.
        ArtifactError: a version is damaged.
        StoreUnavailableError: a running process uses a file that must be deleted.
        StoreError: the store cannot be read or written.
    """
    image, holders = _image_of(store, dataset, key)
    if not dry_run:
        publish_forgotten(store, dataset, image, key, reason)
    known, manifests = versions(store, dataset), _manifests(store, dataset)
    gone, version = _holding(store, manifests, image, holders), 0
    if known and known[-1].fingerprint in gone:
        newest = manifests[known[-1].fingerprint]
        made = None if dry_run else compact(store, newest, 1, reporter, forgotten(store, dataset))
        version = made.number if made else known[-1].number + 1
    needed = {need for name, one in manifests.items() if name not in gone for need in _needs(one)}
    removed, caches, busy = list[str](), cached_sources(store), list[str]()
    for holding in holdings(store):
        above, _, fingerprint = holding.name.rpartition("/")
        may_hold = fingerprint in gone or (not holding.whole and fingerprint not in needed)
        if above == f"datasets/{dataset}" and may_hold:
            (removed if dry_run or holding.remove() else busy).append(fingerprint)
    if not dry_run:
        busy += [one.name for one in caches if not one.remove()]
        busy += _delete_jobs(store)
        for each in (store, FolderStore(source_cache(store))):
            each.sweep()
    pages, there = _delete_pages(store, dataset, dry_run), manifests.keys() - gone
    runs = [run for run, spec in _trainings(store, dataset) if spec.fingerprint not in there]
    if busy:
        raise StoreUnavailableError(
            f"{store.uri}: a running process uses {', '.join(busy)}; wait until it ends, and repeat the command"
        )
    return Forgetting(
        dataset=dataset,
        image=image,
        version=version,
        removed=tuple(removed),
        pages=tuple(pages),
        runs=tuple(runs),
        champions=tuple(
            recipe
            for recipe in champions.recipes(store)
            if any(entry.run in runs for entry in champions.history(store, recipe))
        ),
        caches=tuple(one.name for one in caches),
        dry_run=dry_run,
    )


def _image_of(store: Store, dataset: str, key: str) -> tuple[str, dict[str, bool]]:
    """Return the identity of an image, and fingerprint of each version → whether its shards contain the image."""
    noted, manifests = {one.image: one.key for one in FORGOTTEN.read(store, dataset)}, _manifests(store, dataset)
    wanted = {key} if _IDENTITY.fullmatch(key) else {image for image, name in noted.items() if name == key}
    wanted = wanted or {image for manifest in manifests.values() for image in _named(store, manifest, key)}
    if is_file := not wanted and Path(key).is_file():
        with explained("read", Path(key)):
            wanted = {identified(Path(key).read_bytes()).identity.hex()}
    keys = {name: _held(store, manifest, wanted) for name, manifest in manifests.items()}
    found = wanted if is_file else wanted & {*noted, *(each for some in keys.values() for each in some)}
    if len(found) == 1:
        [image] = found
        return image, {name: image in some for name, some in keys.items()}
    problem = f"{len(found)} images {', '.join(sorted(found))}".strip()
    raise SettingsError(f"--key {key} matches {problem} of {dataset}, expected one; give the path of the image's file")


def _manifests(store: Store, dataset: str) -> dict[str, Manifest]:
    return {each.fingerprint: manifest_of(store, each) for each in datasets(store, dataset)}


def _needs(manifest: Manifest) -> set[str]:
    return {each.fingerprint for split in manifest.splits for each in split.older}


def _held(store: Store, manifest: Manifest, images: Collection[str]) -> set[str]:
    """Return those of the given image identities that a version's shards contain, even as deleted records."""
    if not versions(store, manifest.dataset):
        raise SettingsError(
            f"{manifest.dataset} is a published data set, whose images cannot be forgotten; expected one of your own"
        )
    if not images:
        return set()
    try:
        known = RecordTable.of(store, manifest).keys()
    except ArtifactError as error:
        raise ArtifactError(f"{error}; or delete the version with `podline store prune`") from error
    return {image for image in images if np.any(known == bytes.fromhex(image).rstrip(b"\0"))}


def _holding(store: Store, manifests: dict[str, Manifest], image: str, holders: Mapping[str, bool]) -> set[str]:
    """Return the fingerprints of versions that contain an image, or that use shards of a version that contains it."""
    new = {name for name, one in manifests.items() if name not in holders and _held(store, one, [image])}
    found = new | {name for name in manifests if holders.get(name)}
    while more := {name for name, one in manifests.items() if _needs(one) & found} - found:
        found |= more
    return found


def _named(store: Store, manifest: Manifest, name: str) -> Iterator[str]:
    for split, record in RecordNames(store, manifest).having(name):
        yield from identities(store, manifest, split, [record])


def _delete_jobs(store: Store) -> list[str]:
    """Delete files that conversions on Beam engines left; return the job folders that are still in use."""
    busy = list[str]()
    for folder in store.folders(JOBS):
        name = folder.rpartition("/")[2]
        with store.alone(name.partition("-")[0]) as free:
            for file in store.list(f"{JOBS}/{name}") if free else ():
                store.delete(file)
        busy += [] if free else [name]
    return busy


def _delete_pages(store: Store, dataset: str, dry_run: bool) -> list[str]:
    """Return pages that may show images of a data set, and all sheets; delete them, completion records first."""
    shown = dict[str, tuple[str, str]]()
    for run, _ in _trainings(store, dataset):
        others = [folder for folder in store.folders(f"runs/{run}") if folder.rpartition("/")[2].startswith(_ON)]
        shown |= dict.fromkeys([f"runs/{run}", *others], (REPORT.name, _PAGE))
    for folder in store.folders(f"{suspects.FOLDER}/{dataset}"):
        shown[f"{suspects.FOLDER}/{dataset}/{folder.rpartition('/')[2]}"] = SUSPECTS.name, suspects.PAGE
    pages = list[str]()
    for folder, (stage, name) in shown.items():
        if store.exists(page := f"{folder}/{name}"):
            pages.append(page)
            for each in () if dry_run else (completion_name(folder, stage), page):
                store.delete(each)
    for sheet in sorted((store.beside / _SHEETS).glob("*.png")):
        pages.append(f"{_SHEETS}/{sheet.name}")
        if not dry_run:
            sheet.unlink()
    return pages


def _trainings(store: Store, dataset: str) -> Iterator[tuple[str, TrainSpec]]:
    """Yield name and spec of each run that was trained on a data set."""
    for folder in store.folders("runs"):
        run = folder.rpartition("/")[2]
        if store.exists(f"runs/{run}/{SPEC}"):
            spec = training_of(store, run)
            if spec.recipe.dataset == dataset:
                yield run, spec
