"""``podline data forget``: removes an image from a data set, and proves that the store does not contain it."""

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
from podline.commands.options import answer, dataset_named, existing_store, json_option, store_options
from podline.ledger.inventory.forgetting import forget as forget_image
from podline.ledger.inventory.forgetting import image_of

# By name: this command decodes the image, the others of `podline data` do not.
_SEARCH = "podline.ledger.inventory.traces:search"


@click.command("forget", cls=pages.Command)
@click.argument("name", metavar="NAME")
@click.option("--key", help="The image: its path in the source, its identity, or the path of its file on this machine.")
@click.option("--reason", help="The reason; conversions and manifests record it.")
@click.option(
    "--prove",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Only search every object of the store for the image in this file.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing; list files to delete, and affected runs and champions.")
@store_options
@json_option
def forget(
    name: str,
    key: str | None,
    reason: str | None,
    prove: Path | None,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Forget an image of your own: no later conversion reads it, and no shard, cache or page keeps it.

      podline data forget images.flowers --key cat/1.jpg --reason "asked by its owner" --root podline-root
      podline data forget images.flowers --prove 1.jpg

    The command converts the newest version again without the image. It deletes the versions that contain it, this
    machine's cached sources, reports of the data set's runs, and sheets. It keeps models, and lists those that may have
    learned from it. After an interruption, the same command continues. Delete the outputs of `data review`, `--sheet`
    and `models predict` elsewhere yourself. --prove exits with code 4 if it finds the image.
    """
    store, dataset = existing_store(options, deletes=True), dataset_named(name)
    if prove is None and not (key and (reason or dry_run)):
        raise SettingsError("got no --key with a --reason and no --prove, expected either; see --help")
    if prove and (key or reason or dry_run):
        raise SettingsError("got --prove beside other options, expected it alone; prove after forgetting")
    with display.shown() as listener, report_work("forget", listener) as reporter:
        traces: Any = entry_points.load(_SEARCH)(store, dataset, prove, reporter) if prove else None
        result = None
        if not prove:
            image = image_of(store, dataset, str(key))
            result = forget_image(store, dataset, image, reason or "", reporter, dry_run=dry_run)
    if result is not None:
        answer(result, result.lines, as_json=as_json)
        return
    searched = f"{plural(traces.objects, 'object')} searched, {size(traces.bytes)}"
    lines = [*traces.found, f"{searched}: {plural(len(traces.found), 'trace')} of {prove}"]
    answer(traces._asdict(), lambda: lines, as_json=as_json)
    if traces.found:
        raise ArtifactError(f"{store.uri} holds {prove}, expected no trace: {traces.found[0]}; forget it with --key")
