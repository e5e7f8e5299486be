"""Writes completion records, and returns the results of finished stages whose files are unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from podline.base.errors import ArtifactError
from podline.base.progress import Reporter
from podline.documents.completion import (
    Artifact,
    Completion,
    artifact_of,
    completion_name,
    damage,
    listed_artifact,
    packed,
    read_completion,
    result_in,
)
from podline.documents.manifest import MANIFEST, converted_first, listed_files, read_manifest, stored_name
from podline.stages.base import RecipeSpec, Result, Spec
from podline.stages.table import stage_of
from podline.store.contract import Listed, Store
from podline.store.opening import open_store

R = TypeVar("R", bound=Result)


def complete(
    store: Store,
    folder: str,
    spec: Spec[Any],
    result: Result,
    names: Iterable[str],
    beside: Iterable[Listed] = (),
    published: Iterable[float] = (),
) -> None:
    """Write a stage's completion record, as its last action.

    Args:
        store: the store.
        folder: the data set's or the run's folder.
        spec: the stage's spec.
        result: the stage's result.
        names: names in the store of every artifact that the stage wrote.
        beside: further files, which only ``podline store verify`` checks.
        published: Unix times at which the data set's files were published, in the order of their names.
    """
    stage = stage_of(spec)
    record = Completion(
        stage=stage.name,
        spec_digest=spec.digest(),
        result=result.model_dump(mode="json"),
        artifacts=tuple(artifact_of(store, name) for name in names),
        beside=tuple(listed_artifact(store, found) for found in beside),
        published=packed(published),
    )
    store.publish_json(completion_name(folder, stage.name), record.model_dump(mode="json"), replace=True)


def find(spec: Spec[R], reporter: Reporter, folder: str = "") -> R | None:
    """Return the result of a stage that finished with the same spec, if all its files still exist unchanged.

    Args:
        spec: the stage's spec.
        reporter: reports why an earlier result cannot be used.
        folder: folder of the completion record; by default the one in the spec.

    Returns:
        The stage's result with ``reused`` set, or None.
    """
    folder = folder or spec.record_folder
    if not folder:
        return None
    store, stage = open_store(spec.root), stage_of(spec)
    name = completion_name(folder, stage.name)
    if not store.exists(name):
        return None
    try:
        record = read_completion(store, folder, stage.name)
        result = result_in(store, folder, record, stage.result)
    except ArtifactError as error:
        reporter.warn(f"{store.where(name)} cannot be read ({error}); this stage runs again")
        return None
    if record.spec_digest != spec.digest():
        return None
    if problem := _damage(store, folder, record):
        reporter.warn(f"{problem}; this stage runs again")
        return None
    if code := spec.recipe.code if isinstance(spec, RecipeSpec) else ():
        reporter.log(f"unchanged: data, settings, and the code of {', '.join(code)}")
    return result.model_copy(update={"reused": True})


def _damage(store: Store, folder: str, record: Completion) -> str | None:
    """Describe the first damaged or missing file of a stage; return None if all files are unchanged."""
    try:
        for artifact, found in _written(store, folder, record):
            unchanged = found is not None and artifact.is_unchanged(found)
            if not unchanged and (problem := damage(store, artifact, found)):
                return problem
    except ArtifactError as error:
        return str(error)
    return None


def _written(store: Store, folder: str, record: Completion) -> Iterator[tuple[Artifact, Listed | None]]:
    """Yield each file that a stage wrote or verified: the recorded artifact, and the present file or None.

    The files of a data set come after its manifest, which lists them.
    """
    for artifact in record.artifacts:
        yield artifact, store.find(artifact.name)
    if record.published:
        there = listed_files(store, read_manifest(store, folder))
        for (file, found), published in zip(there, record.times, strict=False):
            name = stored_name(folder, file.file)
            yield Artifact(name=name, bytes=file.bytes, sha256=file.sha256, modified=published), found


def manifest_sha256(store: Store, folder: str) -> str:
    """Return the checksum of a data set's manifest, by which later stages identify their input.

    Raises:
        StoreError: the data set does not exist.
    """
    with converted_first(store, name := f"{folder}/{MANIFEST}"):
        return store.sha256(name)
