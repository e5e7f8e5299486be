"""Implements ``podline store verify``: verifies every file of a store, and reports missing and unlisted files.

Each JSON document contains its own digest. Completion records and manifests list all other files, with size and
checksum. The store is listed once. From a bucket, only documents are downloaded, and objects whose checksum the
service does not provide.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from podline.base.errors import ArtifactError, PodlineError
from podline.base.plurals import plural
from podline.base.progress import Reporter
from podline.data.people.truth import truth_name
from podline.data.tfds import tfds_names
from podline.data.versions.fingerprint import CONVERSIONS
from podline.documents import champions
from podline.documents.champions import HISTORY
from podline.documents.completion import Artifact, Completion, completion_name, damage
from podline.documents.corrections import FORGOTTEN, REVIEWS
from podline.documents.manifest import MANIFEST, SHARD_RECORDS, Manifest, shard_record, stored_name
from podline.documents.origins import ORIGIN
from podline.documents.reading import validated
from podline.documents.versions import FIRST_IMAGES, VERSIONS
from podline.ledger import ledger
from podline.store.contract import INDEX, Listed, Store, holding_of
from podline.store.one_writer import LEASE
from podline.store.prefetch import in_order

_RECORD = re.compile(r"(?P<folder>[^/]+/.+)/stages/(?P<stage>[^/]+)\.json")
_HOLDINGS = ("datasets", "runs")
# First component of a stage folder's path → number of components of the path.
_DEPTHS = {"finder": 2, "comparisons": 2, "suspects": 3}
_NUMBERED = (HISTORY, REVIEWS, FORGOTTEN, VERSIONS)
_KNOWN = (*_HOLDINGS, *_DEPTHS, ledger.FOLDER, *(series.folder.partition("/")[0] for series in _NUMBERED))
# Folders with measurements, checks and downloads, which are repeated if missing.
_MEMORIES = ("paces", "architectures", "targets", "weights", CONVERSIONS, FIRST_IMAGES)
_ENTRIES = (ledger.is_entry, champions.is_beginning, *(series.has for series in _NUMBERED))
# Files in a run's folder that flows write outside of stages.
_OF_FLOWS = (ORIGIN, "tpu.json")
_OWN = tuple(f"/{name}" for name in _OF_FLOWS)


class Verified(NamedTuple):
    """The result of a verification.

    Attributes:
        checked: number of files that were compared with a checksum.
        problems: one line for each damaged, missing, unfinished or unlisted file.
        notes: one line for each harmless finding.
    """

    checked: int
    problems: list[str]
    notes: list[str]


def verify(store: Store, reporter: Reporter) -> Verified:
    """Verify a whole store; in a folder, every file is read.

    Args:
        store: the store.
        reporter: reports the number of verified files.

    Raises:
        StoreError: the store cannot be listed.
    """
    return _Verification(store, {found.name: found for found in store.listing()}).verified(reporter)


class _Verification:
    """The state of one verification.

    Attributes:
        there: name → published file.
        named: name of a file → the records and manifests that list it, as (artifact, name of the document).
        manifests: name → valid manifest.
        problems: name → its first problem.
    """

    def __init__(self, store: Store, there: dict[str, Listed]) -> None:
        self.store, self.there = store, there
        self.named: dict[str, list[tuple[Artifact, str]]] = {}
        self.manifests: dict[str, Manifest] = {}
        self.problems: dict[str, str] = {}

    def verified(self, reporter: Reporter) -> Verified:
        records = [name for name in self.there if _RECORD.fullmatch(name) or _is_manifest(name)]
        for name, document in self._read(records):
            self._take(name, document)
        others = [name for name in self.there if self._stands_alone(name)]
        deque(self._read(others), maxlen=0)
        known = sorted(self.named)
        for done, problem in enumerate(in_order(self._damage, known, self.store.parallel), start=1):
            if problem:
                self._problem(known[done - 1], problem)
            reporter.progress(done, len(known), "files")
        for folder, names in self._folders().items():
            self._check_folder(folder, names)
        self._check_champions()
        return Verified(len(known) + len(records) + len(others), list(self.problems.values()), self._notes())

    def _problem(self, name: str, line: str) -> None:
        self.problems.setdefault(name, line)

    def _read(self, names: list[str]) -> Iterator[tuple[str, Any]]:
        """Yield name and content of each valid document; keep the problem of each invalid one."""
        answers = in_order(self._document, names, self.store.parallel)
        for name, (document, problem) in zip(names, answers, strict=True):
            if problem:
                self._problem(name, problem)
            else:
                yield name, document

    def _document(self, name: str) -> tuple[Any, str]:
        try:
            return self.store.read_json(name), ""
        except PodlineError as error:
            return None, str(error)

    def _stands_alone(self, name: str) -> bool:
        """Return whether a document is listed nowhere, so that only its own digest verifies it."""
        listed = name in self.named or _is_manifest(name) or _RECORD.fullmatch(name)
        # Other files of a data set or run are listed, orphans, or in an unfinished folder; some have no digest.
        listed = listed or (holding_of(name) and not name.endswith(_OWN) and f"/{SHARD_RECORDS}/" not in name)
        # A bucket's listing has the sha256 of unchanged objects.
        listed = listed or (self.there[name].sha256 and name.split("/")[3:4] == [SHARD_RECORDS])
        return name.startswith(tuple(f"{top}/" for top in _KNOWN)) and name.endswith(".json") and not listed

    def _take(self, name: str, document: Any) -> None:
        """Collect the files that a completion record or a manifest lists."""
        where = self.store.where(name)
        try:
            if _is_manifest(name):
                folder = name.removesuffix(f"/{MANIFEST}")
                manifest = validated(document, Manifest, where, "a manifest", "convert the data again")
                self.manifests[name] = manifest
                named: Iterable[Artifact] = (
                    Artifact(name=stored_name(folder, item.file), bytes=item.bytes, sha256=item.sha256)
                    for item in manifest.files
                )
            else:
                remedy = "run the stage again"
                record = validated(document, Completion, where, "a completion record", remedy)
                named = (*record.artifacts, *record.beside)
        except ArtifactError as error:
            self._problem(name, str(error))
            return
        for artifact in named:
            self.named.setdefault(artifact.name, []).append((artifact, name))

    def _damage(self, name: str) -> str | None:
        for artifact, by in self.named[name]:
            try:
                problem = damage(self.store, artifact, self.there.get(name))
            except PodlineError as error:
                problem = str(error)
            if problem:
                match = _RECORD.fullmatch(by)
                remedy = f"delete {self.store.where(by)} and run {match['stage']} again" if match else "convert again"
                return f"{problem}; put it back, or {remedy}"
        return None

    def _folders(self) -> dict[str, list[str]]:
        """Return folder → its files; report files that belong to no stage, data set, run or history."""
        folders: dict[str, list[str]] = {}
        for name in self.there:
            top = name.split("/", maxsplit=1)[0]
            if folder := _folder_of(name):
                folders.setdefault(folder, []).append(name)
            elif top in _KNOWN and top not in _HOLDINGS and not any(known(name) for known in _ENTRIES):
                self._orphan(name, top)
        return folders

    def _check_folder(self, folder: str, names: list[str]) -> None:
        """Report the missing files of a folder, and the files that its documents do not list."""
        kind = folder.split("/", maxsplit=1)[0]
        whole = {"datasets": f"{folder}/{MANIFEST}", "runs": completion_name(folder, "train")}.get(kind)
        if whole and whole not in names:
            self._problem(folder, f"{self.store.where(folder)} is not finished: {plural(len(names), 'object')}")
            return
        record = completion_name(folder, "convert")
        if kind == "datasets" and record not in names:
            where = self.store.where(record)
            self._problem(record, f"{where} is missing, or its conversion was interrupted; convert again")
        records = {name for name in names if _RECORD.fullmatch(name)}
        if any(name in self.problems for name in (*records, whole)):
            return  # the files of a damaged record are unknown
        expected = records | self.named.keys() | {f"{folder}/{name}" for name in _OF_FLOWS if kind == "runs"}
        if kind == "datasets":
            manifest = self.manifests[f"{folder}/{MANIFEST}"]
            of_shards = {f"{folder}/{shard_record(shard.file)}" for split in manifest.splits for shard in split.shards}
            remedy = f"put it back, or delete {self.store.where(record)} and run convert again"
            for name in sorted(of_shards - set(names)):
                self._problem(name, f"{self.store.where(name)} is missing; {remedy}")
            expected |= of_shards | {f"{folder}/{name}" for name in _known(manifest)}
        for name in sorted(set(names) - expected):
            if name.endswith(f"/{LEASE}"):
                continue  # the lease of a stage that is running, or that was killed
            self._orphan(name, folder)

    def _orphan(self, name: str, folder: str) -> None:
        # Evaluations of other splits have their own records.
        own = re.match(rf"{re.escape(folder)}/on-[^/]+", name)
        where, records = self.store.where(name), self.store.where(f"{own[0] if own else folder}/stages")
        self._problem(
            name,
            f"{where} is an orphan: no record in {records} lists it, since its stage is running or was interrupted, or "
            "the record was deleted; run the stage again, or delete the file",
        )

    def _check_champions(self) -> None:
        for recipe in champions.recipes_among(self.there):
            folder = f"{champions.FOLDER}/{recipe}"
            try:
                entries = champions.history(self.store, recipe)
            except PodlineError as error:
                self._problem(folder, f"{self.store.where(folder)} cannot be read: {error}")
                continue
            for record in [completion_name(f"runs/{entry.run}", "train") for entry in entries[-1:]]:
                if record not in self.there:
                    self._problem(
                        record,
                        f"{self.store.where(record)} is missing, although the run is the champion; put it back, or "
                        f"`podline models rollback {recipe}`",
                    )

    def _notes(self) -> list[str]:
        """Return one line for each file or folder that is not Podline's, in the root, in datasets/ and in runs/."""
        others: dict[str, int] = {}
        for name in self.there:
            first, *rest = name.split("/")
            if first in _HOLDINGS and not _folder_of(name):
                shown = "/".join([first, *rest[:1]])
            elif first not in (*_KNOWN, *_MEMORIES) and name != INDEX:
                shown = first
            else:
                continue
            others[shown] = others.get(shown, 0) + 1
        return [
            f"{self.store.where(shown)} is ignored: {plural(count, 'file')} not made by a stage"
            for shown, count in sorted(others.items())
        ]


def _folder_of(name: str) -> str:
    """Return the folder of the stage, data set or run to which a file belongs; empty for other files."""
    parts = name.split("/")
    depth = 2 if name.startswith(f"{ledger.FOLDER}/data/") else _DEPTHS.get(parts[0], 0)
    return holding_of(name) or ("/".join(parts[:depth]) if depth and len(parts) > depth else "")


def _is_manifest(name: str) -> bool:
    parts = name.split("/")
    return parts[0] == "datasets" and parts[3:] == [MANIFEST]


def _known(manifest: Manifest) -> Iterator[str]:
    """Yield the names of a data set's files, except shards, completion records and shard records."""
    yield MANIFEST
    yield from tfds_names(field.name for field in manifest.fields)
    for split in manifest.splits:
        yield truth_name(split.name)
