"""The champion of each recipe: a history that only grows, in ``models/<recipe>/history/000001.json`` and so on.

What the last entry names is the champion. An entry appears whole and under a number that nobody has, in a folder as in
a bucket, so of two changes at once one is made, and one that is killed is made or not.

Each entry has the checksum of the one before it, and ``models/<recipe>/head.json`` that of the last one: so an entry
that was deleted is missed wherever it was. The head is written after the entry. A process that is killed in between
leaves a head that is one entry behind, which changes nothing; it is never ahead.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterable
from typing import Literal, NamedTuple

from podline.errors import ArtifactError, OvertakenError, StoreError, TakenError
from podline.frozen import Frozen
from podline.store import digests
from podline.store.contract import Store

FOLDER = "models"
_HEAD = re.compile(rf"{FOLDER}/(?P<recipe>[^/]+)/head\.json")
_NAME = re.compile(rf"{FOLDER}/(?P<recipe>[^/]+)/history/(?P<number>\d{{6}})\.json")

Action = Literal["promoted", "promoted anyway", "rolled back"]


class Crowned(Frozen):
    """A model that became the champion.

    Attributes:
        number: of the change, from 1.
        action: how it came to it: by the rules, by a person in spite of them, or because a later one was taken back.
        run: whose model it is.
        weights_sha256: the model's identity.
        dataset: what it was trained on …
        fingerprint: … and its data set's fingerprint.
        reason: what a person said; may be empty.
        reference: whether candidates are compared with it from now on: it was shown to be better than the reference
            before it, or a person promoted it in spite of the rules.
        time: Unix time.
        token: no two changes have the same, be they otherwise equal.
        before_sha256: of the entry before it; empty for the first one.
    """

    number: int
    action: Action
    run: str
    weights_sha256: str
    dataset: str
    fingerprint: str
    reason: str = ""
    reference: bool = False
    time: float
    token: str
    before_sha256: str


class Head(Frozen):
    """The last entry of a history: its number, and its file's sha256."""

    number: int
    sha256: str


class Candidate(NamedTuple):
    """A model that may become the champion; see :class:`Crowned`."""

    run: str
    weights_sha256: str
    dataset: str
    fingerprint: str
    reference: bool = False


def recipes(store: Store) -> list[str]:
    """The recipes that have a champion."""
    return recipes_among(store.list(FOLDER))


def recipes_among(names: Iterable[str]) -> list[str]:
    """The recipes whose histories some names in the store are of."""
    names = tuple(names)
    matches = (match for pattern in (_NAME, _HEAD) for match in map(pattern.fullmatch, names))
    return sorted({match["recipe"] for match in matches if match})


def is_of_history(name: str) -> bool:
    """Whether a name in the store is one of a history's: an entry's, or the head's."""
    return bool(_NAME.fullmatch(name) or _HEAD.fullmatch(name))


def history(store: Store, recipe: str) -> list[Crowned]:
    """Every change of a recipe's champion, the first one first; empty if it has none.

    Raises:
        ArtifactError: an entry is damaged, or one is missing.
    """
    names = store.list(f"{FOLDER}/{recipe}")
    found = [_read(store, name) for name in names if _NAME.fullmatch(name)]
    remedy = _remedy(store, recipe)
    sha256s = [""]
    for place, (entry, sha256) in enumerate(found, start=1):
        if entry.number != place:
            raise ArtifactError(
                f"{store.where(_name(recipe, place))} is missing, and number {entry.number} is there; {remedy}"
            )
        if entry.before_sha256 != sha256s[-1]:
            raise ArtifactError(
                f"{store.where(_name(recipe, place - 1))} is not the entry that number {place} followed: it has sha256 "
                f"{sha256s[-1][:12]}… vs {entry.before_sha256[:12]}… then; {remedy}"
            )
        sha256s.append(sha256)
    if head_name(recipe) in names:
        _require_end(store, recipe, sha256s)
    return [entry for entry, _ in found]


def read_head(store: Store, recipe: str) -> Head:
    """What the head of a recipe's history says.

    Raises:
        StoreError: it is not there or cannot be read.
        ArtifactError: it is damaged.
    """
    name = head_name(recipe)
    remedy = "put it back, or delete it: then nothing tells whether later entries are missing"
    try:
        return Head.model_validate(store.read_json(name, remedy))
    except ValueError as error:
        raise ArtifactError(f"{store.where(name)} is no head of a history ({error}); {remedy}") from error


def head_name(recipe: str) -> str:
    """The name, in the store, of the head of a recipe's history."""
    return f"{FOLDER}/{recipe}/head.json"


def _require_end(store: Store, recipe: str, sha256s: list[str]) -> None:
    """Makes sure that the history goes as far as its head says.

    Args:
        store: the store.
        recipe: whose history.
        sha256s: of the entries, by number.
    """
    head = read_head(store, recipe)
    where = store.where(_name(recipe, head.number))
    if head.number >= len(sha256s):
        raise ArtifactError(
            f"{where} is missing, and {store.where(head_name(recipe))} names it; {_remedy(store, recipe)}"
        )
    if sha256s[head.number] != head.sha256:
        raise ArtifactError(
            f"{where} has sha256 {sha256s[head.number][:12]}… vs {head.sha256[:12]}… in "
            f"{store.where(head_name(recipe))}; {_remedy(store, recipe)}"
        )


def _remedy(store: Store, recipe: str) -> str:
    return f"put it back, or delete {store.where(f'{FOLDER}/{recipe}')} and promote a run anew"


def champion(store: Store, recipe: str) -> Crowned | None:
    """A recipe's champion; None if it has none.

    Raises:
        ArtifactError: see :func:`history`.
    """
    entries = history(store, recipe)
    return entries[-1] if entries else None


def crown(
    store: Store, recipe: str, candidate: Candidate, before: Crowned | None, action: Action, reason: str = ""
) -> Crowned:
    """Makes a model the champion.

    Args:
        store: the store.
        recipe: whose champion.
        candidate: the model.
        before: the champion that the decision was made against.
        action: how it comes to it.
        reason: what a person says.

    Raises:
        OvertakenError: there is another champion by now.
        StoreError: it cannot be written.
    """
    entry = Crowned(
        number=before.number + 1 if before else 1,
        action=action,
        reason=reason,
        time=time.time(),
        token=uuid.uuid4().hex,
        before_sha256=store.sha256(_name(recipe, before.number)) if before else "",
        **candidate._asdict(),
    )
    try:
        store.publish_json(_name(recipe, entry.number), entry.model_dump(mode="json"))
    except TakenError:
        now = champion(store, recipe)
        raise OvertakenError(
            f"{recipe}: {candidate.run} was judged against {before.run if before else 'no champion'}, and meanwhile "
            f"{now.run if now else 'another'} became the champion; nothing was changed, promote it again"
        ) from None
    keep_head(store, recipe, entry)
    return entry


def keep_head(store: Store, recipe: str, last: Crowned) -> None:
    """Has the head of a history name its last entry, if it does not.

    Raises:
        ArtifactError: the head is damaged.
        StoreError: it cannot be written.
    """
    name = head_name(recipe)
    if not store.exists(name) or read_head(store, recipe).number < last.number:
        head = Head(number=last.number, sha256=store.sha256(_name(recipe, last.number)))
        store.publish_json(name, head.model_dump(mode="json"), replace=True)


def roll_back(store: Store, recipe: str, reason: str = "") -> Crowned:
    """Makes the champion before the present one the champion again; once more, the one before that.

    Raises:
        StoreError: there is none to go back to.
        OvertakenError: the champion was changed meanwhile.
    """
    entries = history(store, recipe)
    line = standing(entries)
    if len(line) < 2:
        there = f"{line[0].run} is its first champion" if line else "it has no champion"
        raise StoreError(f"{store.where(f'{FOLDER}/{recipe}')}: {there}; there is nothing to roll back to")
    to = line[-2]
    candidate = Candidate(to.run, to.weights_sha256, to.dataset, to.fingerprint, to.reference)
    return crown(store, recipe, candidate, entries[-1], "rolled back", reason)


def standing(entries: list[Crowned]) -> list[Crowned]:
    """The line of champions that were not taken back, the present one last."""
    line: list[Crowned] = []
    for entry in entries:
        if entry.action == "rolled back":
            line.pop()
        else:
            line.append(entry)
    return line


def _name(recipe: str, number: int) -> str:
    return f"{FOLDER}/{recipe}/history/{number:06d}.json"


def _read(store: Store, name: str) -> tuple[Crowned, str]:
    """An entry, and its file's sha256."""
    remedy = _remedy(store, name.split("/")[1])
    data = store.read_bytes(name)
    document = digests.read_document(name, store.where(name), data, remedy)[0]
    try:
        return Crowned.model_validate(document), digests.of_bytes(data)
    except ValueError as error:
        raise ArtifactError(f"{store.where(name)} is no entry of a champion's history ({error}); {remedy}") from error
