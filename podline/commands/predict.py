"""``podline predict``: a run's model on any pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from podline.commands import display, pages
from podline.commands.options import complete_run, json_option, load_settings, say, say_json, store_options
from podline.serving.layout import require_champion
from podline.stages.prediction import PredictSpec
from podline.stages.table import PREDICT
from podline.store.opening import open_store
from podline.supervision.running import perform


@click.command(PREDICT.name, cls=pages.Command)
@click.argument("run", metavar="RUN", shell_complete=complete_run)
@click.argument("images", metavar="IMAGE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--champion", is_flag=True, help="RUN is a recipe, and its champion predicts.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="A folder.  [default: predictions/RUN in the store's folder]"
)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    help="Whatever has a lower score is left out.  [default: what the run's evaluation chose on training images]",
)
@store_options
@json_option
def predict(
    run: str,
    images: tuple[Path, ...],
    champion: bool,
    out: Path | None,
    threshold: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """What a finished run's model says of any pictures: JPEG, PNG, WebP, BMP, TIFF or GIF, grey or in colour.

    What a pose network finds is drawn on each picture, left in blue, right in orange, and written to
    predictions.json as COCO results in the picture's own pixels. A classifier names each picture's classes with their
    probabilities.

      podline predict coco_pose-0123456789ab street.jpg beach.png --root podline-root
      podline predict cifar10-0123456789ab cat.jpg --json
      podline predict --champion cifar10 cat.jpg

    `podline runs list` shows the runs.
    """
    settings = load_settings(options)
    store = open_store(settings.root)
    run = require_champion(store, run).run if champion else run
    target = out or store.beside / "predictions" / run
    spec = PredictSpec(
        root=store.uri,
        run=run,
        images=tuple(str(image.expanduser().absolute()) for image in images),
        out=str(target.expanduser().absolute()),
        threshold=threshold,
    )
    with display.shown() as listener:
        result = perform(spec, listener, settings)
    if as_json:
        say_json(result.model_dump(mode="json"))
    else:
        say(result.lines())
