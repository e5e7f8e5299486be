"""``podline up``, ``deploy`` and ``worker``: a Prefect server with the flows, and the worker that runs them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import click

from podline.base.entry_points import reason
from podline.base.errors import SettingsError
from podline.commands import pages
from podline.commands.numbers import Whole
from podline.commands.options import load_settings, say, settings_option, store_options
from podline.settings.machine import prefect_home

# By name, since the library must not import packages above it.
_UP, _DEPLOY = "podline.deployments.up", "podline.deployments.deploy"
_WORKER = "podline.deployments.worker"
_PROJECT_FILE = "podline.deployments.project_file"

_project_option = click.option(
    "--project",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder with prefect.yaml, which is Podline's checkout.  [default: this folder if it has one, else the "
    "installed one]",
)


@click.command("up", cls=pages.Command)
@store_options
@click.option("--host", default="127.0.0.1", show_default=True, help="The address that the server listens at.")
@click.option(
    "--port",
    type=Whole(1, 65534),
    default=4200,
    show_default=True,
    help="The port of the server; the pages use the next port.",
)
@_project_option
def up(host: str, port: int, project: Path | None, **options: Any) -> None:
    """Run a Prefect server, a worker and all deployments on this machine, until Ctrl-C.

    Open the address in a browser: Deployments, sample-manual, Run. Its form is filled in for the drawn sample, which
    needs no data. Changes that a person makes in the browser survive a restart of this command.

      podline up
      podline up --root /data/podline --port 4300

    Ctrl-C, SIGTERM and closing the terminal end everything. A training in progress first saves a checkpoint, and
    resumes when `podline up` runs again. To keep it running after a log-out or a reboot, use the systemd units or the
    composition in deployments/; see docs/how-to/services.md.

    The next port serves the pages of the store (reports, all nights) read-only; a run's artifacts link to them.

    The browser asks for a secret, and for another one for the pages (user: podline; password: the part after the
    colon). Both are in files under the root, mode 600. Podline's own commands on this machine find the first one
    there; for `prefect`, set PREFECT_API_AUTH_STRING to it.

    All files are under the root. Prefect's variables apply: PREFECT_API_DATABASE_CONNECTION_URL for a database other
    than SQLite, PREFECT_SERVER_API_AUTH_STRING for a secret of your own, which is not stored: set it each time, as
    PODLINE_PAGES_SECRET for that of the pages.
    """
    machine = load_settings(options)
    place = _loaded(_UP).UpFolder(machine)
    place.up(host, port, _chosen(project), _say, machine.server_timeout)


@click.command("deploy", cls=pages.Command)
@_project_option
@click.option("--overwrite", is_flag=True, help="Set everything on the server as in prefect.yaml.")
@settings_option
def deploy(project: Path | None, overwrite: bool, **options: Any) -> None:
    """Create pools, limits, automations and deployments on the server in PREFECT_API_URL.

    Each line says whether an item was created, changed or left as it was; a second call changes nothing. Of an existing
    deployment only code, form and pull steps are renewed; everything that a person can set on the server stays, unless
    --overwrite is given. The setting nights.notify names the blocks that get notifications of failures.

      PREFECT_API_URL=http://127.0.0.1:4200/api podline deploy
      PREFECT_API_URL=http://127.0.0.1:4200/api PODLINE_NIGHTS_NOTIFY=slack-webhook/team podline deploy

    For a server with a secret, set PREFECT_API_AUTH_STRING. The command finds the secret of `podline up` itself if that
    runs on this machine with the same root (the setting root).

    Next: `podline worker`, on each machine that executes runs.
    """
    _loaded(_UP).use_secret(load_settings(options))
    chosen = _chosen(project)
    # After the secret: Prefect reads its environment when it is imported.
    for change in _loaded(_DEPLOY).deployed(chosen.resolve(), overwrite=overwrite):
        _say(str(change))


@click.command("worker", cls=pages.Command)
@click.option("--pool", default="cpu", show_default=True, help="The work pool whose runs it executes.")
@click.option("--name", default="", help="Its name in the UI.  [default: podline on HOST]")
@click.option("--until-input-ends", is_flag=True, hidden=True)
@settings_option
def worker(pool: str, name: str, until_input_ends: bool, **options: Any) -> None:
    """Execute runs of the server in PREFECT_API_URL on this machine, until Ctrl-C or SIGTERM.

      PREFECT_API_URL=http://127.0.0.1:4200/api podline worker
      PREFECT_API_URL=http://127.0.0.1:4200/api podline worker --pool gpu

    It is Prefect's own worker with another end: its runs save their work and go back into the queue, while `prefect
    worker start` kills them. It finds a server's secret like `podline deploy`.
    """
    _loaded(_UP).use_secret(load_settings(options))
    _loaded(_WORKER).work(pool, name, until_input_ends=until_input_ends)


def _loaded(module: str) -> Any:
    """Import a module that imports Prefect.

    Raises:
        SettingsError: Prefect refuses the user's settings for it.
    """
    try:
        return importlib.import_module(module)
    except ValueError as error:  # also what pydantic and tomllib raise
        profiles = prefect_home() / "profiles.toml"
        raise SettingsError(f"Prefect refuses its settings, from {profiles} or PREFECT_…: {reason(error)}") from error


def _chosen(project: Path | None) -> Path:
    """Return the folder with ``prefect.yaml``; print it, unless an option names it or it is the current folder."""
    if project:
        return project
    project_file = importlib.import_module(_PROJECT_FILE)
    chosen = project_file.default_folder()
    if chosen != Path.cwd():
        _say(f"deployments        of {chosen / project_file.NAME}")
    return chosen


def _say(line: str) -> None:
    say([line])
