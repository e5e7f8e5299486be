"""``podline up``, ``deploy`` and ``worker``: run a Prefect server, register the flows, and execute flow runs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import click

from podline.base.entry_points import reason
from podline.base.errors import SettingsError
from podline.commands import pages
from podline.commands.options import Whole, load_settings, say, settings_option, store_options
from podline.settings.environment import prefect_home

# Names, imported when needed, because the library must not import packages of a higher layer.
_UP, _DEPLOY = "podline.deployments.up", "podline.deployments.deploy"
_WORKER = "podline.deployments.worker"
_PROJECT_FILE = "podline.deployments.project_file"

_project_option = click.option(
    "--project",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder with prefect.yaml.  [default: this folder if it has Podline's file, else that of the package]",
)


@click.command("up", cls=pages.Command)
@store_options
@click.option("--host", default="127.0.0.1", show_default=True, help="The address of the server and the pages.")
@click.option(
    "--port",
    type=Whole(1, 65534),
    default=4200,
    show_default=True,
    help="The port of the server; the next port serves the pages.",
)
@_project_option
def up(host: str, port: int, project: Path | None, **options: Any) -> None:
    """Run a Prefect server, a worker and all deployments on this machine, until Ctrl-C.

    Open the address in a browser: Deployments, sample-manual, Run. The form is filled in for the synthetic data set
    sample, which needs no source. Changes that a person makes in the browser survive a restart of this command.

      podline up
      podline up --root /data/podline --port 4300

    Ctrl-C, SIGTERM and closing the terminal end everything. A training in progress first saves a checkpoint, and
    resumes when `podline up` runs again. To keep the server running after a log-out or a reboot, use the systemd units
    or the Docker composition in deployments/; see docs/how-to/services.md.

    The next port serves the pages of the store (reports, all nights) read-only; a run's artifacts link to these pages.

    The browser asks for a secret, and for a second secret for the pages (user: podline; password: the text after the
    colon). Both secrets are in files under the root, mode 600. Podline's commands on this machine read the server's
    secret from its file; for `prefect`, set PREFECT_API_AUTH_STRING to the server's secret.

    All files are under the root. Prefect's variables apply: PREFECT_API_DATABASE_CONNECTION_URL for a database other
    than SQLite, PREFECT_SERVER_API_AUTH_STRING for a secret of your own. PODLINE_PAGES_SECRET is your own secret for
    the pages. Your own secrets are not stored; set them at each start.
    """
    machine = load_settings(options)
    place = _loaded(_UP).UpFolder(machine)
    place.up(host, port, _chosen(project), _say, machine.server_timeout)


@click.command("deploy", cls=pages.Command)
@_project_option
@click.option("--overwrite", is_flag=True, help="Replace all settings on the server by those of prefect.yaml.")
@settings_option
def deploy(project: Path | None, overwrite: bool, **options: Any) -> None:
    """Create pools, limits, automations and deployments on the server in PREFECT_API_URL.

    Each line reports an item as created, changed or unchanged; a second call changes nothing. For an existing
    deployment the command renews only code, form and pull steps. It keeps everything that a person can set on the
    server, unless --overwrite is given. The setting nights.notify lists Prefect blocks that notify about failures.

      PREFECT_API_URL=http://127.0.0.1:4200/api podline deploy
      PREFECT_API_URL=http://127.0.0.1:4200/api PODLINE_NIGHTS_NOTIFY=slack-webhook/team podline deploy

    For a server with a secret, set PREFECT_API_AUTH_STRING. If `podline up` runs on this machine with the same root,
    the command finds the secret itself.

    Next: `podline worker`, on each machine that executes runs.
    """
    _loaded(_UP).use_secret(load_settings(options))
    chosen = _chosen(project)
    # After the secret: Prefect reads its environment when it is imported.
    for change in _loaded(_DEPLOY).deployed(chosen.resolve(), overwrite=overwrite):
        _say(str(change))


@click.command("worker", cls=pages.Command)
@click.option("--pool", default="cpu", show_default=True, help="The work pool whose runs the worker executes.")
@click.option("--name", default="", help="The worker's name in the UI.  [default: podline on HOST]")
@click.option("--until-input-ends", is_flag=True, hidden=True)
@settings_option
def worker(pool: str, name: str, until_input_ends: bool, **options: Any) -> None:
    """Execute flow runs of the server in PREFECT_API_URL on this machine, until Ctrl-C or SIGTERM.

      PREFECT_API_URL=http://127.0.0.1:4200/api podline worker
      PREFECT_API_URL=http://127.0.0.1:4200/api podline worker --pool gpu

    This is Prefect's worker, except when it is stopped: flow runs save their work and return to the queue, while
    `prefect worker start` kills them. The worker finds the server's secret as `podline deploy` does.
    """
    _loaded(_UP).use_secret(load_settings(options))
    _loaded(_WORKER).work(pool, name, until_input_ends=until_input_ends)


def _loaded(module: str) -> Any:
    """Import a module that imports Prefect.

    Raises:
        SettingsError: the user's settings of Prefect are invalid.
    """
    try:
        return importlib.import_module(module)
    except ValueError as error:  # pydantic's and tomllib's errors are ValueErrors
        profiles = prefect_home() / "profiles.toml"
        raise SettingsError(
            f"Prefect refuses a setting in {profiles} or in a variable PREFECT_…: {reason(error)}; correct the setting"
        ) from error


def _chosen(project: Path | None) -> Path:
    """Return the folder with ``prefect.yaml``; print a default folder that is not the current folder."""
    if project:
        return project
    project_file = importlib.import_module(_PROJECT_FILE)
    chosen = project_file.default_folder()
    if chosen != Path.cwd():
        _say(f"deployments        from {chosen / project_file.NAME}")
    return chosen


def _say(line: str) -> None:
    say([line])
