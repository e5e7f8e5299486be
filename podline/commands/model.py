"""``podline model``: what a recipe's model is made of and what it costs; nothing is trained."""

from __future__ import annotations

from typing import Any

import click

from podline.commands import pages
from podline.commands.options import complete_recipe, json_option, recipe_of, recipe_options, say, say_json
from podline.documents.model_description import ModelDescription
from podline.documents.skeleton import COCO
from podline.figures import count, short_count, size
from podline.kinds.table import kind_of
from podline.options import Choices
from podline.recipes import datasets


@click.group(cls=pages.Group)
def model() -> None:
    """Models: what they are made of and what they cost."""


@model.command("describe")
@click.argument("recipe", metavar="RECIPE", shell_complete=complete_recipe)
@recipe_options
@json_option
def describe_model(recipe: str, as_json: bool, **changes: Any) -> None:
    """Layers, parameters, bytes of the trainable ones, multiply-adds of a recipe's model.

      podline model describe cifar10
      podline model describe cifar100 --model mobilenetv2 --set model.width=0.5
      podline model describe coco_pose --set pose.side=368

    For CIFAR-100 it also gives the MicroNet challenge's score: storage and operations relative to WideResNet-28-10.
    """
    chosen = Choices(**changes).apply(recipe_of(recipe))
    dataset = datasets.find(chosen.dataset)
    # Images with people are as the recipe says, and people are COCO's.
    description = kind_of(chosen).description(chosen, dataset.image_shape or (0, 0, 0), dataset.classes or 0, COCO)
    if as_json:
        say_json(description.model_dump(mode="json"))
    else:
        say(_page(description))


def _page(description: ModelDescription) -> list[str]:
    width = max(len(layer.name) for layer in description.layers)
    lines = [f"{'layer':{width}}  {'kind':20} {'output':14} {'parameters':>12} {'multiply-adds':>15}"]
    lines += [
        f"{layer.name:{width}}  {layer.kind:20} {' × '.join(map(str, layer.output_shape)):14} "
        f"{count(layer.parameters):>12} {multiply_adds:>15}"
        for layer in description.layers
        for multiply_adds in ["unknown" if layer.multiply_adds is None else count(layer.multiply_adds)]
    ]
    shape = " × ".join(map(str, description.image_shape))
    lines += [
        "",
        f"{description.kind} for {shape} images"
        + (f" and {description.classes} classes" if description.classes else ""),
        f"parameters            {count(description.parameters)} ({size(description.bytes)})",
        f"trainable parameters  {count(description.trainable_parameters)} ({size(description.trainable_bytes)})",
        f"multiply-adds         {short_count(description.multiply_adds)} an image {description.uncounted}".rstrip(),
    ]
    if description.micronet:
        score = description.micronet
        lines.append(
            f"MicroNet score        {score.score:.4f} = storage {score.storage_share:.4f} "
            f"+ operations {score.operations_share:.4f} (WideResNet-28-10: 2)"
        )
    return lines
