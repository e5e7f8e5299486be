"""Spec and result of the stage that finds doubtful labels."""

from __future__ import annotations

from pydantic import Field

from podline.documents.suspects import FOLDER
from podline.recipes.settings import Recipe
from podline.stages.base import Result, TrainableSpec, Where

# Part of a search's identity: raise it when the same models would give other suspects.
SUSPECTS_VERSION = 1


class SuspectsSpec(TrainableSpec["SuspectsResult"]):
    """Finds labels that disagree with models which were not trained on the labelled images."""

    recipe: Recipe = Field(description="the recipe of the models; each model left out another part of the data")
    runs: tuple[str, ...] = Field(description="the models' runs; model k of n was trained without part k of n")
    weights: tuple[str, ...] = Field(description="the sha256 of each model's weights")
    precision: float = Field(gt=0, lt=1, description="least expected share of wrong labels in the list of suspects")
    suspects_version: int = SUSPECTS_VERSION

    @property
    def folder(self) -> str:
        """Return the folder of the page, the pictures and the document with all suspects."""
        return f"{FOLDER}/{self.recipe.dataset}/{self.digest()[:12]}"


class SuspectsResult(Result):
    """The number of suspects and the first of them; ``folder`` has the page and the document with all suspects."""

    folder: str = Field(description="the folder's name in the store")
    page: str = Field(description="the page's name in the store")
    suspects: int = Field(description="the number of suspects in all splits, including near-duplicates")
    sentences: tuple[str, ...] = Field(description="the expected number of wrong labels, one sentence per split")
    first: tuple[str, ...] = Field(description="the first suspects, one line each")

    def lines(self, where: Where = str, /) -> list[str]:
        """Return the expectations, the first suspects, and the page."""
        return [*self.sentences, *self.first, where(self.page)]
