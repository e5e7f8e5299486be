"""``podline up``, ``podline down``, ``podline deploy``: a Prefect server that knows the flows, here or anywhere."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import click

from podline.commands import pages
from podline.commands.options import in_order, load_settings, say, settings_option, store_options

# By name, since the library does not import what is above it.
_STANDING, _DEPLOYING = "podline.deployments.up", "podline.deployments.deployment_process"
_PROJECT_FILE = "podline.deployments.project_file"

_project_option = click.option(
    "--project",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder with prefect.yaml: Podline's checkout.  [default: this folder if it is one, or else what is "
    "installed]",
)
_deploy_options = in_order(
    click.option(
        "--overwrite/--keep",
        default=False,
        help="What a person set on the server is replaced by what prefect.yaml says, or stays.  [default: keep]",
    ),
    click.option(
        "--forget",
        metavar="TYPE/NAME",
        multiple=True,
        help="A block that is no longer told of failures; may be given several times.",
    ),
)
_address_options = in_order(
    click.option("--host", default="127.0.0.1", show_default=True, help="The address that the server listens at."),
    click.option("--port", type=click.IntRange(1, 65535), default=4200, show_default=True, help="Likewise."),
)


@click.command("up", cls=pages.Command)
@store_options
@_address_options
@_project_option
@_deploy_options
def up(host: str, port: int, project: Path | None, overwrite: bool, forget: tuple[str, ...], **options: Any) -> None:
    """A Prefect server, a worker and all deployments on this machine; they stay until `podline down`.

    Open the address in a browser: Deployments, cifar-manual, Run. Its form is filled in for the drawn sample, which
    needs no data. What runs already is left alone, what is missing is started, what changed is deployed again. What a
    person set in the browser stays, and is told, unless --overwrite is given.

      podline up
      podline up --root /data/podline --port 4300

    The same server serves the pages of stores, read only: a run's artifacts link to them.

    The browser asks for a secret, once for the UI and once for the pages (user: podline; password: what is after the
    colon): it is told when it is made, and kept in a file under the root, mode 600.
    Podline's own commands on this machine find it there; for `prefect`, set PREFECT_API_AUTH_STRING to it.

    Everything lies under the root. Variables for Prefect count: PREFECT_API_DATABASE_CONNECTION_URL for a database that
    is not SQLite, PREFECT_SERVER_API_AUTH_STRING for a secret of your own, which is not kept: give it each time.
    """
    place = importlib.import_module(_STANDING).Place(load_settings(options))
    standing = place.up(host, port, _chosen(project), _say, overwrite=overwrite, forget=forget)
    say(
        [f"open               {standing.ui_url}", f"logs               {place.logs}", "to stop            podline down"]
    )


@click.command("down", cls=pages.Command)
@store_options
def down(**options: Any) -> None:
    """Stops what `podline up` started for the same root, and nothing else.

    A training in progress saves a checkpoint first, and goes on from it by itself when all is up again.

      podline down
    """
    stopped = importlib.import_module(_STANDING).Place(load_settings(options)).down(_say)
    say(["stopped" if stopped else "nothing of it runs"])


@click.command("deploy", cls=pages.Command)
@_project_option
@_deploy_options
@settings_option
def deploy(project: Path | None, overwrite: bool, forget: tuple[str, ...], **options: Any) -> None:
    """Work pools, the TPU's limit, automations and deployments, on the server that PREFECT_API_URL names.

    Says of each whether it was made, changed, removed, or is as it was; the same again changes nothing. What a person
    set on the server stays, and is told value by value, unless --overwrite is given. Who is told of failures is the
    setting nights.notify, and stays until it is taken away with --forget.

      PREFECT_API_URL=http://127.0.0.1:4200/api podline deploy
      PREFECT_API_URL=http://127.0.0.1:4200/api PODLINE_NIGHTS_NOTIFY=slack-webhook/team podline deploy

    A server with a secret is asked with PREFECT_API_AUTH_STRING. That of `podline up` is found, if it is up for the
    same root (the setting root) on this machine.

    Next: a worker, `python -m podline.deployments.worker --pool cpu`.
    """
    importlib.import_module(_STANDING).use_secret(load_settings(options))
    deploying = importlib.import_module(_DEPLOYING)
    for change in deploying.deployed(_chosen(project), overwrite=overwrite, forget=forget):
        _say(deploying.line_of(change))


def _chosen(project: Path | None) -> Path:
    """The folder with ``prefect.yaml``; says which it is where nobody named it and it is not the current one."""
    if project:
        return project
    project_file = importlib.import_module(_PROJECT_FILE)
    chosen = project_file.default_folder()
    if chosen != Path.cwd():
        _say(f"deployments        of {chosen / project_file.NAME}")
    return chosen


def _say(line: str) -> None:
    say([line])
