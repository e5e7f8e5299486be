"""``podline runs index``: one page over all nights of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from podline.commands import pages
from podline.commands.options import existing_store, json_option, say, say_json, store_options
from podline.store.contract import explained


@click.command("index", cls=pages.Command)
@click.option(
    "--out", type=click.Path(path_type=Path), help="A file on this machine.  [default: index.html in the store's root]"
)
@store_options
@json_option
def index(out: Path | None, as_json: bool, **options: Any) -> None:
    """One page over all nights: state, result with interval, change, time, what was re-used, champions; charts.

      podline runs index --root podline-root
      podline runs index --root gs://bucket/nights --out nights.html

    Each night's report is a link away. A training flow writes the page anew whenever it ends.
    """
    from podline.reporting.nights_page import page_elsewhere, write_index  # noqa: PLC0415 (not for --help)

    store = existing_store(options)
    if out is None:
        where = store.where(write_index(store))
    else:
        with explained("write", out):
            out.write_text(page_elsewhere(store))
        where = str(out)
    if as_json:
        say_json({"html": where})
    else:
        say([where])
