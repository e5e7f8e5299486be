"""``podline store verify``: checks every file of a store, and names missing and unknown ones.

Four questions are asked. Is each file that a completion record or a manifest names there, with its size and checksum?
Is each document what was published under its name? Is there what others tell of: the
entries of a champion's history, the stages of a run that ended? And is each file named by something?

A store is listed once and each document is read once; of a bucket, no other object is downloaded whose checksum the
service knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from podline.data.sources.coco_truth import truth_name
from podline.data.tfds import tfds_names
from podline.documents import champions
from podline.documents.completion import Artifact, Completion, completion_name, damage
from podline.documents.manifest import MANIFEST, Manifest, shard_record
from podline.documents.origins import ORIGIN, of_another_training
from podline.errors import PodlineError
from podline.inventory.verification_of_histories import Told, histories
from podline.ledger import ledger
from podline.plurals import plural
from podline.progress import Reporter
from podline.store.contract import Listed, Store
from podline.store.prefetch import in_order
from podline.store.sealed_text import INDEX, seal_problem

_RECORD = re.compile(r"(?P<folder>.+)/stages/(?P<stage>[^/]+)\.json")
# How many parts the names of these folders have.
_DEPTHS = {"datasets": 3, "runs": 2, "finder": 2, "comparisons": 2}
_KNOWN = (*_DEPTHS, ledger.FOLDER, champions.FOLDER)
# In a run's folder: written by who runs the stages, beside them.
_OF_FLOWS = (ORIGIN, "tpu.json")


class Verified(NamedTuple):
    """What a verification found.

    Attributes:
        checked: how many files were held against a checksum.
        problems: what is damaged, gone, unfinished or named by nothing, a line each.
        notes: what does no harm, a line each.
    """

    checked: int
    problems: list[str]
    notes: list[str]


def verify(store: Store, reporter: Reporter) -> Verified:
    """Verifies a whole store; reads all of it that is in a folder.

    Args:
        store: the store.
        reporter: hears of every file.

    Raises:
        StoreError: the store cannot be listed.
    """
    return _Look(store, {found.name: found for found in store.listing()}).verified(reporter)


class _Look:
    """One look at a store.

    Attributes:
        there: what is published, by name.
        named: what records and manifests name, each with the record's name.
        documents: the JSON documents that were read and are whole; of the ledger none is kept.
        problems: the first one of each name.
    """

    def __init__(self, store: Store, there: dict[str, Listed]) -> None:
        self.store, self.there = store, there
        self.named: dict[str, list[tuple[Artifact, str]]] = {}
        self.documents: dict[str, Any] = {}
        self.told = Told()
        self.problems: dict[str, str] = {}
        self.notes: list[str] = []

    def verified(self, reporter: Reporter) -> Verified:
        records = [name for name in self.there if _RECORD.fullmatch(name) or _is_manifest(name)]
        self._read(records)
        for name in records:
            self._take_names(name)
        others = [name for name in self.there if self._stands_alone(name)]
        self._read(others)
        known = sorted(self.named)
        for done, (name, problem) in enumerate(
            in_order(lambda name: (name, self._damage(name)), known, self.store.parallel), start=1
        ):
            if problem:
                self._problem(name, problem)
            reporter.progress(done, len(known), "files")
        for folder, names in self._folders().items():
            self._account(folder, names)
        self._look_at_histories()
        self._look_at_the_rest()
        return Verified(len(known) + len(records) + len(others), list(self.problems.values()), self.notes)

    def _problem(self, name: str, line: str) -> None:
        self.problems.setdefault(name, line)

    def _read(self, names: list[str]) -> None:
        answers = in_order(self._document, names, self.store.parallel)
        for name, (document, problem) in zip(names, answers, strict=True):
            if problem:
                self._problem(name, problem)
            elif ledger.is_entry(name):
                self.told.take(name, document)
            else:
                self.documents[name] = document

    def _document(self, name: str) -> tuple[Any, str]:
        """Return a document, and what is wrong with it."""
        try:
            return self.store.read_json(name), ""
        except PodlineError as error:
            return None, str(error)

    def _stands_alone(self, name: str) -> bool:
        """Whether a document is verified by its own digest alone."""
        top, *below = name.split("/")
        if not below or top not in _KNOWN or not name.endswith(".json"):
            return False
        foreign = top == ledger.FOLDER and below[0] != "data" and not ledger.is_entry(name)
        return not foreign and not any(name in known for known in (self.named, self.documents, self.problems))

    def _take_names(self, name: str) -> None:
        """Notes what a record or a manifest names."""
        if name not in self.documents:
            return
        try:
            if _is_manifest(name):
                named: Iterable[Artifact] = _of_manifest(name, Manifest.model_validate(self.documents[name]))
            else:
                record = Completion.model_validate(self.documents[name])
                named = (*record.artifacts, *record.beside)
        except ValueError as error:
            self._problem(name, f"{self.store.where(name)} cannot be understood: {' '.join(str(error).split())}")
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
                return f"{problem}; {self._remedy(artifact, by)}"
        return None

    def _remedy(self, artifact: Artifact, by: str) -> str:
        match = _RECORD.fullmatch(by)
        stage = match["stage"] if match else "convert"
        record = Completion.model_validate(self.documents[by]) if match else None
        if record and artifact in record.beside:
            return f"put it back, or delete {self.store.where(by)} and run {stage} again"
        return f"put it back, or run {stage} again"

    def _folders(self) -> dict[str, list[str]]:
        """The folders of data sets, runs, searches and comparisons: what each holds."""
        folders: dict[str, list[str]] = {}
        for name in self.there:
            parts = name.split("/")
            depth = _DEPTHS.get(parts[0], 0)
            if depth and len(parts) > depth:
                folders.setdefault("/".join(parts[:depth]), []).append(name)
            elif depth:
                self._orphan(name)
        return folders

    def _account(self, folder: str, names: list[str]) -> None:
        """Says what a folder lacks, and what nothing in it names."""
        kind = folder.split("/", maxsplit=1)[0]
        records = {name for name in names if _RECORD.fullmatch(name)}
        if kind == "comparisons" and not records:
            self._unrecorded(names)
            return
        whole = {"datasets": f"{folder}/{MANIFEST}", "runs": completion_name(folder, "train")}.get(kind)
        if (whole not in names) if whole else not records:
            self._problem(folder, f"{self.store.where(folder)} is not finished: {plural(len(names), 'object')}")
            self._look_at_checkpoints(names)
            return
        expected = records | self.named.keys()
        if kind == "datasets":
            expected |= self._of_data_set(folder)
        elif kind == "runs":
            expected |= self._of_run(folder, names)
        for name in sorted(set(names) - expected):
            self._orphan(name)

    def _of_data_set(self, folder: str) -> set[str]:
        record = completion_name(folder, "convert")
        if record not in self.there:
            self._problem(
                record, f"{self.store.where(record)} is gone, or its conversion was broken off; convert again"
            )
        manifest = f"{folder}/{MANIFEST}"
        if manifest not in self.documents:
            return {name for name in self.there if name.startswith(f"{folder}/")}
        known = _known(Manifest.model_validate(self.documents[manifest])) if manifest not in self.problems else ()
        return {f"{folder}/{name}" for name in known}

    def _of_run(self, folder: str, names: list[str]) -> set[str]:
        record = self.documents.get(completion_name(folder, "train"))
        if record is None:  # it is damaged, and it is what names most of them
            return set(names)
        expected = {f"{folder}/{name}" for name in _OF_FLOWS}
        self._look_at_origin(f"{folder}/{ORIGIN}", folder)
        # What a damaged record names is not known.
        unread = {match["folder"] for name in names if name in self.problems and (match := _RECORD.fullmatch(name))}
        return expected | {name for name in names if name.startswith(tuple(f"{place}/" for place in unread))}

    def _look_at_origin(self, name: str, folder: str) -> None:
        if name in self.documents and of_another_training(self.store, folder, self.documents[name]):
            self._problem(
                name,
                f"{self.store.where(name)} tells of another training than {completion_name(folder, 'train')}: an "
                "earlier one was put back, or the run was killed in between; put it back, or delete it",
            )

    def _look_at_checkpoints(self, names: list[str]) -> None:
        """Holds arrays that no record names against what lies beside them."""
        for name in names:
            if "/checkpoints/" not in name or name in self.named or not name.endswith(".npz"):
                continue
            described = f"{name.removesuffix('.npz')}.json"
            document = self.documents.get(described)
            if described not in self.there:
                self._orphan(name)
            elif document is not None and {"bytes", "sha256"} <= document.keys():
                artifact = Artifact(name=name, bytes=document["bytes"], sha256=document["sha256"])
                if problem := damage(self.store, artifact, self.there[name]):
                    self._problem(name, f"{problem}; the next start of the run passes it over")
        for name in names:
            arrays = f"{name.removesuffix('.json')}.npz"
            if "/checkpoints/" in name and name.endswith(".json") and arrays not in self.there:
                self._problem(arrays, f"{self.store.where(arrays)} is gone, and {self.store.where(name)} is there")

    def _look_at_histories(self) -> None:
        found = histories(self.store, self.there, self.documents, self.told)
        for name, line in found.problems:
            self._problem(name, line)
        self.notes += found.notes

    def _look_at_the_rest(self) -> None:
        """The index, and what is in folders that are not the store's."""
        if INDEX in self.there:
            problem = seal_problem(self.store.read_bytes(INDEX))
            if problem:
                self._problem(INDEX, f"{self.store.where(INDEX)} {problem}; `podline runs nights` makes it again")
        top = ledger.FOLDER
        for name in self.there:
            parts = name.split("/")
            if parts[:2] == [top, "data"] and name not in self.named and not _RECORD.fullmatch(name):
                self._unrecorded([name])
        others: dict[str, int] = {}
        for name in self.there:
            first, slash, _ = name.partition("/")
            if first not in _KNOWN and name != INDEX:
                others[f"{first}{slash}"] = others.get(f"{first}{slash}", 0) + 1
        self.notes += [
            f"{self.store.where(first.rstrip('/'))} is not looked at: {plural(count, 'file')} that no stage made"
            for first, count in sorted(others.items())
        ]

    def _unrecorded(self, names: Iterable[str]) -> None:
        for name in names:
            records = self.store.where("/".join((*name.split("/")[:-1], "stages")))
            self.notes.append(f"{self.store.where(name)} has no checksum: its record in {records} is gone")

    def _orphan(self, name: str) -> None:
        """A file that nothing names; evaluations of other splits than the usual one have records of their own."""
        parts = name.split("/")
        depth = _DEPTHS.get(parts[0], 1)
        depth += parts[0] == "runs" and len(parts) > depth and parts[depth].startswith("on-")
        records = self.store.where("/".join((*parts[:depth], "stages")))
        self._problem(
            name,
            f"{self.store.where(name)} is an orphan: nothing in {records} names it; its stage is at work or was broken "
            "off, or its record is gone: run the stage again, or delete it",
        )


def _is_manifest(name: str) -> bool:
    parts = name.split("/")
    return parts[0] == "datasets" and parts[3:] == [MANIFEST]


def _of_manifest(name: str, manifest: Manifest) -> Iterator[Artifact]:
    folder = name.removesuffix(f"/{MANIFEST}")
    for item in manifest.files:
        yield Artifact(name=f"{folder}/{item.file}", bytes=item.bytes, sha256=item.sha256)


def _known(manifest: Manifest) -> Iterator[str]:
    """What lies in a data set's folder, but for completion records."""
    yield MANIFEST
    yield from tfds_names(field.name for field in manifest.fields)
    for split in manifest.splits:
        yield truth_name(split.name)
        for shard in split.shards:
            yield from (*(file.file for file in shard.files), shard_record(shard.file))
