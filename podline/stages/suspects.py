"""Spec and result of the stage that finds doubtful labels."""

from __future__ import annotations

from pydantic import Field

from podline.documents.suspects import FOLDER
from podline.recipes.settings import Recipe
from podline.stages.specs import Result, TrainableSpec, Where

# Part of a search's identity: raise it when the same models would give other records.
SUSPECTS_VERSION = 1


class SuspectsSpec(TrainableSpec["SuspectsResult"]):
    """Finds labels of a data set that models doubt which were not trained on them."""

    recipe: Recipe = Field(description="the recipe of the models, without the part that each left out")
    runs: tuple[str, ...] = Field(description="the models; number k of n was trained without part k/n")
    weights: tuple[str, ...] = Field(description="the sha256 of each model's weights")
    precision: float = Field(gt=0, lt=1, description="the expected share of wrong labels in the list")
    suspects_version: int = SUSPECTS_VERSION

    @property
    def folder(self) -> str:
        """Return the folder of record, page and pictures."""
        return f"{FOLDER}/{self.recipe.dataset}/{self.digest()[:12]}"


class SuspectsResult(Result):
    """The suspects that were found; ``folder`` has the record and the page."""

    folder: str = Field(description="its name in the store")
    page: str = Field(description="the name of the page")
    suspects: int = Field(description="the number of suspects in all splits, including near-duplicates")
    sentences: tuple[str, ...] = Field(description="the expectation for each split")
    first: tuple[str, ...] = Field(description="the first suspects, a line each")

    def lines(self, where: Where = str, /) -> list[str]:
        """Return the expectations, the first suspects, and the page."""
        return [*self.sentences, *self.first, where(self.page)]
