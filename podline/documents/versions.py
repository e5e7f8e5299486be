"""The versions of a data set, numbered from 1: the fingerprint of a converted folder, with its changes."""

from __future__ import annotations

from collections.abc import Sequence

from podline.base.errors import StoreError
from podline.base.frozen import Frozen
from podline.documents.numbered import Series
from podline.store.contract import Store
from podline.store.one_writer import writer_of

FOLDER = "versions"
_EXTENDED = "extends"


class Version(Frozen):
    """A version of a data set.

    Attributes:
        number: number, from 1 on.
        fingerprint: fingerprint of its folder.
        content: fingerprint of the conversion with this content: its own, unless it was compacted.
        base: fingerprint of the previous version, whose shards it may use; empty if all shards are new.
        added: number of records added since the base, or of all records.
        removed: number of records removed since the base.
        relabelled: number of records with changed targets or pixels.
        moved: number of records that moved to another split.
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
    """Return the versions of a data set, oldest first; see :meth:`Series.read`."""
    return VERSIONS.read(store, dataset)


def publish_version(store: Store, dataset: str, version: Version) -> Version:
    """Publish a version under the next number; the newest version's fingerprint adds no version.

    Raises:
        OtherWriterError: this process was the only writer of the version's folder, and no longer is.
    """
    writer = writer_of(store, f"datasets/{dataset}/{version.fingerprint}")

    def make(number: int, known: Sequence[Version]) -> Version | None:
        if writer:
            writer.require()  # for this number: the next holder has published the version before others follow
        is_known = known and known[-1].fingerprint == version.fingerprint
        return None if is_known else version.model_copy(update={"number": number})

    return version.model_copy(update={"number": VERSIONS.append(store, dataset, make)})


def extension(job: str, folder: str) -> str:
    """Return the name of the mark in a job's folder that keeps the data set which the job extends."""
    return f"{job}/{_EXTENDED}/{folder}"


def extended(name: str) -> str:
    """Return the data set's folder of a mark of :func:`extension`; empty for other names."""
    return name.partition(f"/{_EXTENDED}/")[2] if name.startswith("jobs/") else ""


def version_of(store: Store, dataset: str, number: str) -> Version:
    """Return the version with this number.

    Raises:
        StoreError: the version does not exist.
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
    """Return the newest of some versions with the content of a conversion, or the conversion's own fingerprint."""
    return next((version.fingerprint for version in reversed(found) if version.content == content), content)
