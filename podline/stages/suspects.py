"""Spec and result of the stage that finds suspicious labels."""

from __future__ import annotations

from pydantic import Field

from podline.documents.suspects import FOLDER
from podline.recipes.settings import Recipe
from podline.stages.specs import Result, TrainableSpec, Where

# Part of a pass's identity: raise it when other records are found with the same models.
SUSPECTS_VERSION = 1


class SuspectsSpec(TrainableSpec):
    """Which labels of a data set are not believed by models that did not train on them?"""

    recipe: Recipe = Field(description="that the models were trained with, without the part that each left out")
    runs: tuple[str, ...] = Field(description="the models; number k of n was trained without part k/n")
    weights: tuple[str, ...] = Field(description="the sha256 of the weights of each")
    precision: float = Field(gt=0, lt=1, description="the list is as long as this share of it is expected to be wrong")
    suspects_version: int = SUSPECTS_VERSION

    @property
    def folder(self) -> str:
        """Return where the record, the page and the pictures go."""
        return f"{FOLDER}/{self.recipe.dataset}/{self.digest()[:12]}"


class SuspectsResult(Result):
    """The suspects that were found; ``folder`` has the record and the page."""

    folder: str = Field(description="its name in the store")
    page: str = Field(description="the name of the page")
    suspects: int = Field(description="how many there are in all splits, near-duplicates included")
    sentences: tuple[str, ...] = Field(description="of each split, what is to be expected")
    first: tuple[str, ...] = Field(description="the first of them, a line each")

    def lines(self, where: Where = str, /) -> list[str]:
        """Return what to expect, the first suspects, and the page."""
        return [*self.sentences, *self.first, where(self.page)]
