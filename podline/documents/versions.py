"""The versions of a data set, numbered from 1: each is the fingerprint of a converted folder, with what changed."""

from __future__ import annotations

from collections.abc import Sequence

from podline.errors import ArtifactError, StoreError, TakenError
from podline.frozen import Frozen
from podline.store.contract import Store
from podline.store.prefetch import in_order

FOLDER = "versions"


class Version(Frozen):
    """A version of a data set.

    Attributes:
        number: from 1 on.
        fingerprint: of the folder that has it.
        content: the fingerprint of the conversion that it holds: its own, unless it was compacted.
        base: that of the version before, whose shards it may have; empty where all was written.
        added: records since the base, or all of them.
        removed: likewise; they are no more.
        relabelled: likewise; their targets or pixels changed.
        moved: likewise; they went to another split.
    """

    number: int
    fingerprint: str
    content: str
    base: str = ""
    added: int = 0
    removed: int = 0
    relabelled: int = 0
    moved: int = 0


def is_version(name: str) -> bool:
    """Return whether a name in the store is that of a version's number."""
    return name.startswith(f"{FOLDER}/")


def versions(store: Store, dataset: str) -> list[Version]:
    """Return the versions of a data set, the oldest first.

    Raises:
        ArtifactError: one cannot be read.
    """
    names = store.list(f"{FOLDER}/{dataset}")
    try:
        found = [Version.model_validate(document) for document in in_order(store.read_json, names, store.parallel)]
    except ValueError as error:
        where = store.where(f"{FOLDER}/{dataset}")
        raise ArtifactError(f"{where} has a version that cannot be read ({error}); delete it") from error
    return sorted(found, key=lambda version: version.number)


def publish_version(store: Store, dataset: str, version: Version) -> Version:
    """Publish a version under the next number; of two at the same time, one gets the number after.

    The newest one's fingerprint again is no new version.

    Raises:
        StoreError: the store cannot be written.
    """
    while True:
        known = versions(store, dataset)
        if known and known[-1].fingerprint == version.fingerprint:
            return known[-1]
        numbered = version.model_copy(update={"number": known[-1].number + 1 if known else 1})
        try:
            store.publish_json(f"{FOLDER}/{dataset}/{numbered.number:06}.json", numbered.model_dump(mode="json"))
        except TakenError:
            continue
        return numbered


def version_of(store: Store, dataset: str, number: str) -> Version:
    """Return the version of a number.

    Raises:
        StoreError: there is none.
    """
    known = versions(store, dataset)
    for version in known:
        if str(version.number) == number:
            return version
    numbers = f"1 to {known[-1].number}" if known else "none"
    raise StoreError(
        f"{store.uri}: data set {dataset} has no version {number} vs {numbers} there; `podline data list {dataset}` "
        "lists them"
    )


def compacted(found: Sequence[Version], content: str) -> str:
    """Return the fingerprint of the newest of some versions that holds a conversion; its own where none does."""
    return next((version.fingerprint for version in reversed(found) if version.content == content), content)
