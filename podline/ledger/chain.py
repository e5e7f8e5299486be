"""The chain beside the ledger, ``ledger-chain/00000001.json`` …: it shows that an entry was deleted.

A link names entries with their checksums, nearly always the one that was written just before it, and the link before
it. It appears under a number that nobody has, so of several writers at once, on whatever machines, each has links of
its own. An entry without a link, be it that its process was killed in between, that its link was deleted, or that it is
older than the chain, is taken into the next link that anybody writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from podline.errors import ArtifactError, StoreError, TakenError
from podline.frozen import Frozen
from podline.store.contract import Listed, Store

FOLDER = "ledger-chain"
_NAME = re.compile(rf"{FOLDER}/(?P<number>\d{{8}})\.json")
# Writers who come between a look at the last number and the next one; each of them has ended a run just now.
_ATTEMPTS = 100
REMEDY = (
    f"put it back; if it is lost, delete the folder {FOLDER}: the next run that ends begins it anew with what is there"
)


class Chained(Frozen):
    """An entry of the ledger, as a link names it: its file's name in the store, and its sha256."""

    name: str
    sha256: str


class Link(Frozen):
    """A link of the chain.

    Attributes:
        number: its own, from 1.
        before_sha256: of the link before it; empty for the first one.
        entries: those that no link before names.
        held: how many entries all links up to this one name.
    """

    number: int
    before_sha256: str
    entries: tuple[Chained, ...]
    held: int


def name_of(number: int) -> str:
    """The name, in the store, of a link."""
    return f"{FOLDER}/{number:08d}.json"


def numbers(names: Iterable[str]) -> list[int]:
    """The numbers of the links among some names, ascending."""
    return sorted(int(match["number"]) for match in map(_NAME.fullmatch, names) if match)


def read(store: Store, number: int) -> Link:
    """A link.

    Raises:
        StoreError: it is not there or cannot be read.
        ArtifactError: it is damaged.
    """
    name = name_of(number)
    try:
        return Link.model_validate(store.read_json(name, REMEDY))
    except ValueError as error:
        raise ArtifactError(f"{store.where(name)} is no link of the ledger's chain ({error}); {REMEDY}") from error


def append(store: Store, written: str, present: Callable[[], Mapping[str, Listed]]) -> None:
    """Writes a link for an entry that was written just now, and for others that have none.

    Args:
        store: the store.
        written: the entry, by its file's name in the store.
        present: lists the entries that there are, by name.

    Raises:
        StoreError: it cannot be written.
    """
    for _ in range(_ATTEMPTS):
        last = max(numbers(store.list(FOLDER)), default=0)
        there = present()
        held, new = _unlinked(store, last, there, written)
        if not new:
            return
        link = Link(
            number=last + 1,
            before_sha256=store.sha256(name_of(last)) if last else "",
            entries=tuple(Chained(name=name, sha256=store.sha256(name, there[name])) for name in new),
            held=held + len(new),
        )
        try:
            store.publish_json(name_of(link.number), link.model_dump(mode="json"))
        except TakenError:
            continue
        return
    raise StoreError(f"{store.where(FOLDER)}: {_ATTEMPTS} links were written by others while one was to be added")


def count(store: Store) -> int:
    """How many entries there should be; 0 where there is no chain.

    Raises:
        ArtifactError: the last link is damaged.
        StoreError: it cannot be read.
    """
    last = max(numbers(store.list(FOLDER)), default=0)
    return read(store, last).held if last else 0


def _unlinked(store: Store, last: int, there: Mapping[str, Listed], written: str) -> tuple[int, list[str]]:
    """How many entries the links name, and those that none of them does.

    By the last link's count it can be only the one that was written just now; if not, all links are read.
    """
    try:
        held = read(store, last).held if last else 0
    except ArtifactError:
        held = -1
    if last and held + 1 == len(there) and written in there:
        return held, [written]
    linked = set()
    for number in numbers(store.list(FOLDER)):
        try:
            linked |= {entry.name for entry in read(store, number).entries}
        except ArtifactError:
            continue  # named by `podline store verify`; what only this link names gets another one
    return len(linked), sorted(there.keys() - linked)
