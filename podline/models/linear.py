"""The linear baseline: one dense layer on the pixels."""

from __future__ import annotations

from collections.abc import Iterator

from podline.models.network import Dense, Dropout, Flatten, Layer, Normalise
from podline.recipes.settings import ModelSettings


def linear_layers(settings: ModelSettings, classes: int) -> Iterator[Layer]:
    """The layers of a softmax regression on the normalised pixels; width and depth have no meaning here."""
    yield Normalise("normalise")
    yield Flatten("flatten")
    if settings.dropout:
        yield Dropout("dropout", rate=settings.dropout)
    yield Dense("classifier", units=classes)
