"""Completion records: each says that a stage is done, and has size and sha256 of every file that the stage wrote.

The sizes and checksums of a data set's files are in its manifest; the completion record has only publication times.

A completion record is the file ``<folder>/stages/<stage>.json``, published last. If it exists, the next call of the
stage with the same spec returns the earlier result, unless a file was damaged. ``podline store verify`` and
:func:`read_artifact` compare the files with its checksums.
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path

from podline.base.errors import ArtifactError, StoreError
from podline.base.frozen import Frozen, JsonObject, omitted
from podline.documents.reading import Document, read_model, validated
from podline.store import digests
from podline.store.contract import Listed, Store, explained


class Artifact(Frozen):
    """A file that a stage wrote.

    Attributes:
        name: name of the file in the store.
        bytes: size of the file.
        sha256: checksum of the content.
        modified: Unix time of the file's publication, or None.
    """

    name: str
    bytes: int
    sha256: str
    modified: float | None = None

    def is_unchanged(self, found: Listed) -> bool:
        """Return whether a listed file has the recorded size and publication time.

        Such a file may still be damaged, by a faulty disk or a reset modification time; TFRecord's CRCs detect that.
        """
        return (found.bytes, found.published) == (self.bytes, self.modified)


class Completion(Frozen):
    """A stage's completion record.

    Attributes:
        stage: name of the stage.
        spec_digest: digest of the stage's spec.
        result: the stage's result.
        artifacts: files of the stage; the stage runs again if one of these files is damaged.
        beside: further files, which only ``podline store verify`` checks.
        published: for a stage that wrote or verified a data set: the publication times (Unix, float64, in base64) of
            all files in the manifest, sorted by the files' names. A million shards take 11 MB.
    """

    stage: str
    spec_digest: str
    result: JsonObject
    artifacts: tuple[Artifact, ...]
    beside: tuple[Artifact, ...] = ()
    published: str = omitted("")

    @property
    def times(self) -> array[float]:
        """The publication times in :attr:`published`, decoded."""
        return array("d", base64.b64decode(self.published))


def packed(times: Iterable[float]) -> str:
    """Encode publication times for :attr:`Completion.published`."""
    return base64.b64encode(array("d", times)).decode()


def completion_name(folder: str, stage: str) -> str:
    """Return the store name of a stage's completion record."""
    return f"{folder}/stages/{stage}.json"


def record_files(store: Store, folder: str, stage: str, names: Iterable[str]) -> None:
    """Write a completion record for files that no stage of :mod:`podline.stages.specs` has written."""
    artifacts = tuple(artifact_of(store, name) for name in names)
    record = Completion(stage=stage, spec_digest="", result={}, artifacts=artifacts)
    store.publish_json(completion_name(folder, stage), record.model_dump(mode="json"), replace=True)


def read_completion(store: Store, folder: str, stage: str) -> Completion:
    """Read a stage's completion record.

    Raises:
        StoreError: the record is missing, or cannot be read.
        ArtifactError: the record is damaged.
    """
    return read_model(store, completion_name(folder, stage), Completion, "a completion record", f"run {stage} again")


def read_result(store: Store, folder: str, stage: str, model: type[Document]) -> Document:
    """Read a stage's result from its completion record; raises the errors of :func:`read_completion`."""
    return result_in(store, folder, read_completion(store, folder, stage), model)


def result_in(store: Store, folder: str, record: Completion, model: type[Document]) -> Document:
    """Return the result in a completion record of a folder.

    Raises:
        ArtifactError: the result does not fit ``model``.
    """
    where = store.where(completion_name(folder, record.stage))
    return validated(record.result, model, where, f"a completion record of {record.stage}", f"run {record.stage} again")


def artifact_of(store: Store, name: str) -> Artifact:
    """Return size, sha256 and publication time of a published file; may read the whole file."""
    found = store.find(name)
    if found is None:
        raise StoreError(f"{store.where(name)} is missing, although it was written just now")
    return listed_artifact(store, found)


def listed_artifact(store: Store, found: Listed) -> Artifact:
    """Return size, sha256 and publication time of a file from a listing of the store."""
    return Artifact(
        name=found.name, bytes=found.bytes, sha256=store.sha256(found.name, found), modified=found.published
    )


def damage(store: Store, artifact: Artifact, there: Listed | None) -> str | None:
    """Return what is wrong with a recorded file, in one line; None if size and sha256 are as recorded.

    ``there`` is the file's entry in the store's listing; None if the file is missing.
    """
    where = store.where(artifact.name)
    if there is None:
        return f"{where} is gone"
    if there.bytes != artifact.bytes:
        return f"{where} has {there.bytes} bytes, expected the {artifact.bytes} that were written"
    try:
        found = store.sha256(artifact.name, there)
    except (ArtifactError, StoreError) as error:
        return str(error)
    return _differs(where, found, artifact.sha256)


def read_artifact(store: Store, folder: str, stage: str, name: str) -> bytes:
    """Read a small file that a stage wrote, and verify its sha256 against the stage's completion record.

    A file that no completion record in ``folder`` lists, as of an unfinished stage, is not verified.

    Raises:
        StoreError: the file cannot be read.
        ArtifactError: the file has changed, or the completion record is damaged.
    """
    data = store.read_bytes(name)
    _require(store, folder, stage, name, lambda: digests.of_bytes(data))
    return data


def read_artifact_model(store: Store, folder: str, name: str, model: type[Document], noun: str) -> Document:
    """Read a training's JSON document, ``folder/name``, and validate it as ``model``; see :func:`read_artifact`.

    Messages call the document ``noun``, such as "a model description". Another document is an ArtifactError.
    """
    data = read_artifact(store, folder, "train", f"{folder}/{name}")
    return validated(data, model, store.where(f"{folder}/{name}"), noun, "train the run again")


def local_artifact(store: Store, folder: str, stage: str, name: str) -> Path:
    """Return the local path of a file that a stage wrote, after a download if needed; see :func:`read_artifact`."""
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
    return None if found == written else f"{where} has sha256 {found[:12]}…, expected {written[:12]}… as written"
