"""``podline runs explain``: why a run is worse than another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from podline.commands import pages
from podline.commands.options import complete_run, existing_store, json_option, say, say_json, store_options
from podline.errors import SettingsError
from podline.store.contract import explained


@click.command("explain", cls=pages.Command)
@click.argument("run", metavar="RUN", shell_complete=complete_run)
@click.option(
    "--against",
    metavar="RUN",
    shell_complete=complete_run,
    help="The other one.  [default: the champion that it was judged against]",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="A PNG: pictures of what was right before and is wrong now."
)
@store_options
@json_option
def explain_run(run: str, against: str | None, out: Path | None, as_json: bool, **options: Any) -> None:
    """Why a run is worse than another: examples lost, classes or joints that fell, settings, data, curves.

      podline runs explain sample-0123456789ab --root podline-root --out lost.png
      podline runs explain sample-0123456789ab --against sample-ba9876543210

    Both must have been judged on the same examples.
    """
    from podline.reporting.drop import explain, rival_of  # noqa: PLC0415 (matplotlib: nothing that --help waits for)

    store = existing_store(options)
    rival = against or rival_of(store, run)
    if not rival:
        raise SettingsError(f"{run} was never held against a champion; give --against RUN")
    found = explain(store, run, rival)
    if out is not None and found.pictures:
        with explained("write", out):
            out.parent.mkdir(parents=True, exist_ok=True)
            found.picture_sheet().savefig(out, format="png")
    if as_json:
        say_json(found.drop.model_dump(mode="json"))
    else:
        unwritten = [f"nothing was lost: {out} is not written"] if out is not None and not found.pictures else []
        say([*found.drop.lines(), *unwritten])
