"""``podline report``: about one run, or with ``--compare`` about several."""

from __future__ import annotations

from typing import Any

import click

from podline.commands import pages, stage
from podline.commands.options import complete_run, existing_store, json_option, say, say_json, store_options
from podline.errors import StoreError
from podline.inventory.catalogue import StoredRun, run_of, runs
from podline.store.contract import Store

_COMPARE = "--compare"


@click.command("report", cls=pages.Command)
@click.argument("names", metavar="RUN...", shell_complete=complete_run, nargs=-1, required=True)
@store_options
@json_option
def compare_runs(names: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Several runs on one page: curves in one chart, final figures, the settings in which they differ.

      podline report --compare mnist-0123456789ab mnist-ba9876543210 --root podline-root

    A RUN is the name that `podline runs list` shows, or its beginning. The page needs no other file; the chart is there
    as a PNG too.
    """
    from podline.reporting.comparison import compare  # noqa: PLC0415 (matplotlib: nothing that --help should wait for)

    store = existing_store(options)
    written = compare(store, [_run(store, name) for name in names])
    paths = {"html": store.where(written.html), "png": store.where(written.png)}
    if as_json:
        say_json(paths)
    else:
        say(list(paths.values()))


class Report(pages.Command):
    """The stage's command, which hands over to the other one where ``--compare`` is given, wherever it stands."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of whichever command is meant."""
        if _COMPARE in args:
            rest = [argument for argument in args if argument != _COMPARE]
            return compare_runs.make_context(f"{info_name} {_COMPARE}", rest, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


report = Report(
    "report",
    params=[
        *stage.report.params,
        click.Option([_COMPARE], is_flag=True, expose_value=False, help="RUN RUN ...: one page about several runs."),
    ],
    callback=stage.report.callback,
    help=stage.report.help,
)


def _run(store: Store, name: str) -> StoredRun:
    """The run of a name, which may be shortened.

    Raises:
        StoreError: there is none, or more than one.
    """
    known = [run.name for run in runs(store)]
    fitting = [run for run in known if run == name] or [run for run in known if run.startswith(name)]
    if len(fitting) != 1:
        raise StoreError(
            f"{store.uri}: {len(fitting)} runs are called {name}…; there are: {', '.join(known) or 'none'}"
        )
    return run_of(store, fitting[0])
