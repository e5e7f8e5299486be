"""``podline store``: lists and verifies the files of a store, and deletes unused files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from podline.base.errors import ArtifactError
from podline.base.figures import moment, size
from podline.base.plurals import plural
from podline.base.progress import Reporter
from podline.commands import display, pages
from podline.commands.options import (
    Number,
    answer,
    deleting_in_store,
    existing_store,
    in_store,
    raise_damaged,
    say,
    store_options,
)
from podline.ledger.inventory import inventory, verification
from podline.ledger.inventory.inventory import Holding
from podline.ledger.inventory.machine_files import MachineFiles, cached_sources, machine_files
from podline.store.contract import MARKER, Store
from podline.store.folder import FolderStore

_DAY_SECONDS = 86_400
# A file touched within this time may be in use on another machine, whose processes are unknown here. A training
# updates its log in the bucket every few seconds; a conversion writes shards.
_OTHERS_SECONDS = 3_600


@click.group("store", cls=pages.Group)
def store_group() -> None:
    """List, verify and prune the files of a store."""


@store_group.command("list")
@in_store
def list_holdings(store: Store, as_json: bool) -> None:
    """List every data set, run and cached source, with size, last use, and what uses it.

      podline store list --root podline-root
      podline store list --root gs://bucket/prefix

    Next: `podline store verify`.
    """
    damaged = list[ArtifactError]()
    found = [*inventory.holdings(store, damaged.append), *cached_sources(store)]
    answer([_document(each) for each in found], lambda: _table(store, found), as_json=as_json)
    raise_damaged(damaged)


def _table(store: Store, found: Sequence[Holding | MachineFiles]) -> list[str]:
    if not found:
        return [f"{store.uri} is empty; `podline run` writes the first run"]
    return [*_lines(found), f"total {size(sum(each.bytes for each in found))}"]


@store_group.command("verify")
@in_store
def verify(store: Store, as_json: bool) -> None:
    """Verify the checksum of every file; list damaged, missing and unrecorded files.

      podline store verify --root podline-root

    Each problem is one line; problems give exit code 4. `podline data show --verify` checks single records.
    docs/reference/store.md explains each problem.
    """
    with display.shown() as listener:
        checked, problems, notes = verification.verify(store, Reporter("store", listener))
    nothing = "" if checked or problems else f"; {store.uri} is empty: check --root"
    total = f"{plural(checked, 'object')} checked, {plural(len(problems), 'problem')}{nothing}"
    document = {"root": store.uri, "checked": checked, "problems": problems, "notes": notes}
    answer(document, lambda: [*problems, *(f"note: {note}" for note in notes), total], as_json=as_json)
    if problems:
        raise ArtifactError(f"{store.uri} has {plural(len(problems), 'problem')}; the first is: {problems[0]}")


@store_group.command("mark")
@store_options
def mark(**options: Any) -> None:
    """Mark a folder or a bucket's prefix as a store, so that commands may delete unneeded files there.

      podline store mark --root podline-root

    Podline marks a new store itself when it writes the first file there. It marks a store of Podline 1.0 when it next
    writes a file there.
    """
    store = existing_store(options)
    store.mark()
    say([store.where(MARKER)])


@store_group.command("prune")
@click.option("--yes", is_flag=True, help="Delete the files; without it, they are only listed.")
@click.option(
    "--days",
    type=Number(0),
    default=7.0,
    show_default=True,
    help="Keep files that were used within this number of days, because they may be needed again.",
)
@deleting_in_store
def prune(store: Store, yes: bool, days: float, as_json: bool) -> None:
    """Delete unneeded files: unfinished work, data sets without runs, cached sources, old lock files and logs.

      podline store prune --root podline-root
      podline store prune --root podline-root --days 30 --yes

    The command never deletes finished runs, the data sets of finished runs, or files that a running process on this
    machine uses. In a bucket it also keeps files touched within the last hour; docs/reference/store.md explains why.
    """
    damaged = list[ArtifactError]()
    before = store.now() - max(days * _DAY_SECONDS, 0 if isinstance(store, FolderStore) else _OTHERS_SECONDS)
    deleted, busy = inventory.pruned(store, before, damaged.append, delete=yes)
    ours = machine_files(store, time.time() - days * _DAY_SECONDS)
    gone = [*deleted, *(each for each in ours if (each.remove() if yes else not each.in_use))]
    used = [f"{each.name} stays: a running process uses it" for each in (*busy, *ours) if each not in gone]
    total = f"{plural(len(gone), 'folder')}, {size(sum(each.bytes for each in gone))}"
    total += " deleted" if yes else " would be deleted; give --yes to delete"
    document = {"deleted": yes, "holdings": [_document(each) for each in gone]}
    answer(document, lambda: [*_lines(gone), *used, total], as_json=as_json)
    raise_damaged(damaged)


def _lines(found: Sequence[Holding | MachineFiles]) -> list[str]:
    width = max((len(one.name) for one in found), default=0)
    return [f"{one.name:{width}}  {size(one.bytes):>10}  {moment(one.touched)}{_state(one)}" for one in found]


def _state(one: Holding | MachineFiles) -> str:
    used = "  in use" if one.in_use else ""
    if isinstance(one, MachineFiles):
        return f"  {one.kind}{used}"
    users = f"  used by {', '.join(one.users)}" if one.users else ""
    return f"{'' if one.whole else '  not finished'}{users}{used}"


def _document(one: Holding | MachineFiles) -> dict[str, Any]:
    shared = {"folder": one.name, "bytes": one.bytes, "touched": one.touched, "in_use": one.in_use}
    if isinstance(one, MachineFiles):
        return shared
    return {**shared, "objects": len(one.objects), "whole": one.whole, "users": list(one.users)}
