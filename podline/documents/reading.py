"""Reads a JSON document of the store as a model."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from podline.base.errors import ArtifactError
from podline.base.frozen import Frozen, problem_in
from podline.store.contract import Store

Document = TypeVar("Document", bound=Frozen)


def read_model(store: Store, name: str, model: type[Document], noun: str, remedy: str) -> Document:
    """Read a JSON document from the store and validate it as ``model``.

    A message about a damaged document calls it ``noun``, such as "an entry of the ledger", and ends with ``remedy``.

    Raises:
        StoreError: the document does not exist, or cannot be read.
        ArtifactError: the document is damaged, or does not fit ``model``.
    """
    document = store.read_json(name, remedy)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        problem = problem_in(error)
        cause = ": ".join(filter(None, (".".join(map(str, problem.loc)), problem.msg)))
        raise ArtifactError(f"{store.where(name)} is not {noun} ({cause}); {remedy}") from error
