"""``podline runs``: the runs of a store, by its ledger: list, show, compare, export."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sized
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from podline.commands import nights, pages
from podline.commands.explain import explain_run
from podline.commands.options import complete_run, existing_store, in_order, json_option, say, say_json, store_options
from podline.documents.ledger_entry import Entry
from podline.errors import ArtifactError, SettingsError
from podline.figures import metric_text
from podline.ledger.ledger import Named, entries, entry_of, foreign, names
from podline.measures import loaded, measure_named
from podline.plurals import plural
from podline.reporting.ledger import frame_of, row_of
from podline.store.contract import Store, explained

_DAY = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"])
_SUFFIXES = (".csv", ".parquet")
_filter_options = in_order(
    click.option("--recipe", help="Only runs of this recipe."),
    click.option("--data", "dataset", help="Only runs on this data set: its name, or how its fingerprint begins."),
    click.option("--since", type=_DAY, help="Only runs that ended on this day or later, in universal time."),
    click.option("--until", type=_DAY, help="Only runs that ended before this day."),
    click.option("--commit", help="Only runs of the code whose commit begins so."),
    click.option("--state", type=click.Choice(["finished", "failed", "cancelled"]), help="Only runs that ended so."),
)


@click.group("runs", cls=pages.Group)
def runs_group() -> None:
    """Runs: what was trained, how good it is, what it came from, what differs; from the store's ledger."""


runs_group.add_command(nights.index)
runs_group.add_command(explain_run)


@runs_group.command("list")
@_filter_options
@click.option("--last", type=click.IntRange(1), help="Only so many, the newest.")
@click.option("--unrecorded", is_flag=True, help="Then the folders of runs that the ledger does not tell of.")
@store_options
@json_option
def list_runs(as_json: bool, last: int | None, unrecorded: bool, **options: Any) -> None:
    """Every run that finished, failed or was cancelled, the newest first.

      podline runs list --root podline-root
      podline runs list --recipe cifar10 --since 2026-11-01 --state failed

    A run that was trained and not evaluated yet has no entry in the ledger: --unrecorded shows it. A damaged entry is
    named after the others, with exit code 4. Charts over the
    nights are on the page of `podline runs index`. Next: `podline runs show RUN`.
    """
    store, wanted, kept = _asked(options)
    if not any(kept.values()):
        wanted = wanted[:last]  # so that no others are read
    damaged: list[ArtifactError] = []
    shown = itertools.islice(entries(store, wanted, **kept, damaged=damaged.append), last)
    folders = _unrecorded(store) if unrecorded else []
    if as_json:
        _say_json_list([*map(row_of, shown), *folders] if folders else map(row_of, shown))
    else:
        _say_list(store, wanted, shown, folders, told=damaged)
    for name in foreign(store):
        click.echo(f"{store.where(name)} is left out: by its name it is no entry of the ledger; move it away", err=True)
    for problem in loaded().problems:
        click.echo(f"{problem}; its figures are shown by their names", err=True)
    for error in damaged[:-1]:
        click.echo(f"{error}", err=True)
    if damaged:
        raise damaged[-1]


@runs_group.command("show")
@click.argument("name", metavar="RUN", shell_complete=complete_run)
@store_options
@json_option
def show_run(name: str, as_json: bool, **options: Any) -> None:
    """One run: how it ended, its figures, what produced it, what it took, where its page lies.

      podline runs show sample-0123456789ab --root podline-root

    RUN is the name of a run, of which the newest entry is shown, or of an entry; or how either begins. With --json it
    is all that the ledger holds: every setting and every package.
    """
    from podline.reporting.ledger_lines import lines_of  # noqa: PLC0415 (NumPy: nothing that a list should wait for)

    store = existing_store(options)
    entry = entry_of(store, name)
    if as_json:
        say_json(entry.model_dump(mode="json"))
    else:
        say(lines_of(store, entry))


@runs_group.command("compare")
@click.argument("chosen", metavar="RUN RUN...", shell_complete=complete_run, nargs=-1, required=True)
@store_options
@json_option
def compare_runs(chosen: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """What differs between runs in settings, data, code and environment; then their results, and whether it is noise.

      podline runs compare cifar10-0123456789ab cifar10-ba9876543210 --root podline-root

    Each RUN as for `podline runs show`; the first is what the others are held against. Where two were judged on the
    same examples, McNemar's test (accuracy) or a paired bootstrap over images (AP) says whether the difference could
    be noise: of the examples, not of the seed; see docs/ledger.md.
    """
    from podline.reporting.ledger_comparison import compare, lines  # noqa: PLC0415 (likewise)

    if len(chosen) < 2:
        raise SettingsError(f"{' '.join(chosen)}: compare it with what? give two runs or more")
    store = existing_store(options)
    comparison = compare(store, [entry_of(store, name) for name in chosen])
    if as_json:
        say_json(comparison.model_dump(mode="json"))
    else:
        say(lines(comparison))


@runs_group.command("export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_filter_options
@store_options
@json_option
def export(file: Path, as_json: bool, **options: Any) -> None:
    """The ledger as one table, for a spreadsheet or a notebook: a row for each run, the oldest first.

      podline runs export nights.csv --root podline-root
      podline runs export nights.parquet --recipe cifar10

    FILE ends in .csv or .parquet. The columns are those of podline.reporting.ledger; see docs/ledger.md.
    """
    if file.suffix not in _SUFFIXES:
        raise SettingsError(f"{file}: the name ends in {file.suffix or 'nothing'} vs {' or '.join(_SUFFIXES)}")
    store, wanted, kept = _asked(options)
    frame = frame_of(entries(store, reversed(wanted), **kept))
    with explained("write", file):
        if file.suffix == ".csv":
            frame.to_csv(file, index=False)
        else:
            frame.to_parquet(file, index=False)
    if as_json:
        say_json({"file": str(file), "runs": len(frame), "columns": list(frame.columns)})
    else:
        say([f"{plural(len(frame), 'run')}, {plural(len(frame.columns), 'column')}: {file}"])


def _asked(options: dict[str, Any]) -> tuple[Store, list[Named], dict[str, Any]]:
    """The store; the entries that fit by their names, the newest first; and what only their content can tell."""
    store = existing_store(options)
    kept = {name: options.pop(name) for name in ("dataset", "commit")}
    days = {name: day and day.replace(tzinfo=UTC) for name in ("since", "until") for day in [options.pop(name)]}
    return store, names(store, **days, **options), kept


def _say_list(
    store: Store,
    wanted: list[Named],
    shown: Iterable[Entry],
    folders: list[dict[str, Any]],
    told: Sized,
) -> None:
    width = max((len(named.recipe) for named in wanted), default=0)
    said = False
    for entry in shown:
        say([_line(entry, width)])
        said = True
    for folder in folders:
        say([f"{'':16}  {'':{width}}  unrecorded  {', '.join(folder['stages']):42}  {folder['run']}"])
    if not said and not folders and not told:
        say([f"{store.uri}: no such run has ended; `podline run` makes one, and --unrecorded shows what is not judged"])


def _line(entry: Entry, width: int) -> str:
    ended = datetime.fromtimestamp(entry.ended, UTC)
    figure = entry.cause
    if entry.outcome is not None and not figure:
        measure = entry.outcome.measure
        figure = f"{measure_named(measure).label} {metric_text(measure, entry.outcome.main)}"
    if len(figure) > 42:
        figure = f"{figure[:41]}…"
    return f"{ended:%Y-%m-%d %H:%M}  {entry.recipe:{width}}  {entry.state:10}  {figure:42}  {entry.run or entry.name}"


def _say_json_list(documents: Iterable[dict[str, Any]]) -> None:
    """One JSON document, written item by item: it need not fit into memory."""
    before = "["
    for document in documents:
        click.echo(f"{before}\n{json.dumps(document, indent=2, allow_nan=False)}", nl=False)
        before = ","
    click.echo("[]" if before == "[" else "\n]")


def _unrecorded(store: Store) -> list[dict[str, Any]]:
    """The runs that have a folder and no entry: not evaluated yet, or older than the ledger."""
    from podline.inventory.catalogue import runs  # noqa: PLC0415 (NumPy, and it looks through all folders)

    told = {entry.run for entry in entries(store, names(store), damaged=lambda _error: None)}
    return [
        {"run": run.name, "stages": list(run.stages), "touched": run.touched}
        for run in runs(store)
        if run.name not in told
    ]
