"""The table of kinds, and the kind of a recipe, of an evaluation, of a measure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from podline.documents.any_evaluation import AnyEvaluation
from podline.documents.evaluation import EVALUATION
from podline.errors import ArtifactError
from podline.frozen import is_object
from podline.kinds.classification import CLASSIFICATION
from podline.kinds.kind import Kind
from podline.kinds.pose import POSE
from podline.store.contract import Store

if TYPE_CHECKING:
    from podline.recipes.settings import Recipe

KINDS = {kind.name: kind for kind in (CLASSIFICATION, POSE)}


def kind_of(judged: Recipe | AnyEvaluation) -> Kind:
    """The kind of a recipe, or of an evaluation."""
    return KINDS[judged.kind]


def kind_by_measure(measure: str) -> Kind:
    """The kind whose models are judged by a measure."""
    return next(kind for kind in KINDS.values() if kind.measure == measure)


def read_evaluation(store: Store, folder: str) -> AnyEvaluation:
    """The evaluation in a run's folder, of whichever kind the run is.

    Raises:
        StoreError: there is none, or it cannot be read.
        ArtifactError: it is not an evaluation.
    """
    name = f"{folder}/{EVALUATION}"
    document = store.read_json(name)
    # That of a classifier says nothing of it.
    task = document.get("task") if is_object(document) else None
    kind = KINDS.get(task or CLASSIFICATION.name)
    if kind is None:
        raise ArtifactError(f"{store.where(name)} is of a {task} vs {', '.join(KINDS)}; evaluate the run again")
    try:
        return TypeAdapter(kind.document).validate_python(document)
    except ValueError as error:
        raise ArtifactError(f"{store.where(name)} is not an evaluation ({error}); evaluate the run again") from error
