"""The numbered versions of a data set: fingerprint and changed records of each; the images of the first conversion."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from podline.base.errors import StoreError, TakenError
from podline.base.frozen import Frozen
from podline.documents.numbered import Series
from podline.documents.reading import read_model
from podline.store.contract import Store
from podline.store.one_writer import writer_of

FOLDER, FIRST_IMAGES = "versions", "first-images"
JOBS = "jobs"
"""The name of the folder of files that conversions and checks at work share."""
_EXTENDED = "extends"


class Version(Frozen):
    """A version of a data set.

    Attributes:
        number: number of the version, from 1.
        fingerprint: fingerprint of the version's folder.
        content: fingerprint of the conversion that wrote these records; a compaction changes only ``fingerprint``.
        base: fingerprint of the version with which the records are compared; its shards may be reused. Empty for a
            first conversion.
        added: number of records added since the base; without a base, number of all records.
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
    """Publish a version under the next number, unless the newest version has the same fingerprint.

    Raises:
        OtherWriterError: another process has become the writer of the version's folder.
    """
    writer = writer_of(store, f"datasets/{dataset}/{version.fingerprint}")

    def make(number: int, known: Sequence[Version]) -> Version | None:
        if writer:
            writer.require()  # again for each number: another process may have taken over and published the version
        is_known = known and known[-1].fingerprint == version.fingerprint
        return None if is_known else version.model_copy(update={"number": number})

    return version.model_copy(update={"number": VERSIONS.append(store, dataset, make)})


def extension(job: str, folder: str) -> str:
    """Return the name of the marker file that protects a base data set from deletion while a job extends it."""
    return f"{job}/{_EXTENDED}/{folder}"


def extended(name: str) -> str:
    """Return the data set's folder, given the name of a marker file of :func:`extension`; empty for other names."""
    return name.partition(f"/{_EXTENDED}/")[2] if name.startswith(f"{JOBS}/") else ""


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
        f"{store.uri}: data set {dataset} has no version {number}, expected {numbers}; `podline data list {dataset}` "
        "lists the versions"
    )


def compacted(found: Sequence[Version], content: str) -> str:
    """Return the fingerprint of the newest version with this content; ``content`` itself if there is none."""
    return next((version.fingerprint for version in reversed(found) if version.content == content), content)


class FirstImages(Frozen):
    """Number and size of the training images at the first conversion of a data set.

    The recipe for few images chooses its network and values by these, so that all later nights train the same network.

    Attributes:
        images: number of images.
        side: median of the images' longer sides, in pixels.
    """

    images: int
    side: int


def first_images(store: Store, dataset: str) -> FirstImages | None:
    """Return the number and size of the images at a data set's first conversion; None if they are not recorded.

    Raises:
        ArtifactError: the document is damaged.
    """
    name = _first_images(dataset)
    if not store.exists(name):
        return None
    return read_model(store, name, FirstImages, "a number and size of images", "delete it and give --model")


def is_first(store: Store, dataset: str) -> bool:
    """Return whether a data set was never converted: it has no version and no :class:`FirstImages`."""
    return not store.exists(_first_images(dataset)) and not versions(store, dataset)


def publish_first_images(store: Store, dataset: str, first: FirstImages) -> None:
    """Record the images of a first conversion, unless another process has done so."""
    with contextlib.suppress(TakenError):
        store.publish_json(_first_images(dataset), first.model_dump())


def _first_images(dataset: str) -> str:
    return f"{FIRST_IMAGES}/{dataset}.json"
