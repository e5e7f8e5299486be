"""The champion of each recipe: an append-only history, ``models/<recipe>/history/000001.json`` and so on.

Beside it, ``models/<recipe>/beginnings/<digest>.json`` keep which champion a training began with, once and for all.
What the last entry names is the champion. Of two changes at once one is made, and one that is killed is made or not.
"""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from podline.documents.numbered import Series
from podline.errors import ArtifactError, OvertakenError, StoreError, TakenError
from podline.frozen import Frozen
from podline.store.contract import Store

FOLDER = "models"
_BEGINNING = re.compile(rf"{FOLDER}/[^/]+/beginnings/[0-9a-f]+\.json")

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


HISTORY = Series(
    f"{FOLDER}/{{}}/history",
    Crowned,
    "an entry of a champion's history",
    "put it back, or delete {} and promote a run again",
)


class Beginning(Frozen):
    """The run of the champion that a training goes on from; empty if there was no champion."""

    run: str


class Candidate(NamedTuple):
    """A model that may become the champion; see :class:`Crowned`."""

    run: str
    weights_sha256: str
    dataset: str
    fingerprint: str
    reference: bool = False


def recipes(store: Store) -> list[str]:
    """Return the recipes that have a champion."""
    return recipes_among(store.list(FOLDER))


def recipes_among(names: Iterable[str]) -> list[str]:
    """Return the recipes to whose histories some names in the store belong."""
    return sorted({name.split("/")[1] for name in names if HISTORY.has(name)})


def is_beginning(name: str) -> bool:
    """Return whether a name in the store is that of a beginning."""
    return bool(_BEGINNING.fullmatch(name))


def beginning(store: Store, recipe: str, digest: str, choose: Callable[[], str]) -> str:
    """Return the run of the champion that a training goes on from; empty if it begins from scratch.

    The first answer stays, whoever becomes the champion: the same training is the same run.

    Args:
        store: the store.
        recipe: whose champion.
        digest: of the training.
        choose: gives the champion's run, where there is no answer yet.

    Raises:
        ArtifactError: the answer is damaged.
        StoreError: it cannot be written.
    """
    name = f"{FOLDER}/{recipe}/beginnings/{digest[:12]}.json"
    if not store.exists(name):
        with contextlib.suppress(TakenError):
            store.publish_json(name, Beginning(run=choose()).model_dump())
    try:
        return Beginning.model_validate(store.read_json(name)).run
    except ValueError as error:
        raise ArtifactError(f"{store.where(name)} names no run ({error}); delete it") from error


def history(store: Store, recipe: str) -> list[Crowned]:
    """Return every change of a recipe's champion, the oldest first; empty if it has none.

    Raises:
        ArtifactError: an entry is damaged, or one is missing.
    """
    found = HISTORY.read(store, recipe)
    for place, entry in enumerate(found, start=1):
        if entry.number != place:
            raise ArtifactError(
                f"{store.where(HISTORY.name(recipe, place))} is missing, and number {entry.number} is there; "
                f"{HISTORY.remedy_of(store, recipe)}"
            )
    return found


def champion(store: Store, recipe: str) -> Crowned | None:
    """Return a recipe's champion; None if it has none.

    Raises:
        ArtifactError: see :func:`history`.
    """
    entries = history(store, recipe)
    return entries[-1] if entries else None


def crown(
    store: Store, recipe: str, candidate: Candidate, before: Crowned | None, action: Action, reason: str = ""
) -> Crowned:
    """Make a model the champion.

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
        **candidate._asdict(),
    )
    try:
        store.publish_json(HISTORY.name(recipe, entry.number), entry.model_dump(mode="json"))
    except TakenError:
        now = champion(store, recipe)
        raise OvertakenError(
            f"{recipe}: {candidate.run} was judged against {before.run if before else 'no champion'}, and meanwhile "
            f"{now.run if now else 'another'} became the champion; nothing was changed, promote it again"
        ) from None
    return entry


def roll_back(store: Store, recipe: str, reason: str = "") -> Crowned:
    """Make the champion before the present one the champion again; once more, the one before that.

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
    """Return the champions that were not taken back, the present one last."""
    line: list[Crowned] = []
    for entry in entries:
        if entry.action == "rolled back":
            line.pop()
        else:
            line.append(entry)
    return line
