"""``podline up``, ``deploy`` and ``worker``: a Prefect server with the flows, and the worker that runs them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import click

from podline.commands import pages
from podline.commands.options import load_settings, say, settings_option, store_options

# By name, since the library does not import what is above it.
_UP, _DEPLOY = "podline.deployments.up", "podline.deployments.deploy"
_WORKER = "podline.deployments.worker"
_PROJECT_FILE = "podline.deployments.project_file"

_project_option = click.option(
    "--project",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder with prefect.yaml: Podline's checkout.  [default: this folder if it is one, or else what is "
    "installed]",
)


@click.command("up", cls=pages.Command)
@store_options
@click.option("--host", default="127.0.0.1", show_default=True, help="The address that the server listens at.")
@click.option(
    "--port",
    type=click.IntRange(1, 65534),
    default=4200,
    show_default=True,
    help="The port that it listens at; the pages are at the next one.",
)
@_project_option
def up(host: str, port: int, project: Path | None, **options: Any) -> None:
    """Run a Prefect server, a worker and all deployments on this machine, until Ctrl-C.

    Open the address in a browser: Deployments, cifar-manual, Run. Its form is filled in for the drawn sample, which
    needs no data. What a person set in the browser stays when the same is started again.

      podline up
      podline up --root /data/podline --port 4300

    Ctrl-C, SIGTERM and the end of the terminal end all of it. A training in progress saves a checkpoint first, and goes
    on from it by itself when `podline up` runs again. To keep it running after a log-out or a reboot, use the systemd
    units or the composition in deployments/; see docs/how-to/services.md.

    The pages of the store (reports, all nights) are served at the next port, read only; a run's artifacts link to them.

    The browser asks for a secret, once for the UI and once for the pages (user: podline; password: what is after the
    colon). It is shown when it is made, and kept in a file under the root, mode 600. Podline's own commands on this
    machine find it there; for `prefect`, set PREFECT_API_AUTH_STRING to it.

    Everything lies under the root. Variables for Prefect count: PREFECT_API_DATABASE_CONNECTION_URL for a database that
    is not SQLite, PREFECT_SERVER_API_AUTH_STRING for a secret of your own, which is not kept: give it each time.
    """
    machine = load_settings(options)
    place = importlib.import_module(_UP).Place(machine)
    place.up(host, port, _chosen(project), _say, machine.server_timeout)


@click.command("deploy", cls=pages.Command)
@_project_option
@click.option("--overwrite", is_flag=True, help="Replace what a person set on the server by what prefect.yaml says.")
@settings_option
def deploy(project: Path | None, overwrite: bool, **options: Any) -> None:
    """Make pools, limits, automations and deployments on the server that PREFECT_API_URL names.

    Each line says what was made, changed, or is as it was; the same again changes nothing. What a person set
    on the server stays, and each such value is shown, unless --overwrite is given. The setting nights.notify names the
    blocks that get notifications of failures.

      PREFECT_API_URL=http://127.0.0.1:4200/api podline deploy
      PREFECT_API_URL=http://127.0.0.1:4200/api PODLINE_NIGHTS_NOTIFY=slack-webhook/team podline deploy

    A server with a secret gets it from PREFECT_API_AUTH_STRING. The secret of `podline up` is found, if that runs for
    the same root (the setting root) on this machine.

    Next: `podline worker`, on each machine that does the runs.
    """
    importlib.import_module(_UP).use_secret(load_settings(options))
    chosen = _chosen(project)
    # After the secret: Prefect reads its environment when it is imported.
    for change in importlib.import_module(_DEPLOY).deployed(chosen.resolve(), overwrite=overwrite):
        _say(str(change))


@click.command("worker", cls=pages.Command)
@click.option("--pool", default="cpu", show_default=True, help="The work pool whose runs it takes up.")
@click.option("--name", default="", help="What the UI calls it.  [default: podline on HOST]")
@click.option("--until-input-ends", is_flag=True, hidden=True)
@settings_option
def worker(pool: str, name: str, until_input_ends: bool, **options: Any) -> None:
    """Do runs of the server that PREFECT_API_URL names on this machine, until Ctrl-C or SIGTERM.

      PREFECT_API_URL=http://127.0.0.1:4200/api podline worker
      PREFECT_API_URL=http://127.0.0.1:4200/api podline worker --pool gpu

    It is Prefect's own worker but for its end: its runs save their work and go back into the queue, while
    `prefect worker start` kills them. A server's secret is found as by `podline deploy`.
    """
    importlib.import_module(_UP).use_secret(load_settings(options))
    importlib.import_module(_WORKER).work(pool, name, until_input_ends=until_input_ends)


def _chosen(project: Path | None) -> Path:
    """Return the folder with ``prefect.yaml``; say which it is, unless an option names it or it is the current one."""
    if project:
        return project
    project_file = importlib.import_module(_PROJECT_FILE)
    chosen = project_file.default_folder()
    if chosen != Path.cwd():
        _say(f"deployments        of {chosen / project_file.NAME}")
    return chosen


def _say(line: str) -> None:
    say([line])
