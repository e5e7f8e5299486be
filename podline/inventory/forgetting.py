"""Forgets an image: its bytes leave the versions of its data set, this machine's caches, and pages with pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from podline.data.images.column_file import decoded
from podline.data.images.decoded import IMAGES
from podline.data.images.image_table import ImageTable
from podline.data.rawfiles import unpacked
from podline.data.record_table import DIGEST_BYTES, RECORDS, RecordTable, stored_digests
from podline.datasets.compaction import compact
from podline.datasets.fingerprint import source_cache
from podline.documents import champions, suspects
from podline.documents.completion import completion_name
from podline.documents.forgotten import FORGOTTEN, forgotten, publish_forgotten
from podline.documents.manifest import MANIFEST, Manifest, dataset_folder, read_manifest
from podline.documents.versions import versions
from podline.errors import ArtifactError, SettingsError, StoreUnavailableError
from podline.frozen import Frozen
from podline.inventory.inventory import Holding, holdings, unpacked_sources
from podline.progress import Reporter
from podline.stages.specs import SPEC, TrainSpec
from podline.stages.table import REPORT, SUSPECTS
from podline.store.contract import Store
from podline.store.folder import FolderStore

_SHA256 = re.compile("[0-9a-f]{64}")
_PAGE, _SHEETS, _JOBS = "report.html", "sheets", "jobs"


class Forgetting(Frozen):
    """A forgotten image.

    Attributes:
        dataset: of which.
        sha256: of its file.
        version: the number of the version that was made without it; 0 where the newest one did not hold it.
        removed: versions, by fingerprint, and unfinished ones, that were deleted: a shard of theirs could hold it.
        pages: the names of pages and sheets with pictures that were deleted.
        runs: those whose version is gone; their models are kept.
        champions: the recipes whose champion is, or was, one of these runs.
    """

    dataset: str
    sha256: str
    version: int
    removed: tuple[str, ...]
    pages: tuple[str, ...]
    runs: tuple[str, ...]
    champions: tuple[str, ...]

    def lines(self) -> list[str]:
        """Return what was done, and what is left to do."""
        listed = {
            "removed version": self.removed,
            "deleted page": self.pages,
            "run that may have seen it": self.runs,
            "champion of": self.champions,
        }
        made = [f"version: {self.dataset}@{self.version}, without it"] if self.version else []
        again = [f"again: podline report {page.split('/')[1]}" for page in self.pages if page.endswith(_PAGE)]
        return [*made, *(f"{what}: {name}" for what, names in listed.items() for name in names), *again]


def image_of(store: Store, dataset: str, key: str) -> str:
    """Return the sha256 of an image's file.

    Args:
        store: with the data set.
        dataset: its name.
        key: the image's path in the source, as this machine's caches have it, or the sha256 itself.

    Raises:
        SettingsError: no version, cache or forgotten image has it, or several do.
    """
    noted = {one.sha256: one.key for one in FORGOTTEN.read(store, dataset)}
    cached = dict(_cached(store, key))
    keys = set[bytes]()
    for manifest in _manifests(store, dataset).values():
        keys |= _keys(store, manifest)
    if _SHA256.fullmatch(key):
        if key in noted or key in cached or _beginning(key) in keys:
            return key
        raise SettingsError(f"got --key {key}, expected an image of {dataset}: no version has it; see sha256sum FILE")
    found = {sha256 for sha256, name in noted.items() if name == key}
    found = found or {sha256 for sha256 in cached if _beginning(sha256) in keys}
    if len(found) == 1:
        return found.pop()
    problem = f"{len(found)} images {', '.join(sorted(found))}".strip()
    raise SettingsError(f"got --key {key}: {problem} of {dataset}, expected one; give the sha256 of its file")


def forget(store: Store, dataset: str, sha256: str, key: str, reason: str, reporter: Reporter) -> Forgetting:
    """Forget an image; the same call goes on where one was broken off.

    Args:
        store: with the data set.
        dataset: its name.
        sha256: of the image's file.
        key: what it was called.
        reason: why; manifests say it.
        reporter: told how far it is.

    Raises:
        SettingsError: a split would have no image.
        StoreUnavailableError: a living process uses what has to be deleted.
        StoreError: the store cannot be read or written.
    """
    publish_forgotten(store, dataset, sha256, key, reason)
    known, manifests = versions(store, dataset), _manifests(store, dataset)
    gone = _holding(store, manifests, _beginning(sha256))
    newest, made = known[-1].fingerprint if known else "", None
    if newest in gone:
        made = compact(store, manifests[newest], 1, reporter, forgotten(store, dataset))
        manifests = _manifests(store, dataset)
    needed = {need for name, one in manifests.items() if name not in gone for need in _needs(one)}
    removed, busy = list[str](), list[str]()
    for holding in holdings(store):
        _, name, fingerprint = [*holding.name.split("/"), ""][:3]
        if holding.name.startswith("datasets/") and name == dataset and _goes(holding, fingerprint, gone, needed):
            (removed if holding.remove() else busy).append(fingerprint)
    busy += [one.name for one in unpacked_sources(store) if not one.remove()]
    busy += _delete_jobs(store)
    for each in (store, FolderStore(source_cache(store))):
        each.sweep()
    pages, runs = _delete_pages(store, dataset), _runs(store, dataset, set(manifests) - set(gone))
    if busy:
        raise StoreUnavailableError(
            f"{store.uri}: a living process uses {', '.join(busy)}; wait for its end and give the command again"
        )
    crowned = (name for name in champions.recipes(store) if _was_champion(store, name, runs))
    return Forgetting(
        dataset=dataset,
        sha256=sha256,
        version=made.number if made else 0,
        removed=tuple(removed),
        pages=tuple(pages),
        runs=tuple(runs),
        champions=tuple(crowned),
    )


def _manifests(store: Store, dataset: str) -> dict[str, Manifest]:
    """Return the manifests of a data set's versions, by fingerprint."""
    folders = [dataset_folder(dataset, each.rpartition("/")[2]) for each in store.folders(f"datasets/{dataset}")]
    found = (read_manifest(store, folder) for folder in folders if store.exists(f"{folder}/{MANIFEST}"))
    return {manifest.fingerprint: manifest for manifest in found}


def _needs(manifest: Manifest) -> set[str]:
    return {each.fingerprint for split in manifest.splits for each in split.older}


def _keys(store: Store, manifest: Manifest) -> set[bytes]:
    """Return the beginnings of checksums of images that a version's shards hold, also dead ones; no zeros end them."""
    if manifest.records is None:
        raise SettingsError(
            f"data set {manifest.dataset} is published, expected images of your own: no image leaves it"
        )
    try:
        table = RecordTable(store.local(f"{manifest.folder}/{RECORDS}"))
        every = chain(table.ended(), *(table.of_split(split.name, "key") for split in manifest.splits))
        return {key for rows in every for key in stored_digests(rows["key"]).tolist()}
    except ArtifactError as error:
        raise ArtifactError(f"{error}; or delete the version with `podline store prune`") from error


def _beginning(sha256: str) -> bytes:
    """Return which of :func:`_keys` an image has."""
    return bytes.fromhex(sha256)[:DIGEST_BYTES].rstrip(b"\0")


def _holding(store: Store, manifests: dict[str, Manifest], key: bytes) -> set[str]:
    """Return versions that hold an image, or need the shards of one that does."""
    found = {name for name, manifest in manifests.items() if key in _keys(store, manifest)}
    while more := {name for name, one in manifests.items() if _needs(one) & found} - found:
        found |= more
    return found


def _cached(store: Store, key: str) -> Iterator[tuple[str, str]]:
    """Yield the sha256 and the name of images in this machine's caches that are called, or have, a key."""
    for folder in unpacked(source_cache(store)):
        if (folder / IMAGES).exists():
            images = ImageTable(folder / IMAGES)
            for _, batch in images.batches("key", "sha256"):
                for name, sha256 in zip(*(batch[column].to_pylist() for column in ("key", "sha256")), strict=True):
                    if sha256 and key in (decoded(name), sha256.hex()):
                        yield sha256.hex(), decoded(name)


def _goes(holding: Holding, fingerprint: str, gone: set[str], needed: set[str]) -> bool:
    """Return whether a version is deleted: it is one of those, or was broken off and may hold anything."""
    return fingerprint in gone or (not holding.whole and fingerprint not in needed)


def _delete_jobs(store: Store) -> list[str]:
    """Delete what conversions on engines left; return the folders that are in use."""
    busy = list[str]()
    for folder in store.folders(_JOBS):
        name = folder.rpartition("/")[2]
        with store.alone(name.partition("-")[0]) as free:
            for file in store.list(f"{_JOBS}/{name}") if free else ():
                store.delete(file)
        busy += [] if free else [name]
    return busy


def _delete_pages(store: Store, dataset: str) -> list[str]:
    """Delete pages and sheets that show images of a data set, the completion records of pages first."""
    pages = list[str]()
    for run, _ in _trainings(store, dataset):
        pages += _deleted(store, completion_name(f"runs/{run}", REPORT.name), f"runs/{run}/{_PAGE}")
    for folder in store.folders(f"{suspects.FOLDER}/{dataset}"):
        name = f"{suspects.FOLDER}/{dataset}/{folder.rpartition('/')[2]}"
        pages += _deleted(store, completion_name(name, SUSPECTS.name), f"{name}/{suspects.PAGE}")
    for sheet in sorted((store.beside / _SHEETS).glob("*.png")):
        sheet.unlink()
        pages.append(f"{_SHEETS}/{sheet.name}")
    return pages


def _deleted(store: Store, record: str, page: str) -> list[str]:
    if not store.exists(page):
        return []
    store.delete(record)
    store.delete(page)
    return [page]


def _trainings(store: Store, dataset: str) -> Iterator[tuple[str, TrainSpec]]:
    """Yield the runs of a data set, with their specs."""
    for folder in store.folders("runs"):
        run = folder.rpartition("/")[2]
        if store.exists(f"runs/{run}/{SPEC}"):
            spec = TrainSpec.model_validate(store.read_json(f"runs/{run}/{SPEC}"))
            if spec.recipe.dataset == dataset:
                yield run, spec


def _runs(store: Store, dataset: str, there: set[str]) -> list[str]:
    return [run for run, spec in _trainings(store, dataset) if spec.fingerprint not in there]


def _was_champion(store: Store, recipe: str, runs: list[str]) -> bool:
    return any(entry.run in runs for entry in champions.history(store, recipe))
