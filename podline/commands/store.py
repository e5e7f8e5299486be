"""``podline store``: what a store holds, whether it is whole, and what nobody needs."""

from __future__ import annotations

from typing import Any

import click

from podline import holdings
from podline.commands import display, pages
from podline.commands.options import json_option, load_settings, say, say_json, store_options
from podline.errors import ArtifactError
from podline.holdings import Holding
from podline.progress import Reporter
from podline.reporting.figures import count, moment, size
from podline.storage import open_store

_DAY_SECONDS = 86_400
_SHOWN_PROBLEMS = 20


@click.group("store", cls=pages.Group)
def store_group() -> None:
    """The store as a whole: what is there and who uses it, whether it is whole, what nobody needs."""


@store_group.command("list")
@store_options
@json_option
def list_holdings(as_json: bool, **options: Any) -> None:
    """Every data set and run: its size, when it was last touched, which runs use it.

      podline store list --root podline-root
      podline store list --root gs://bucket/prefix

    Next: `podline store verify`.
    """
    store = open_store(load_settings(options).root)
    found = holdings.holdings(store)
    if as_json:
        say_json([_document(holding) for holding in found])
    elif not found:
        say([f"{store.uri} holds nothing; make something with `podline run`"])
    else:
        width = max(len(holding.folder) for holding in found)
        total = sum(holding.bytes for holding in found)
        say([*(_line(holding, width) for holding in found), f"{'in all':{width}}  {size(total):>10}"])


@store_group.command("verify")
@store_options
@json_option
def verify(as_json: bool, **options: Any) -> None:
    """Checks all that manifests and completion records name, by size and checksum, and names what nothing leads to.

      podline store verify --root podline-root

    What is wrong is named, a line each, and ends with exit code 4. `podline data verify` looks into the records.
    """
    store = open_store(load_settings(options).root)
    with display.shown() as listener:
        checked, problems = holdings.verify(store, Reporter("store", listener))
    if as_json:
        say_json({"root": store.uri, "checked": checked, "problems": problems})
    else:
        nothing = "" if checked or problems else f"; {store.uri} holds nothing: is that the root you mean?"
        say([*problems, f"{count(checked)} objects checked, {count(len(problems))} problems{nothing}"])
    if problems:
        raise ArtifactError(f"{store.uri}: {count(len(problems))} problems; the first: {problems[0]}")


@store_group.command("prune")
@click.option("--yes", is_flag=True, help="Really delete; without, it is only said what would be.")
@click.option(
    "--days",
    type=click.FloatRange(0),
    default=7.0,
    show_default=True,
    help="What was touched within so many days is left alone: it may be in the making, or wanted next.",
)
@store_options
@json_option
def prune(yes: bool, days: float, as_json: bool, **options: Any) -> None:
    """Deletes what no run and no champion needs: unfinished work, and data sets that no run was trained on.

      podline store prune --root podline-root
      podline store prune --root podline-root --days 30 --yes

    Finished runs are never deleted, nor anything that one of them was made from.
    """
    store = open_store(load_settings(options).root)
    found = holdings.needless(holdings.holdings(store), store.now() - days * _DAY_SECONDS)
    if yes:
        for holding in found:
            holdings.remove(store, holding)
    if as_json:
        say_json({"deleted": yes, "holdings": [_document(holding) for holding in found]})
        return
    total = size(sum(holding.bytes for holding in found))
    word = "deleted" if yes else "would be deleted; give --yes to do it"
    width = max((len(holding.folder) for holding in found), default=0)
    say([*(_line(holding, width) for holding in found), f"{count(len(found))} folders, {total}, {word}"])


def _line(holding: Holding, width: int) -> str:
    state = "" if holding.whole else "  not finished"
    used = f"  used by {', '.join(holding.users)}" if holding.users else ""
    return f"{holding.folder:{width}}  {size(holding.bytes):>10}  {moment(holding.touched)}{state}{used}"


def _document(holding: Holding) -> dict[str, Any]:
    return {
        "folder": holding.folder,
        "bytes": holding.bytes,
        "objects": len(holding.objects),
        "touched": holding.touched,
        "whole": holding.whole,
        "users": list(holding.users),
    }
