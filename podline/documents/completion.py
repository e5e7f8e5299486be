"""Completion records: a stage is done, with size and sha256 of every file that it left.

Of the files of a data set the manifest has these, and the record their times.

A record lies in ``<folder>/stages/<stage>.json`` and is published last. It is what a later call knows by that the work
is done and whole, what ``podline store verify`` holds a folder against, and what a file is verified by when it is read.
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path

from pydantic import Field

from podline.errors import ArtifactError, StoreError
from podline.frozen import Frozen, JsonObject
from podline.store import digests
from podline.store.contract import Listed, Store, explained


class Artifact(Frozen):
    """A file that a stage wrote.

    Attributes:
        name: its name in the store.
        bytes: its size.
        sha256: of its content.
        modified: the Unix time at which it was published; None where that is not known.
    """

    name: str
    bytes: int
    sha256: str
    modified: float | None = None

    def is_unchanged(self, found: Listed) -> bool:
        """Return whether a file has the size and the time that it had when it was written.

        It may be damaged all the same, if the time was set back or the disk is at fault. A record's own CRC tells.
        """
        return (found.bytes, found.published) == (self.bytes, self.modified)


class Completion(Frozen):
    """A stage's completion record.

    Attributes:
        stage: its name.
        spec_digest: of the spec that it was given.
        result: what it answered.
        artifacts: what it wrote; the stage runs again if one of them is damaged.
        beside: what else it left, which only ``podline store verify`` looks at.
        published: if it wrote or checked a data set, when each of the manifest's files was published: Unix times,
            float64 in base64, in the order of their names. So a million shards take 11 MB.
    """

    stage: str
    spec_digest: str
    result: JsonObject
    artifacts: tuple[Artifact, ...]
    beside: tuple[Artifact, ...] = ()
    published: str = Field(default="", exclude_if=lambda published: not published)

    @property
    def times(self) -> array[float]:
        """The times of :attr:`published`."""
        return array("d", base64.b64decode(self.published))


def packed(times: Iterable[float]) -> str:
    """Return times as :attr:`Completion.published` has them."""
    return base64.b64encode(array("d", times)).decode()


def completion_name(folder: str, stage: str) -> str:
    """Return the name, in the store, of a stage's completion record."""
    return f"{folder}/stages/{stage}.json"


def record_files(store: Store, folder: str, stage: str, names: Iterable[str]) -> None:
    """Write a completion record of files that no stage of :mod:`podline.stages.specs` makes."""
    artifacts = tuple(artifact_of(store, name) for name in names)
    record = Completion(stage=stage, spec_digest="", result={}, artifacts=artifacts)
    store.publish_json(completion_name(folder, stage), record.model_dump(mode="json"), replace=True)


def read_completion(store: Store, folder: str, stage: str) -> Completion:
    """Read a stage's completion record.

    Raises:
        StoreError: there is none, or it cannot be read.
        ArtifactError: it is damaged.
    """
    name = completion_name(folder, stage)
    try:
        return Completion.model_validate(store.read_json(name))
    except ValueError as error:
        raise ArtifactError(f"{store.where(name)} is not a completion record ({error}); run {stage} again") from error


def artifact_of(store: Store, name: str) -> Artifact:
    """Return a published file as an artifact; read all of it."""
    found = store.find(name)
    if found is None:
        raise StoreError(f"{store.where(name)} is not there, though it was written just now")
    return listed_artifact(store, found)


def listed_artifact(store: Store, found: Listed) -> Artifact:
    """Return a listed file as an artifact."""
    return Artifact(
        name=found.name, bytes=found.bytes, sha256=store.sha256(found.name, found), modified=found.published
    )


def damage(store: Store, artifact: Artifact, there: Listed | None) -> str | None:
    """Return what is wrong with an artifact, in a line; None if it is whole.

    Args:
        store: the store.
        artifact: as it was written.
        there: as the store has it.
    """
    where = store.where(artifact.name)
    if there is None:
        return f"{where} is gone"
    if there.bytes != artifact.bytes:
        return f"{where} has {there.bytes} bytes vs {artifact.bytes} when it was written"
    try:
        found = store.sha256(artifact.name, there)
    except (ArtifactError, StoreError) as error:
        return str(error)
    return _differs(where, found, artifact.sha256)


def read_artifact(store: Store, folder: str, stage: str, name: str) -> bytes:
    """Read a small file that a stage wrote; verify it by its completion record.

    Where no record names it, as of a stage that is not done yet, it is taken as it is.

    Args:
        store: the store.
        folder: the record's.
        stage: which wrote it.
        name: of the file, in the store.

    Raises:
        StoreError: it cannot be read.
        ArtifactError: it is not what the stage wrote.
    """
    data = store.read_bytes(name)
    _require(store, folder, stage, name, lambda: digests.of_bytes(data))
    return data


def local_artifact(store: Store, folder: str, stage: str, name: str) -> Path:
    """Return the same as a local file; see :func:`read_artifact`."""
    path = store.local(name)
    with explained("read", path):
        _require(store, folder, stage, name, lambda: digests.of_file(path))
    return path


def _require(store: Store, folder: str, stage: str, name: str, sha256: Callable[[], str]) -> None:
    if not store.exists(completion_name(folder, stage)):
        return
    for artifact in read_completion(store, folder, stage).artifacts:
        if artifact.name == name and (problem := _differs(store.where(name), sha256(), artifact.sha256)):
            raise ArtifactError(f"{problem}; run {stage} again")


def _differs(where: str, found: str, written: str) -> str | None:
    return None if found == written else f"{where} has sha256 {found[:12]}… vs {written[:12]}… when it was written"
