"""Decide at a data set's first conversion whether its recipe uses the values for small data sets."""

from __future__ import annotations

from typing import Any

from podline.base.frozen import JsonObject
from podline.base.plurals import plural
from podline.data.versions.fingerprint import effective, source_of
from podline.documents.manifest import TRAINING
from podline.documents.versions import FirstImages, is_first, publish_first_images
from podline.recipes.settings import Recipe
from podline.stages.from_recipe import (
    Tell,
    converter_settings,
    few_in_words,
    for_first_images,
    require_weights,
    settled,
)
from podline.stages.specs import ConvertSpec
from podline.store.contract import Store


def conversion_spec(store: Store, recipe: Recipe, given: JsonObject, tell: Tell, **values: Any) -> ConvertSpec:
    """Return the spec of a conversion for a recipe, with the values for few images if its data set has few.

    The first conversion under a name opens the source to count its images; later conversions keep the choice.

    Args:
        store: the store for the data set; it also keeps the choice.
        recipe: the recipe to convert for.
        given: settings of the conversion by name, which override the recipe's.
        tell: called with a sentence if values for few images are chosen now, and these use pretrained weights.
        values: other fields of the spec: the source, the engine, and so on.

    Raises:
        SettingsError: pretrained weights, or the weights that the training begins with, are missing.
        SourceError: see :func:`podline.data.versions.fingerprint.source_of`.
        StoreError: the store cannot be written.
    """

    def spec_of(recipe: Recipe) -> ConvertSpec:
        settings = converter_settings(recipe.dataset, recipe, given)
        return ConvertSpec(root=store.uri, dataset=recipe.dataset, settings=settings, **values)

    if recipe.few and is_first(store, recipe.dataset):
        source = source_of(effective(spec_of(recipe), store), store)
        found = FirstImages(images=source.sizes[TRAINING], side=source.images.usual_side)
        chosen = for_first_images(recipe, found)
        require_weights(store, chosen)
        publish_first_images(store, recipe.dataset, found)
        if (smaller := few_in_words(recipe, found.images, found.side)) and chosen.pretrained:
            tell(
                f"{plural(found.images, 'training image')}, mostly of {found.side} pixels: {recipe.dataset} uses "
                f"{smaller}, also on later nights; --set {chosen.pretrained.instead} keeps the recipe's own values"
            )
    recipe = settled(store, recipe)
    require_weights(store, recipe)
    return spec_of(recipe)
