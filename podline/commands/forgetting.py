"""``podline data forget``: removes an image from a data set, and checks that the store no longer contains it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from podline.base import entry_points
from podline.base.errors import ArtifactError, SettingsError
from podline.base.figures import size
from podline.base.plurals import plural
from podline.base.progress import report_work
from podline.commands import display, pages
from podline.commands.options import (
    answer,
    dataset_named,
    deleting_in_store,
)
from podline.ledger.inventory.forgetting import forget as forget_image
from podline.ledger.inventory.forgetting import image_of
from podline.store.contract import Store

# A name, imported when needed: this command decodes the image, the other commands of `podline data` do not.
_SEARCH = "podline.ledger.inventory.traces:search"


@click.command("forget", cls=pages.Command)
@click.argument("name", metavar="NAME")
@click.option("--key", help="The image: its path in the source, its identity, or a copy of the file on this machine.")
@click.option("--reason", help="The reason; conversions and manifests record it.")
@click.option(
    "--prove",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Only search all files of the store for the image in this file.",
)
@click.option(
    "--dry-run", is_flag=True, help="Delete nothing; list the files to delete, and the affected runs and champions."
)
@deleting_in_store
def forget(
    store: Store, name: str, key: str | None, reason: str | None, prove: Path | None, dry_run: bool, as_json: bool
) -> None:
    """Forget one of your own images: delete it from shards, caches and pages, and omit it from later conversions.

      podline data forget images.flowers --key cat/1.jpg --reason "asked by its owner" --root podline-root
      podline data forget images.flowers --prove 1.jpg

    The command converts the newest version again without the image. It deletes the versions with the image, this
    machine's cached sources, reports of the data set's runs, and sheets. It keeps models, and lists models that may
    have learned from the image. After an interruption, the same command continues. Delete the outputs of `data review`,
    `--sheet` and `models predict` outside the store yourself. --prove exits with code 4 if it finds the image.
    """
    dataset = dataset_named(name)
    if prove is None and not (key and (reason or dry_run)):
        raise SettingsError("got neither --key nor --prove; give --key with --reason or --dry-run, or --prove")
    if prove and (key or reason or dry_run):
        raise SettingsError("got --prove with --key, --reason or --dry-run, expected --prove alone; forget first")
    with display.shown() as listener, report_work("forget", listener) as reporter:
        traces: Any = entry_points.load(_SEARCH)(store, dataset, prove, reporter) if prove else None
        result = None
        if not prove:
            image = image_of(store, dataset, str(key))
            result = forget_image(store, dataset, image, reason or "", reporter, dry_run=dry_run)
    if result is not None:
        answer(result, result.lines, as_json=as_json)
        return
    searched = f"searched {plural(traces.objects, 'object')}, {size(traces.bytes)}"
    lines = [*traces.found, f"{searched}: {plural(len(traces.found), 'copy', 'copies')} of {prove}"]
    answer(traces._asdict(), lambda: lines, as_json=as_json)
    if traces.found:
        raise ArtifactError(
            f"{store.uri} still contains {prove}, for example {traces.found[0]}; forget the image with --key"
        )
