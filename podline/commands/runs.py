"""``podline runs``: lists, shows, compares and deletes runs, and writes a page about all nights."""

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
from podline.commands.options import (
    Number,
    Whole,
    answer,
    checked_first,
    complete_run,
    deleting_in_store,
    in_order,
    in_store,
    raise_damaged,
    run_argument,
    table_option,
)
from podline.documents.ledger_entry import Entry
from podline.documents.promotion import read_promotion
from podline.ledger.inventory.inventory import delete_runs, holdings, name_of, old_runs, runs_named
from podline.ledger.killed import write_killed
from podline.ledger.ledger import Named, entries, entry_of, foreign, names
from podline.recipes.measures import loaded, measure_named, metric_text
from podline.report.ledger import frame_of, row_of
from podline.stages.specs import SPEC
from podline.store.contract import Store
from podline.store.local_files import appearing

_DAY = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"])
_filter_options = in_order(
    click.option("--recipe", help="Only runs of this recipe."),
    click.option(
        "--data", "dataset", help="Only runs on this data set, given by name or by the start of the fingerprint."
    ),
    click.option("--since", type=_DAY, help="Only runs that ended at this time (UTC) or later."),
    click.option("--until", type=_DAY, help="Only runs that ended before this time (UTC)."),
    click.option("--commit", help="Only runs whose code has a git commit that starts like this."),
    click.option("--state", type=click.Choice(["finished", "failed", "cancelled"]), help="Only runs in this state."),
)


@click.group("runs", cls=pages.Group)
def runs_group() -> None:
    """List, show, compare and delete runs."""


@runs_group.command("list")
@_filter_options
@click.option("--last", type=Whole(1), help="List only this number of newest runs.")
@table_option(
    "--export",
    "Write a table with a row for each run to FILE.csv or FILE.parquet, oldest first; see docs/reference/ledger.md.",
)
@in_store
def list_runs(store: Store, last: int | None, export: Path | None, as_json: bool, **filters: Any) -> None:
    """List every run that finished, failed or was cancelled, newest first.

      podline runs list --root podline-root
      podline runs list --recipe cifar10 --since 2026-11-01 --state failed
      podline runs list --export nights.parquet

    A finished `podline train` has an entry only after `podline evaluate`; `podline store list` shows the run's folder.
    Damaged entries are listed at the end and give exit code 4. `podline runs nights` writes charts. Next: `podline runs
    show RUN`.
    """
    write_killed(store)
    wanted, kept = _asked(store, filters)
    if not any(kept.values()):
        wanted = wanted[:last]  # avoids reading the others
    damaged: list[ArtifactError] = []
    shown = list(itertools.islice(entries(store, wanted, **kept, damaged=damaged.append), last))
    if export is not None:
        _export(export, shown, as_json=as_json)
    elif shown or as_json or not damaged:
        none = [f"{store.uri} has no run that ended and matches the options; start one with `podline run`"]
        answer(list(map(row_of, shown)), lambda: _table(shown) or none, as_json=as_json)
    for name in foreign(store):
        click.echo(
            f"{store.where(name)} is skipped: the file name is not that of a ledger entry; move it away", err=True
        )
    for problem in loaded().problems:
        click.echo(f"{problem}; metrics of this package are shown without units", err=True)
    raise_damaged(damaged)


@runs_group.command("show")
@run_argument
@in_store
def show_run(store: Store, run: str, as_json: bool) -> None:
    """Show a run: state, metrics, settings, times, path of its report.

      podline runs show sample-0123456789ab --root podline-root

    RUN is the name of a run, or the name of a ledger entry, or the start of such a name. For a run, the newest entry is
    shown. --json prints the whole entry with all settings and packages.
    """
    from podline.report.ledger_lines import lines_of  # noqa: PLC0415 (NumPy: nothing that a list should wait for)

    entry = entry_of(store, run)
    answer(entry, lambda: lines_of(store, entry), as_json=as_json)


def _require_comparable(chosen: tuple[str, ...], charts: bool, why: bool, out: Path | None) -> None:
    if charts and why:
        raise SettingsError("got --charts and --why, expected one of the two")
    if out is not None and not why:
        raise SettingsError("got --out without --why, expected both; add --why")
    if len(chosen) < 2 and not why:
        raise SettingsError(
            f"got one run, {' '.join(chosen)}, expected two or more; or add --why to compare it with its reference"
        )
    if len(chosen) > 2 and why:
        raise SettingsError(f"got {len(chosen)} runs, expected one or two with --why")


@runs_group.command("compare")
@click.argument("chosen", metavar="RUN RUN...", shell_complete=complete_run, nargs=-1, required=True)
@click.option("--charts", is_flag=True, help="Only write a page and an SVG with the curves of all runs.")
@click.option(
    "--why",
    is_flag=True,
    help="Explain why the first run is worse than the second; without a second run, worse than its reference.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="With --why: write a PNG file with examples that only the first run predicts wrongly.",
)
@checked_first(_require_comparable)
@in_store
def compare_runs(
    store: Store, chosen: tuple[str, ...], charts: bool, why: bool, out: Path | None, as_json: bool
) -> None:
    """Compare runs: settings, data, code, environment and results, and whether a difference could be noise.

      podline runs compare cifar10-0123456789ab cifar10-ba9876543210 --root podline-root
      podline runs compare cifar10-0123456789ab cifar10-ba9876543210 --charts
      podline runs compare cifar10-0123456789ab --why --out lost.png

    RUN is as for `podline runs show`; all runs are compared with the first run. Each difference has an interval and a
    verdict, which include the noise of the test examples and of the seeds; see docs/explanation/comparison.md.

    --charts writes a page with the curves of all runs in one chart. --why lists examples that only the first run
    predicts wrongly, worse classes or joints, and differences in settings, data and curves. The list of examples needs
    runs with the same test examples.
    """
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
    """Explain why the first run is worse than another; draw the examples that only the first run predicts wrongly."""
    from podline.compare.comparison import compare  # noqa: PLC0415 (NumPy: nothing that --help waits for)
    from podline.compare.known import evaluated  # noqa: PLC0415
    from podline.compare.lost import explain  # noqa: PLC0415

    run, *others = (
        name if store.exists(f"runs/{name}/{SPEC}") else entry_of(store, name).run or name for name in chosen
    )
    decision = None if others else read_promotion(store, f"runs/{run}")
    other = others[0] if others else decision.reference if decision else ""
    if not other:
        raise SettingsError(f"{run} was never compared with a reference; give a second run")
    found = explain(store, compare(store, evaluated(store, other), evaluated(store, run), silent()))
    if out is not None and found.pictures:
        with appearing(out) as temporary:
            found.picture_sheet().savefig(temporary, format="png")
    nothing = f"no example is wrong in the first run only; {out} is not written"
    unwritten = [nothing] if out is not None and not found.pictures else []
    answer(found.why, lambda: [*found.why.lines(), *unwritten], as_json=as_json)


def _require_one_file(metrics: Path | None, out: Path | None) -> None:
    if metrics and out:
        raise SettingsError("got --metrics and --out, expected one of the two")


@runs_group.command("nights")
@click.option(
    "--out", type=click.Path(path_type=Path), help="The file to write.  [default: index.html in the store's root]"
)
@click.option(
    "--metrics",
    type=click.Path(path_type=Path),
    help="Only write this file: the newest night of each schedule as OpenMetrics text, for a scraper.",
)
@checked_first(_require_one_file)
@in_store
def nights(store: Store, out: Path | None, metrics: Path | None, as_json: bool) -> None:
    """Write a page about all nights, with charts.

      podline runs nights --root podline-root
      podline runs nights --root gs://bucket/nights --out nights.html
      podline runs nights --metrics /var/lib/node_exporter/podline.prom

    The page links to the report of each night. Each training flow updates the page when it ends.
    """
    from podline.report.nights_page import page_elsewhere, write_index  # noqa: PLC0415 (not for --help)
    from podline.report.openmetrics import openmetrics  # noqa: PLC0415 (likewise)

    write_killed(store)
    if metrics is not None:
        every = entries(store, reversed(names(store)), damaged=lambda error: click.echo(f"skipped: {error}", err=True))
        with appearing(metrics) as temporary:
            temporary.write_text(openmetrics(every), encoding="utf-8")
        answer({"metrics": str(metrics)}, lambda: [str(metrics)], as_json=as_json)
        return
    if out is None:
        where = store.where(write_index(store))
    else:
        with appearing(out) as temporary:
            temporary.write_text(page_elsewhere(store), encoding="utf-8")
        where = str(out)
    answer({"html": where}, lambda: [where], as_json=as_json)


def _require_choice(chosen: tuple[str, ...], days: float | None, keep: int, recipe: str | None) -> None:
    if bool(chosen) == (days is not None):
        raise SettingsError("got neither runs nor --days, or both; give either the names of runs, or --days")
    if chosen and (keep or recipe):
        raise SettingsError("got --keep or --recipe with names of runs, expected --days; leave the names out")


@runs_group.command("delete")
@click.argument("chosen", metavar="[RUN]...", shell_complete=complete_run, nargs=-1)
@click.option("--days", type=Number(0), help="Delete all runs that were not touched for this number of days.")
@click.option("--keep", type=Whole(0), default=0, help="With --days: keep this number of newest runs of each recipe.")
@click.option("--recipe", help="With --days: only runs of this recipe.")
@click.option("--yes", is_flag=True, help="Delete the runs; without it, they are only listed.")
@checked_first(_require_choice)
@deleting_in_store
def delete(
    store: Store, chosen: tuple[str, ...], days: float | None, keep: int, recipe: str | None, yes: bool, as_json: bool
) -> None:
    """Delete runs with models, checkpoints, logs and reports; without --yes, only list the runs.

      podline runs delete sample-0123456789ab --yes --root podline-root
      podline runs delete --days 90 --keep 10 --yes

    The command keeps champions, earlier champions, and runs from whose weights other runs started. It also keeps runs
    that a process is writing, or using on this machine. The ledger keeps its entries. Next: `podline store prune`
    deletes data sets without runs.
    """
    damaged = list[ArtifactError]()
    found = holdings(store, damaged.append)
    if days is None:
        runs = runs_named(found, store, chosen)
    else:
        runs = old_runs(found, store.now() - 86_400 * days, keep=keep, recipe=recipe)
    gone, kept = delete_runs(store, runs, delete=yes)
    total = f"{plural(len(gone), 'run')}, {size(sum(run.bytes for run in gone))}"
    total += " deleted" if yes else " would be deleted; give --yes to delete"
    lines = [f"{name_of(run)}  {size(run.bytes):>10}  {moment(run.touched)}" for run in gone]
    document = {"deleted": yes, "runs": [name_of(run) for run in gone], "kept": kept}
    answer(document, lambda: [*lines, *kept, total], as_json=as_json)
    raise_damaged(damaged)


def _export(file: Path, found: list[Entry], *, as_json: bool) -> None:
    frame = frame_of(reversed(found))
    with appearing(file) as temporary:
        (frame.to_csv if file.suffix.lower() == ".csv" else frame.to_parquet)(temporary, index=False)
    document = {"file": str(file), "runs": len(frame), "columns": list(frame.columns)}
    shown = f"{plural(len(frame), 'run')}, {plural(len(frame.columns), 'column')}: {file}"
    answer(document, lambda: [shown], as_json=as_json)


def _asked(store: Store, filters: dict[str, Any]) -> tuple[list[Named], dict[str, Any]]:
    """Return the entries whose names match the filters, newest first, and the filters on their content."""
    kept = {name: filters.pop(name) for name in ("dataset", "commit")}
    days = {name: day and day.replace(tzinfo=UTC) for name in ("since", "until") for day in [filters.pop(name)]}
    return names(store, **days, **filters), kept


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
