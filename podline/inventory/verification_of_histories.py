"""Checks ledger, chain and champions' histories against what the store holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any, NamedTuple

from podline.documents import champions
from podline.documents.champions import Crowned
from podline.documents.completion import completion_name
from podline.documents.ledger_entry import Entry
from podline.documents.manifest import dataset_folder
from podline.errors import PodlineError
from podline.ledger import chain, ledger
from podline.ledger.chain import Link
from podline.store.contract import Listed, Store

_OF_DATA = ("convert", "validate")
_OF_RUNS = ("train", "evaluate", "promote", "report")
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
    """What the ledger and its chain tell; of each entry a few words are kept.

    Attributes:
        links: by number.
        nights: of each run its last one.
        strange: documents that are no entries or links.
    """

    def __init__(self) -> None:
        self.links: dict[int, Link] = {}
        self.nights: dict[str, _Night] = {}
        self.strange: list[Problem] = []

    def take(self, name: str, document: Any) -> None:
        """Takes in an entry, or a link."""
        try:
            if name.startswith(f"{chain.FOLDER}/"):
                for number in chain.numbers([name]):
                    self.links[number] = Link.model_validate(document)
            else:
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
    """Holds the ledger, its chain and the champions' histories against what is there.

    Args:
        store: the store.
        there: what is published, by name.
        documents: what was read of it and is whole, by name.
        told: what the ledger and its chain tell.
    """
    problems = [*told.strange, *_ledger(store, there, told)]
    problems += _chain(store, there, told)
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


def _ledger(store: Store, there: Mapping[str, Listed], told: Told) -> Iterator[Problem]:
    """Entries that no link names, and files that are no entries."""
    linked = {entry.name for link in told.links.values() for entry in link.entries}
    following = chain.name_of(max(chain.numbers(there), default=0) + 1)
    unlinked = (
        f"is in no link of the chain: {store.where(following)} is gone, or its run was killed before it wrote one; the "
        "next run that ends takes it in"
    )
    for name in there:
        parts = name.split("/")
        if parts[0] != ledger.FOLDER or parts[1:2] == ["data"]:
            continue
        if not ledger.is_entry(name):
            yield name, "is an orphan: by its name it is no entry of the ledger; move it away"
        elif name not in linked:
            yield name, unlinked


def _chain(store: Store, there: Mapping[str, Listed], told: Told) -> Iterator[Problem]:
    present, remedy = set(chain.numbers(there)), chain.REMEDY
    for name in there:
        if name.startswith(f"{chain.FOLDER}/") and not chain.numbers([name]):
            yield name, "is an orphan: by its name it is no link of the chain; move it away"
    for number in range(1, max(present, default=0) + 1):
        name = chain.name_of(number)
        where, link = store.where(name), told.links.get(number)
        if number not in present:
            yield name, f"is gone, and later links are there; {remedy}"
        if link is None:
            continue  # gone or damaged
        before = chain.name_of(number - 1)
        if before in there and (found := store.sha256(before, there[before])) != link.before_sha256:
            yield before, f"has sha256 {found[:12]}… vs {link.before_sha256[:12]}… in {where}; {remedy}"
        for entry in link.entries:
            if entry.name not in there:
                yield entry.name, f"is gone: {where} names it; {remedy}"
            elif (found := store.sha256(entry.name, there[entry.name])) != entry.sha256:
                yield entry.name, f"has sha256 {found[:12]}… vs {entry.sha256[:12]}… in {where}; {remedy}"


def _borne_out(store: Store, there: Mapping[str, Listed], folders: Set[str], night: _Night) -> Iterator[Problem]:
    """What a run's last entry tells of and is not there; a folder that is gone as a whole was deleted to make room."""
    folder = f"runs/{night.run}"
    stages = dict.fromkeys(_OF_RUNS, folder) | {stage: night.dataset for stage in _OF_DATA if night.dataset}
    kept = folders & set(stages.values())
    expected = [completion_name(stages[stage], stage) for stage in night.stages if stages.get(stage) in kept]
    if folder in kept:
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
