"""``podline sample``: a data set to try everything with, drawn here."""

from __future__ import annotations

from pathlib import Path

import click

from podline.commands import pages
from podline.commands.options import say


@click.command("sample", cls=pages.Command)
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--train", type=int, default=5000, show_default=True, help="Training images.")
@click.option("--test", type=int, default=1000, show_default=True, help="Test images.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed is another data set.")
def sample(folder: Path, train: int, test: int, seed: int) -> None:
    """Draws a data set in CIFAR-10's exact layout: ten classes of shapes and textures, in seconds, with no network.

      podline sample drawn

    Next: `podline run sample --source drawn`. (Without --source, that command draws one for itself.)
    """
    from podline.data.sources.sample import write_sample  # noqa: PLC0415 (NumPy, for a help page)

    say([str(write_sample(folder, train, test, seed))])
