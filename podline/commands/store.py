"""``podline store``: what a store holds, whether it is whole, and what is needless."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from podline.commands import display, pages
from podline.commands.options import existing_store, json_option, say, say_json, store_options
from podline.errors import ArtifactError
from podline.figures import moment, size
from podline.inventory import inventory, verification
from podline.inventory.inventory import Holding, UnpackedSource
from podline.plurals import plural
from podline.progress import Reporter
from podline.store.contract import Store
from podline.store.folder import FolderStore

_DAY_SECONDS = 86_400
# What was touched within so long may be in the making on another machine, whose processes are not known here: a
# training there brings its log to the bucket every few seconds, a conversion its shards.
_OTHERS_SECONDS = 3_600


@click.group("store", cls=pages.Group)
def store_group() -> None:
    """List, verify and prune what is in the store."""


@store_group.command("list")
@store_options
@json_option
def list_holdings(as_json: bool, **options: Any) -> None:
    """List every data set, run and unpacked archive: its size, when it was last touched, which runs use it.

      podline store list --root podline-root
      podline store list --root gs://bucket/prefix

    Next: `podline store verify`.
    """
    store = existing_store(options)
    found, sources = inventory.holdings(store), inventory.unpacked_sources(store)
    if as_json:
        say_json([_document(store, one) for one in (*found, *sources)])
    elif not found and not sources:
        say([f"{store.uri} holds nothing; make something with `podline run`"])
    else:
        total = sum(one.bytes for one in (*found, *sources))
        lines, width = _lines(store, [*found, *sources])
        say([*lines, f"{'in all':{width}}  {size(total):>10}"])


@store_group.command("verify")
@store_options
@json_option
def verify(as_json: bool, **options: Any) -> None:
    """Check every file by its checksum; name what is damaged, gone, or named by no record.

      podline store verify --root podline-root

    What is wrong is named, a line each, and ends with exit code 4. `podline data show --verify` looks into the records.
    What each finding means is in docs/storage.md.
    """
    store = existing_store(options)
    with display.shown() as listener:
        checked, problems, notes = verification.verify(store, Reporter("store", listener))
    if as_json:
        say_json({"root": store.uri, "checked": checked, "problems": problems, "notes": notes})
    else:
        nothing = "" if checked or problems else f"; {store.uri} holds nothing: is that the root you mean?"
        lines = [*problems, *(f"note: {note}" for note in notes)]
        say([*lines, f"{plural(checked, 'object')} checked, {plural(len(problems), 'problem')}{nothing}"])
    if problems:
        raise ArtifactError(f"{store.uri}: {plural(len(problems), 'problem')}; the first: {problems[0]}")


@store_group.command("prune")
@click.option("--yes", is_flag=True, help="Really delete; without, it is only said what would be.")
@click.option(
    "--days",
    type=click.FloatRange(0),
    default=7.0,
    show_default=True,
    help="What was touched within this many days is left alone: it may be in the making, or wanted next.",
)
@store_options
@json_option
def prune(yes: bool, days: float, as_json: bool, **options: Any) -> None:
    """Delete what is not needed: unfinished work, data sets that no run was trained on, unpacked archives.

      podline store prune --root podline-root
      podline store prune --root podline-root --days 30 --yes

    Finished runs are never deleted, nor anything that one of them was made from, nor what a living process on this
    machine works on; in a bucket, what was touched within the last hour stays too: docs/storage.md says why.
    """
    store = existing_store(options)
    before = store.now() - max(days * _DAY_SECONDS, 0 if isinstance(store, FolderStore) else _OTHERS_SECONDS)
    needless: list[Holding | UnpackedSource] = [*inventory.needless(inventory.holdings(store), before)]
    needless += [one for one in inventory.unpacked_sources(store) if one.touched < time.time() - days * _DAY_SECONDS]
    if yes:
        gone = [one for one in needless if _remove(store, one)]
    else:
        gone = [one for one in needless if not _in_use(store, one)]
    if as_json:
        say_json({"deleted": yes, "holdings": [_document(store, one) for one in gone]})
        return
    total = size(sum(one.bytes for one in gone))
    word = "deleted" if yes else "would be deleted; give --yes to do it"
    lines, _ = _lines(store, gone)
    used = [f"{_name(one)} stays: a living process uses it" for one in needless if one not in gone]
    say([*lines, *used, f"{plural(len(gone), 'folder')}, {total}, {word}"])


def _remove(store: Store, one: Holding | UnpackedSource) -> bool:
    return inventory.remove(store, one) if isinstance(one, Holding) else one.remove()


def _in_use(store: Store, one: Holding | UnpackedSource) -> bool:
    return inventory.in_use(store, one) if isinstance(one, Holding) else one.in_use


def _name(one: Holding | UnpackedSource) -> str:
    return one.folder if isinstance(one, Holding) else str(one.path)


def _lines(store: Store, found: Sequence[Holding | UnpackedSource]) -> tuple[list[str], int]:
    """Return a line for each, and how wide their names are."""
    width = max((len(_name(one)) for one in found), default=0)
    return [
        f"{_name(one):{width}}  {size(one.bytes):>10}  {moment(one.touched)}{_state(store, one)}" for one in found
    ], width


def _state(store: Store, one: Holding | UnpackedSource) -> str:
    used = "  in use" if _in_use(store, one) else ""
    if isinstance(one, UnpackedSource):
        return f"  an unpacked archive{used}"
    users = f"  used by {', '.join(one.users)}" if one.users else ""
    return f"{'' if one.whole else '  not finished'}{users}{used}"


def _document(store: Store, one: Holding | UnpackedSource) -> dict[str, Any]:
    shared = {"folder": _name(one), "bytes": one.bytes, "touched": one.touched, "in_use": _in_use(store, one)}
    if isinstance(one, UnpackedSource):
        return shared
    return {**shared, "objects": len(one.objects), "whole": one.whole, "users": list(one.users)}
