"""The champion of each recipe: an append-only history, ``models/<recipe>/history/000001.json`` and so on.

The last entry of the history names the champion. If two processes change the champion at the same time, one succeeds. A
killed change is either complete or absent. ``models/<recipe>/beginnings/<digest>.json`` records permanently from which
champion's weights a training starts.
"""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from podline.base.errors import ArtifactError, OvertakenError, SettingsError, StoreError, TakenError
from podline.base.frozen import Frozen
from podline.documents.numbered import Series
from podline.documents.reading import read_model
from podline.store.contract import Store

FOLDER = "models"
_BEGINNING = re.compile(rf"{FOLDER}/[^/]+/beginnings/[0-9a-f]+\.json")

Action = Literal["promoted", "promoted anyway", "rolled back"]


class Crowned(Frozen):
    """A model that became the champion.

    Attributes:
        number: number of the change, from 1.
        action: kind of the change: by the rules, with ``--anyway``, or by a rollback of a later champion.
        run: the run of the model.
        weights_sha256: sha256 of the model's weights.
        dataset: name of the data set on which the model was trained.
        fingerprint: fingerprint of this data set.
        reason: the reason that a person gave; may be empty.
        reference: whether the model became the reference: it was significantly better than the previous one, or was
            promoted with ``--anyway``.
        time: Unix time.
        token: a unique value, so that two equal changes differ.
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

    def other_weights(self, where: str, found: str) -> str:
        """Return in one line that a file or folder has other weights than those promoted; empty for the same weights.

        Args:
            where: path of the file or folder.
            found: sha256 of its weights.
        """
        expected = f"expected {self.weights_sha256[:12]}… of champion number {self.number}"
        return "" if found == self.weights_sha256 else f"{where} has weights {found[:12]}…, {expected}"


HISTORY = Series(
    f"{FOLDER}/{{}}/history",
    Crowned,
    "an entry of a champion's history",
    "restore the file, or delete {} and promote a run again",
)


class Beginning(Frozen):
    """The run of the champion that a training starts from; empty without a champion."""

    run: str


class Candidate(NamedTuple):
    """A model that may become the champion; see :class:`Crowned`."""

    run: str
    weights_sha256: str
    dataset: str
    fingerprint: str
    reference: bool = False


def recipes(store: Store) -> list[str]:
    """Return the names of the recipes that have a champion, sorted."""
    return recipes_among(store.list(FOLDER))


def recipes_among(names: Iterable[str]) -> list[str]:
    """Return the names of the recipes whose champion's history has one of these files of the store, sorted."""
    return sorted({name.split("/")[1] for name in names if HISTORY.has(name)})


def is_beginning(name: str) -> bool:
    """Return whether a file in the store, given its name, is a ``beginnings/<digest>.json``."""
    return bool(_BEGINNING.fullmatch(name))


def beginning(store: Store, recipe: str, digest: str, choose: Callable[[], str]) -> str:
    """Return the run of the champion from whose weights a training starts; empty for a training from scratch.

    The first call for a training's digest calls ``choose``, which returns the champion's run, and stores the result for
    all later calls. So a promotion does not change the run's name.

    Raises:
        ArtifactError: the stored document is damaged.
        StoreError: the document cannot be written.
    """
    name = f"{FOLDER}/{recipe}/beginnings/{digest[:12]}.json"
    if not store.exists(name):
        with contextlib.suppress(TakenError):
            store.publish_json(name, Beginning(run=choose()).model_dump())
    return read_model(store, name, Beginning, "the beginning of a training", "delete it").run


def history(store: Store, recipe: str) -> list[Crowned]:
    """Return every change of a recipe's champion, oldest first; empty if it has none.

    Raises:
        ArtifactError: an entry is damaged or missing.
    """
    found = HISTORY.read(store, recipe)
    for place, entry in enumerate(found, start=1):
        if entry.number != place:
            raise ArtifactError(
                f"{store.where(HISTORY.name(recipe, place))} is missing, although number {entry.number} exists; "
                f"{HISTORY.remedy_of(store, recipe)}"
            )
    return found


def champion(store: Store, recipe: str) -> Crowned | None:
    """Return a recipe's champion, or None.

    Raises:
        ArtifactError: see :func:`history`.
    """
    entries = history(store, recipe)
    return entries[-1] if entries else None


def require_never_champion(store: Store, recipe: str, run: str) -> None:
    """Refuse to train a run again whose model was ever the recipe's champion, because the new weights could differ.

    Raises:
        SettingsError: the run was a champion.
        ArtifactError: see :func:`history`.
    """
    for entry in history(store, recipe):
        if entry.run == run:
            raise SettingsError(
                f"{store.where(f'runs/{run}')} was promoted as number {entry.number} of {recipe}, so it is never "
                "trained again: train with another --seed, or restore the damaged file from a backup; `podline models "
                f"rollback {recipe}` makes the previous champion the champion again"
            )


def crown(
    store: Store, recipe: str, candidate: Candidate, before: Crowned | None, action: Action, reason: str = ""
) -> Crowned:
    """Make a model the champion; ``before`` is the champion at the time of the decision, or None.

    Raises:
        OvertakenError: the champion has changed since the decision.
        StoreError: the entry cannot be written.
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
            f"{recipe}: {candidate.run} was compared with {before.run if before else 'no champion'}, but meanwhile "
            f"{now.run if now else 'another run'} became the champion; nothing was changed, promote {candidate.run} "
            "again"
        ) from None
    return entry


def roll_back(store: Store, recipe: str, reason: str = "") -> Crowned:
    """Make the previous champion the champion again; a second call restores the champion before that.

    Raises:
        StoreError: there is no previous champion, or the entry cannot be written.
        OvertakenError: the champion changed meanwhile.
        ArtifactError: see :func:`history`.
    """
    entries = history(store, recipe)
    line = standing(entries)
    to = next((entry for entry in reversed(line) if entry.run != line[-1].run), None)
    if to is None:
        there = f"{line[0].run} is the first champion" if line else "the recipe has no champion"
        raise StoreError(
            f"{store.where(f'{FOLDER}/{recipe}')}: {there}, so there is no previous champion to roll back to; "
            "promote a run instead"
        )
    candidate = Candidate(to.run, to.weights_sha256, to.dataset, to.fingerprint, to.reference)
    return crown(store, recipe, candidate, entries[-1], "rolled back", reason)


def standing(entries: list[Crowned]) -> list[Crowned]:
    """Return the champions that were not rolled back, the current one last."""
    line: list[Crowned] = []
    for entry in entries:
        if entry.action != "rolled back":
            line.append(entry)
        while line and line[-1].run != entry.run:  # a champion that became the reference later has two entries
            line.pop()
    return line
