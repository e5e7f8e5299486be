"""Checks ledger and champions' histories against what the store holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any, NamedTuple

from podline.documents import champions
from podline.documents.champions import Crowned
from podline.documents.completion import completion_name
from podline.documents.ledger_entry import Entry
from podline.documents.manifest import dataset_folder
from podline.errors import PodlineError
from podline.ledger import ledger
from podline.stages.table import CONVERT, VALIDATE
from podline.store.contract import Listed, Store

_OF_DATA = (CONVERT.name, VALIDATE.name)
Problem = tuple[str, str]
"""A name in the store, and what is wrong with it, as the end of a line that begins with its place."""


class _Night(NamedTuple):
    """What an entry tells that other files must bear out."""

    name: str
    ended: float
    run: str
    dataset: str
    stages: tuple[str, ...]
    trained: bool
    on_tpu: bool


class Told:
    """What the ledger tells; of each entry a few words are kept.

    Attributes:
        nights: of each run its last one.
        strange: documents that are no entries.
    """

    def __init__(self) -> None:
        self.nights: dict[str, _Night] = {}
        self.strange: list[Problem] = []

    def take(self, name: str, document: Any) -> None:
        """Take in an entry."""
        try:
            self._take_night(name, Entry.model_validate(document))
        except ValueError as error:
            self.strange.append((name, f"cannot be understood: {' '.join(str(error).split())}"))

    def _take_night(self, name: str, entry: Entry) -> None:
        known = self.nights.get(entry.run)
        if entry.run and (known is None or known.ended < entry.ended):
            data = entry.data and dataset_folder(entry.data.dataset, entry.data.fingerprint)
            waited = entry.waiting.turn + entry.waiting.tpu + entry.waiting.repairs
            self.nights[entry.run] = _Night(
                name, entry.ended, entry.run, data or "", tuple(entry.stages), entry.training is not None, waited > 0
            )


class Histories(NamedTuple):
    """What was found: problems, and what does no harm, a line each."""

    problems: list[Problem]
    notes: list[str]


def histories(store: Store, there: Mapping[str, Listed], documents: Mapping[str, Any], told: Told) -> Histories:
    """Hold the ledger and the champions' histories against what is there.

    Args:
        store: the store.
        there: what is published, by name.
        documents: what was read of it and is whole, by name.
        told: what the ledger tells.
    """
    problems = [*told.strange, *_foreign(there)]
    folders = {"/".join(name.split("/")[:depth]) for name in there for depth in (2, 3)}
    for night in told.nights.values():
        problems += _borne_out(store, there, folders, night)
    notes: list[str] = []
    for recipe in champions.recipes_among(there):
        problems += _champion(store, there, documents, recipe, notes)
    problems += _promoted(store, there, documents)
    problems += [
        (name, "is an orphan: by its name it is no part of a history; move it away")
        for name in there
        if name.startswith(f"{champions.FOLDER}/") and not champions.is_of_history(name)
    ]
    return Histories([(name, f"{store.where(name)} {problem}") for name, problem in problems], notes)


def _foreign(there: Mapping[str, Listed]) -> Iterator[Problem]:
    """Files in the ledger's folder that are no entries."""
    for name in there:
        parts = name.split("/")
        if parts[0] == ledger.FOLDER and parts[1:2] != ["data"] and not ledger.is_entry(name):
            yield name, "is an orphan: by its name it is no entry of the ledger; move it away"


def _borne_out(store: Store, there: Mapping[str, Listed], folders: Set[str], night: _Night) -> Iterator[Problem]:
    """What a run's last entry tells of and is not there; a folder that is gone as a whole was deleted to make room."""
    folder = f"runs/{night.run}"
    places = {stage: night.dataset if stage in _OF_DATA else folder for stage in night.stages}
    expected = [completion_name(place, stage) for stage, place in places.items() if place in folders]
    if folder in folders:
        expected += [f"{folder}/origin.json"] * night.trained + [f"{folder}/tpu.json"] * night.on_tpu
    for name in expected:
        if name not in there:
            yield name, f"is gone, and {store.where(night.name)} tells of it; run its stage again"


def _champion(
    store: Store, there: Mapping[str, Listed], documents: Mapping[str, Any], recipe: str, notes: list[str]
) -> Iterator[Problem]:
    folder, head = f"{champions.FOLDER}/{recipe}", champions.head_name(recipe)
    try:
        entries = champions.history(store, recipe)
    except PodlineError as error:
        yield folder, f"cannot be read: {error}"
        return
    if not entries:
        return
    if head in documents:
        number = documents[head].get("number", 0)
        if number < len(entries):
            notes.append(
                f"{store.where(head)} names number {number}, and {len(entries)} is the last: a process was killed in "
                "between, or an earlier head was put back; the next promotion writes it anew"
            )
    elif head not in there:
        yield head, f"is gone; the next promotion of {recipe} writes it anew"
    yield from _crowned(there, entries)


def _crowned(there: Mapping[str, Listed], entries: list[Crowned]) -> Iterator[Problem]:
    """What a champion's history tells of runs."""
    last = entries[-1]
    record = completion_name(f"runs/{last.run}", "train")
    if record not in there:
        yield record, "is gone, and the run is the champion; train it again"
    for entry in entries:
        folder = f"runs/{entry.run}"
        for name in (f"{folder}/promotion.json", completion_name(folder, "promote")):
            if name not in there and record in there:
                yield name, "is gone, and the run was promoted; promote it again"


def _promoted(store: Store, there: Mapping[str, Listed], documents: Mapping[str, Any]) -> Iterator[Problem]:
    """Histories that are gone as a whole, and runs tell that they were promoted."""
    known = champions.recipes_among(there)
    for name, document in documents.items():
        if not name.endswith("/stages/promote.json"):
            continue
        result = document.get("result", {})
        if result.get("promoted") and result.get("recipe") not in known:
            folder = f"{champions.FOLDER}/{result.get('recipe')}"
            yield folder, f"is gone: {store.where(name)} tells of a promotion; promote it again"
