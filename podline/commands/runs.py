"""``podline runs``: lists, shows and compares the runs in a store's ledger, and writes the page of all nights."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from podline.base.errors import ArtifactError, SettingsError
from podline.base.figures import moment, size
from podline.base.plurals import plural
from podline.base.progress import silent
from podline.commands import pages
from podline.commands.numbers import Number, Whole
from podline.commands.options import (
    answer,
    complete_run,
    existing_store,
    in_order,
    json_option,
    raise_damaged,
    run_argument,
    store_options,
    table_option,
)
from podline.documents.ledger_entry import Entry
from podline.documents.promotion import read_promotion
from podline.ledger.inventory.inventory import holdings
from podline.ledger.inventory.old_runs import delete_runs, name_of, old_runs, runs_named
from podline.ledger.killed import write_killed
from podline.ledger.ledger import Named, entries, entry_of, foreign, names
from podline.recipes.measures import loaded, measure_named, metric_text
from podline.report.ledger import frame_of, row_of
from podline.store.contract import Store
from podline.store.local_files import appearing

_DAY = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"])
_filter_options = in_order(
    click.option("--recipe", help="Only runs of this recipe."),
    click.option("--data", "dataset", help="Only runs on this data set: its name, or the start of its fingerprint."),
    click.option("--since", type=_DAY, help="Only runs that ended on this day or later, in UTC."),
    click.option("--until", type=_DAY, help="Only runs that ended before this day."),
    click.option("--commit", help="Only runs of the code with this start of a commit."),
    click.option("--state", type=click.Choice(["finished", "failed", "cancelled"]), help="Only runs in this state."),
)


@click.group("runs", cls=pages.Group)
def runs_group() -> None:
    """List, show and compare runs: settings, results, differences; from the store's ledger."""


@runs_group.command("list")
@_filter_options
@click.option("--last", type=Whole(1), help="Only this number of newest runs.")
@table_option(
    "--export",
    "Write a table to FILE.csv or FILE.parquet, a row for each run, oldest first; see docs/reference/ledger.md.",
)
@store_options
@json_option
def list_runs(as_json: bool, last: int | None, export: Path | None, **options: Any) -> None:
    """List every run that finished, failed or was cancelled, newest first.

      podline runs list --root podline-root
      podline runs list --recipe cifar10 --since 2026-11-01 --state failed
      podline runs list --export nights.parquet

    Runs that are trained but not evaluated are not in the ledger; `podline store list` shows their folders. Damaged
    entries are listed at the end, with exit code 4. `podline runs nights` writes charts. Next: `podline runs show RUN`.
    """
    store, wanted, kept = _asked(options)
    if not any(kept.values()):
        wanted = wanted[:last]  # avoids reading the others
    damaged: list[ArtifactError] = []
    shown = list(itertools.islice(entries(store, wanted, **kept, damaged=damaged.append), last))
    if export is not None:
        _export(export, shown, as_json=as_json)
    elif shown or as_json or not damaged:
        none = [f"{store.uri}: no such run has ended; `podline run` makes one"]
        answer(list(map(row_of, shown)), lambda: _table(shown) or none, as_json=as_json)
    for name in foreign(store):
        click.echo(f"{store.where(name)} is left out: its name is not that of a ledger entry; move it away", err=True)
    for problem in loaded().problems:
        click.echo(f"{problem}; its figures are shown by their names", err=True)
    raise_damaged(damaged)


@runs_group.command("show")
@run_argument
@store_options
@json_option
def show_run(run: str, as_json: bool, **options: Any) -> None:
    """Show a run: state, figures, settings, times, address of its report.

      podline runs show sample-0123456789ab --root podline-root

    RUN is the name of a run, whose newest entry is shown, or of an entry; or the start of either. With --json it prints
    the whole entry: every setting and every package.
    """
    from podline.report.ledger_lines import lines_of  # noqa: PLC0415 (NumPy: nothing that a list should wait for)

    store = existing_store(options)
    entry = entry_of(store, run)
    answer(entry, lambda: lines_of(store, entry), as_json=as_json)


@runs_group.command("compare")
@click.argument("chosen", metavar="RUN RUN...", shell_complete=complete_run, nargs=-1, required=True)
@click.option("--charts", is_flag=True, help="Write a page and an SVG with the curves of all runs instead.")
@click.option(
    "--why",
    is_flag=True,
    help="Explain why the first is worse than the second, or than its reference if it is alone.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="With --why, the PNG file for examples that only the first got wrong.",
)
@store_options
@json_option
def compare_runs(
    chosen: tuple[str, ...], charts: bool, why: bool, out: Path | None, as_json: bool, **options: Any
) -> None:
    """Compare runs: differences in settings, data, code and environment; results, and whether they are noise.

      podline runs compare cifar10-0123456789ab cifar10-ba9876543210 --root podline-root
      podline runs compare cifar10-0123456789ab cifar10-ba9876543210 --charts
      podline runs compare cifar10-0123456789ab --why --out lost.png

    RUN is as for `podline runs show`; all runs are compared with the first. A difference has an interval from test
    examples and seeds, and a phrase for what explains it; see docs/explanation/comparison.md.

    --charts writes a page with the curves in one chart. --why lists lost examples, worse classes or joints, and
    differences in settings, data and curves; lost examples need runs on the same test examples.
    """
    if charts and why:
        raise SettingsError("--charts and --why: give one of them")
    if out is not None and not why:
        raise SettingsError("--out needs --why")
    if len(chosen) < 2 and not why:
        raise SettingsError(f"{' '.join(chosen)}: give two runs or more; --why alone compares one with its reference")
    store = existing_store(options)
    if why:
        _explain(store, chosen, out, as_json=as_json)
        return
    entries = [entry_of(store, name) for name in chosen]
    if charts:
        from podline.report.comparison_page import write  # noqa: PLC0415 (matplotlib: nothing that --help waits for)

        paths = {form: store.where(name) for form, name in write(store, entries)._asdict().items()}
        answer(paths, lambda: list(paths.values()), as_json=as_json)
    else:
        from podline.compare.runs import compare_runs as compared  # noqa: PLC0415 (NumPy, as above)
        from podline.compare.runs import lines  # noqa: PLC0415

        comparison = compared(store, entries)
        answer(comparison, lambda: lines(comparison), as_json=as_json)


def _explain(store: Store, chosen: tuple[str, ...], out: Path | None, *, as_json: bool) -> None:
    """Explain why a run is worse than another, and draw the examples that it alone gets wrong."""
    from podline.compare.comparison import compare  # noqa: PLC0415 (NumPy: nothing that --help waits for)
    from podline.compare.known import evaluated  # noqa: PLC0415
    from podline.compare.lost import explain  # noqa: PLC0415

    run, *others = chosen
    if len(others) > 1:
        raise SettingsError(f"--why compares two runs, got {len(chosen)}")
    decision = None if others else read_promotion(store, f"runs/{run}")
    other = others[0] if others else decision.reference if decision else ""
    if not other:
        raise SettingsError(f"{run} was not compared with a reference; give a second run to compare it with")
    found = explain(store, compare(store, evaluated(store, other), evaluated(store, run), silent()))
    if out is not None and found.pictures:
        with appearing(out) as temporary:
            found.picture_sheet().savefig(temporary, format="png")
    unwritten = [f"nothing was lost: {out} is not written"] if out is not None and not found.pictures else []
    answer(found.why, lambda: [*found.why.lines(), *unwritten], as_json=as_json)


@runs_group.command("nights")
@click.option(
    "--out", type=click.Path(path_type=Path), help="A file on this machine.  [default: index.html in the store's root]"
)
@click.option(
    "--metrics",
    type=click.Path(path_type=Path),
    help="Write only the newest night of each schedule to this file, as OpenMetrics text for a scraper.",
)
@store_options
@json_option
def nights(out: Path | None, metrics: Path | None, as_json: bool, **options: Any) -> None:
    """Write one page about all nights, with charts.

      podline runs nights --root podline-root
      podline runs nights --root gs://bucket/nights --out nights.html
      podline runs nights --metrics /var/lib/node_exporter/podline.prom

    The page links to each night's report. A training flow updates the page at its end.
    """
    from podline.report.nights_page import page_elsewhere, write_index  # noqa: PLC0415 (not for --help)
    from podline.report.openmetrics import openmetrics  # noqa: PLC0415 (likewise)

    store = existing_store(options)
    write_killed(store)
    if metrics is not None:
        every = entries(store, reversed(names(store)), damaged=lambda error: click.echo(f"left out: {error}", err=True))
        with appearing(metrics) as temporary:
            temporary.write_text(openmetrics(every))
        answer({"metrics": str(metrics)}, lambda: [str(metrics)], as_json=as_json)
        return
    if out is None:
        where = store.where(write_index(store))
    else:
        with appearing(out) as temporary:
            temporary.write_text(page_elsewhere(store))
        where = str(out)
    answer({"html": where}, lambda: [where], as_json=as_json)


@runs_group.command("delete")
@click.argument("chosen", metavar="[RUN]...", shell_complete=complete_run, nargs=-1)
@click.option("--days", type=Number(0), help="All runs that were last touched more than this number of days ago.")
@click.option("--keep", type=Whole(0), default=0, help="With --days: keep this number of newest runs of each recipe.")
@click.option("--recipe", help="With --days: only runs of this recipe.")
@click.option("--yes", is_flag=True, help="Delete the runs; without it, they are only listed.")
@store_options
@json_option
def delete(
    chosen: tuple[str, ...], days: float | None, keep: int, recipe: str | None, yes: bool, as_json: bool, **options: Any
) -> None:
    """Delete runs: models, checkpoints, logs and reports; without --yes, list what would be deleted.

      podline runs delete sample-0123456789ab --yes --root podline-root
      podline runs delete --days 90 --keep 10 --yes

    Champions, earlier champions, and runs that others were trained from stay, as do runs that a process writes, or uses
    on this machine. The ledger keeps its entries. Next: `podline store prune` deletes data sets without runs.
    """
    if bool(chosen) == (days is not None):
        raise SettingsError("got no run and no --days, or both; give the names of runs, or --days")
    store, damaged = existing_store(options, deletes=True), list[ArtifactError]()
    found = holdings(store, damaged.append)
    if days is None:
        runs = runs_named(found, store, chosen)
    else:
        runs = old_runs(found, store.now() - 86_400 * days, keep=keep, recipe=recipe)
    result = delete_runs(store, runs, lambda _: None, delete=yes)
    total = f"{plural(len(result.gone), 'run')}, {size(sum(run.bytes for run in result.gone))}"
    total += ", deleted" if yes else ", would be deleted; give --yes to do it"
    lines = [f"{name_of(run)}  {size(run.bytes):>10}  {moment(run.touched)}" for run in result.gone]
    document = {"deleted": yes, "runs": [name_of(run) for run in result.gone], "kept": list(result.kept)}
    answer(document, lambda: [*lines, *result.kept, total], as_json=as_json)
    raise_damaged(damaged)


def _export(file: Path, found: list[Entry], *, as_json: bool) -> None:
    """Write the ledger as one table, for a spreadsheet or a notebook."""
    frame = frame_of(reversed(found))
    with appearing(file) as temporary:
        (frame.to_csv if file.suffix.lower() == ".csv" else frame.to_parquet)(temporary, index=False)
    document = {"file": str(file), "runs": len(frame), "columns": list(frame.columns)}
    shown = f"{plural(len(frame), 'run')}, {plural(len(frame.columns), 'column')}: {file}"
    answer(document, lambda: [shown], as_json=as_json)


def _asked(options: dict[str, Any]) -> tuple[Store, list[Named], dict[str, Any]]:
    """Return the store, the entries that match by name, newest first, and the filters on their content."""
    store = existing_store(options)
    write_killed(store)
    kept = {name: options.pop(name) for name in ("dataset", "commit")}
    days = {name: day and day.replace(tzinfo=UTC) for name in ("since", "until") for day in [options.pop(name)]}
    return store, names(store, **days, **options), kept


def _table(shown: list[Entry]) -> list[str]:
    width = max((len(entry.recipe) for entry in shown), default=0)
    return [_line(entry, width) for entry in shown]


def _line(entry: Entry, width: int) -> str:
    ended = datetime.fromtimestamp(entry.ended, UTC)
    figure = entry.cause
    if entry.outcome is not None and not figure:
        measure = entry.outcome.measure
        figure = f"{measure_named(measure).label} {metric_text(measure, entry.outcome.main)}"
    if len(figure) > 40:
        figure = f"{figure[:39]}…"
    when, name = f"{ended:%Y-%m-%d %H:%M} UTC", entry.run or entry.name
    return f"{when}  {entry.recipe:{width}}  {entry.state:10}  {figure:40}  {name}"
