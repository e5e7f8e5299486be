"""Reads a JSON document of the store as a model."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from podline.base.errors import ArtifactError
from podline.base.frozen import Frozen, JsonObject, problem_in
from podline.store.contract import Store

Document = TypeVar("Document", bound=Frozen)


def read_model(store: Store, name: str, model: type[Document], noun: str, remedy: str) -> Document:
    """Read a JSON document from the store and validate it as ``model``.

    A message about a damaged document calls it ``noun``, such as "an entry of the ledger", and ends with ``remedy``.

    Raises:
        StoreError: the document does not exist, or cannot be read.
        ArtifactError: the document is damaged, or does not fit ``model``.
    """
    return validated(store.read_json(name, remedy), model, store.where(name), noun, remedy)


def validated(content: JsonObject | bytes, model: type[Document], where: str, noun: str, remedy: str) -> Document:
    """Validate a document, or its bytes, as ``model``; ``where`` is its location for messages.

    Raises:
        ArtifactError: the document does not fit ``model``.
    """
    try:
        return model.model_validate_json(content) if isinstance(content, bytes) else model.model_validate(content)
    except ValidationError as error:
        raise misfit(error, where, noun, remedy) from error


def misfit(error: ValidationError, where: str, noun: str, remedy: str) -> ArtifactError:
    """Return the error for a document that does not fit its model, with the first problem in one line."""
    problem = problem_in(error)
    cause = ": ".join(filter(None, (".".join(map(str, problem.loc)), problem.msg)))
    return ArtifactError(f"{where} is not {noun} ({cause}); {remedy}")
