"""Finds kinds of task by name, among Podline's own and installed packages, and the kind of a recipe or evaluation."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from podline.documents.any_evaluation import EVALUATION, AnyEvaluation
from podline.errors import ArtifactError, SettingsError
from podline.frozen import is_object
from podline.kinds.contract import Kind, TextTargets
from podline.recipes.own_code import of_modules
from podline.recipes.task import KINDS
from podline.store.contract import Store

if TYPE_CHECKING:
    from podline.recipes.settings import Recipe


AnyKind: TypeAlias = Kind[Any]


@functools.cache
def kind_named(name: str) -> AnyKind:
    """Return the kind with this name.

    Raises:
        SettingsError: the kind does not exist, its package cannot be imported, or the object is not a kind.
    """
    found: type[object] = KINDS.load(name)
    if Kind not in found.__mro__:
        raise SettingsError(f"kind of task {name}: got {found.__name__}, expected a podline.kinds.contract.Kind")
    return cast("type[AnyKind]", found)()


def kinds() -> list[AnyKind]:
    """Return all kinds that can be loaded, Podline's own first."""
    found = list[AnyKind]()
    for name in KINDS.names():
        with contextlib.suppress(SettingsError):
            found.append(kind_named(name))
    return found


def kind_of(judged: Recipe | AnyEvaluation) -> AnyKind:
    """Return the kind of a recipe, or of an evaluation."""
    return kind_named(judged.kind)


def text_targets(name: str) -> TextTargets:
    """Return the targets of a kind that can be given as text.

    Raises:
        SettingsError: the kind does not exist, or its targets cannot be given as text.
    """
    targets = kind_named(name).targets()
    if isinstance(targets, TextTargets):
        return targets
    raise SettingsError(f"records of the kind {name} cannot be made from a text for each image")


def code_of_targets(name: str) -> str:
    """Return the code digest of an installed kind's targets, on which records depend; empty for Podline's own kinds."""
    return of_modules([type(kind_named(name).targets()).__module__])


def kind_by_measure(measure: str) -> AnyKind:
    """Return the kind whose models are ranked by a measure."""
    return next(kind for kind in kinds() if kind.measure == measure)


def read_evaluation(store: Store, folder: str) -> AnyEvaluation:
    """Return the evaluation in a run's folder, of any kind.

    Raises:
        StoreError: there is no evaluation, or it cannot be read.
        ArtifactError: the file is not an evaluation.
    """
    name = f"{folder}/{EVALUATION}"
    document = store.read_json(name)
    kind = document.get("kind") if is_object(document) else None
    if kind not in (known := KINDS.names()):
        raise ArtifactError(
            f"{store.where(name)}: got kind={kind}, expected {', '.join(known)}; evaluate the run again"
        )
    model: type[AnyEvaluation] = kind_named(str(kind)).document
    try:
        return model.model_validate(document)
    except ValueError as error:
        raise ArtifactError(f"{store.where(name)} is not an evaluation ({error}); evaluate the run again") from error
