"""``podline sample``: a data set to try everything with, drawn here."""

from __future__ import annotations

from pathlib import Path

import click

from podline.commands import pages
from podline.commands.options import say


@click.command("sample", cls=pages.Command)
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--dataset",
    type=click.Choice(["sample", "coco_sample"]),
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
    from podline.data.sources.coco_sample import write_coco_sample  # noqa: PLC0415 (NumPy, for a help page)
    from podline.data.sources.sample import write_sample  # noqa: PLC0415

    write, counts = (write_sample, (5000, 1000)) if dataset == "sample" else (write_coco_sample, (600, 100))
    train, test = (default if given is None else given for given, default in zip((train, test), counts, strict=True))
    say([str(write(folder, train, test, seed))])
