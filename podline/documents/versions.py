"""The versions of a data set, numbered from 1: each is the fingerprint of a converted folder, with what changed."""

from __future__ import annotations

from collections.abc import Sequence

from podline.documents.numbered import Series
from podline.errors import StoreError
from podline.frozen import Frozen
from podline.store.contract import Store

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


VERSIONS = Series(f"{FOLDER}/{{}}", Version, "a version", "put it back, or delete it")


def versions(store: Store, dataset: str) -> list[Version]:
    """Return the versions of a data set, the oldest first; see :meth:`Series.read`."""
    return VERSIONS.read(store, dataset)


def publish_version(store: Store, dataset: str, version: Version) -> Version:
    """Publish a version under the next number; the newest one's fingerprint again is no new version."""

    def make(number: int, known: Sequence[Version]) -> Version | None:
        is_known = known and known[-1].fingerprint == version.fingerprint
        return None if is_known else version.model_copy(update={"number": number})

    return version.model_copy(update={"number": VERSIONS.append(store, dataset, make)})


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
