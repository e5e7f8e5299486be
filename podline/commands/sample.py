"""``podline sample``: a data set to try everything with, drawn here."""

from __future__ import annotations

from pathlib import Path

import click

from podline.commands import pages
from podline.commands.options import say
from podline.errors import SettingsError


@click.command("sample", cls=pages.Command)
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--dataset",
    default="sample",
    show_default=True,
    help="Shapes in CIFAR-10's layout, or stick people in COCO's.",
)
@click.option("--train", type=int, help="Training images.  [default: 5000 shapes, 600 of people]")
@click.option("--test", type=int, help="Test images.  [default: 1000 shapes, 100 of people]")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed is another data set.")
def sample(folder: Path, dataset: str, train: int | None, test: int | None, seed: int) -> None:
    """Draws a data set, in seconds, with no network.

    Ten classes of shapes and textures in CIFAR-10's exact layout, or stick people in COCO's, with crowds and what goes
    wrong in real data: a truncated file, a missing one, an annotation without an image.

      podline sample drawn
      podline sample --dataset coco_sample people

    Next: `podline run sample --source drawn`, or `podline convert coco_sample --source people`. (Without --source,
    `podline run sample` draws one for itself.)
    """
    from podline.recipes import datasets  # noqa: PLC0415 (pydantic, for a help page)

    found = datasets.find(dataset)
    if not found.draw:
        there = ", ".join(name for name in datasets.names() if datasets.find(name).draw)
        raise SettingsError(f"{dataset} cannot be drawn, only {there}")
    counts = {name: count for name, count in (("train", train), ("test", test)) if count is not None}
    say([str(found.code(found.draw)(folder, **counts, seed=seed))])
