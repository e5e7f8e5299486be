"""The command line: a table of commands, each imported when it is called, and what becomes of errors.

Nothing here imports more than click, so that ``podline --help`` is instant.
"""

from __future__ import annotations

import json
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import click

from podline import entry_points
from podline.commands import pages
from podline.plain import plain


class ListedCommand(NamedTuple):
    """A command in the table: where it is, and what it says of itself in one line."""

    at: str
    help: str


SECTIONS: dict[str, dict[str, ListedCommand]] = {
    "The whole chain": {
        "run": ListedCommand(
            "podline.commands.run:run", "From raw archive to report, as a Prefect flow on this machine."
        ),
    },
    "One stage at a time, in this order": {
        "convert": ListedCommand("podline.commands.stage:convert", "Raw archives become sharded TFRecords."),
        "validate": ListedCommand("podline.commands.stage:validate", "Every byte of a data set against its manifest."),
        "train": ListedCommand(
            "podline.commands.stage:train", "A recipe is trained; goes on from its last checkpoint."
        ),
        "evaluate": ListedCommand("podline.commands.stage:evaluate", "A trained model is judged, every example once."),
        "report": ListedCommand("podline.commands.comparison:report", "One HTML page about a run, or about several."),
        "stage": ListedCommand("podline.commands.stage:stage_command", "A stage of an installed package, for a run."),
    },
    "To look before and after": {
        "show": ListedCommand("podline.commands.show:show", "Pictures of what a model is fed, and of its mistakes."),
        "predict": ListedCommand(
            "podline.commands.predict:predict", "Any pictures: skeletons drawn on them, or classes named."
        ),
        "score": ListedCommand(
            "podline.commands.score:score", "COCO keypoint results, anybody's, judged by pycocotools."
        ),
        "lr-find": ListedCommand("podline.commands.lr_find:lr_find", "Which learning rate to train a recipe with."),
    },
    "What there is": {
        "data": ListedCommand("podline.commands.data:data", "Data sets: list, show, verify, count, download."),
        "model": ListedCommand("podline.commands.model:model", "Models: layers, parameters, bytes, operations."),
        "models": ListedCommand(
            "podline.commands.models:models_group", "Champions: list, promote, rollback, history, serve."
        ),
        "runs": ListedCommand(
            "podline.commands.runs:runs_group", "Runs that ended: list, show, compare, explain, index."
        ),
        "store": ListedCommand(
            "podline.commands.store:store_group", "The store, a folder or a bucket: list, verify, prune."
        ),
    },
    "Nights, from Prefect's UI": {
        "up": ListedCommand(
            "podline.commands.operate:up", "Run a Prefect server, a worker and all deployments here, until Ctrl-C."
        ),
        "deploy": ListedCommand(
            "podline.commands.operate:deploy", "Make pools, limits, automations, deployments on any server."
        ),
    },
    "What it runs on": {
        "engine": ListedCommand("podline.commands.engine:engine_group", "Engines for conversions: check one."),
        "tpu": ListedCommand("podline.commands.tpu:tpu", "TPUs: the policy, a TPU at a glance, recovery by hand."),
    },
    "To try things out": {
        "init": ListedCommand("podline.commands.init:init", "A project: recipe, model, prefect.yaml, test, README."),
        "sample": ListedCommand("podline.commands.sample:sample", "Draws a data set, CIFAR-10's layout or COCO's."),
        "benchmark": ListedCommand(
            "podline.commands.benchmark:benchmark", "Our way beside the plain way, measured here."
        ),
    },
}

HELP = """Image archives become TFRecords, a trained TensorFlow model and a report, every night.

Start with `podline run sample`: it draws a small data set, converts, checks and trains on it, and ends with a report,
with no network and no accelerator. Then point it at data of your own:

  podline run cifar10 --source cifar-10-batches-py --root podline-root

Whatever was done and is still whole is found and used again; whatever breaks off goes on where it was when the same
command is given again.
"""

EXIT_CODES = """\b
Exit codes:
    0  done                              7  a result that is no better than guessing
    1  a bug, or an unforeseen error     8  credentials for Google Cloud
    2  an option, setting or spec        9  a quota of Google Cloud
    3  the raw data                     10  a TPU that is not set up
    4  a damaged artifact               11  a promotion that a rule refuses
    5  the store: access, space         12  a promotion that is not decided
    6  the loss is no finite number     13  an engine of conversions that is not set up
                                        75  try again later: killed, hung, timed out, away
                                       130  interrupted (Ctrl-C)
                                       143  asked to end (SIGTERM)

Settings (time-outs, workers, the default --root) come from `--settings FILE`, a TOML file, or from PODLINE_...
variables; see docs/settings.md. An error is one line on standard error; --debug adds the traceback.
"""


class CommandTable(pages.Group):
    """A group whose commands are imported when they are called, not when they are listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """All names, in the table's order."""
        return [name for section in SECTIONS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of a name."""
        for section in SECTIONS.values():
            if cmd_name in section:
                return entry_points.load(section[cmd_name].at)
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Writes the table into the help page."""
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.help) for name, entry in section.items()], col_max=12)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Writes the exit codes."""
        formatter.write_paragraph()
        formatter.write_text(EXIT_CODES)


@click.group(
    cls=CommandTable,
    help=pages.page(HELP),
    context_settings=pages.SETTINGS,
)
@click.version_option(package_name="podline")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def cli() -> None:
    """The command line; its help is HELP."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a command line and exits with its code.

    Args:
        arguments: what follows ``podline``; this process's own unless given.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Wherever it stands: nobody remembers whether it belongs to podline or to a command.
    arguments = [argument for argument in given if argument != "--debug"]
    debug = arguments != given
    # As an exception it lets every stage save and every child end, which dying of the signal would not.
    signal.signal(signal.SIGTERM, _terminated)
    shared: dict[str, bool] = {}
    as_json = "--json" in arguments
    try:
        cli.main(arguments, prog_name="podline", standalone_mode=False, obj=shared)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        _fail(debug, error.format_message(), 2, as_json=as_json, usage=error)
    except (KeyboardInterrupt, click.Abort):
        _fail(debug, "interrupted; the same command goes on from what is there", 130, as_json=as_json)
    except Exception as error:
        # A command that has printed what it found, and then fails for it, has said all that there is to say in JSON.
        as_json = as_json and "said_json" not in shared
        _fail(debug, _line(error), getattr(error, "exit_code", 1), as_json=as_json, kind=type(error).__name__)
    sys.exit(0)


def _line(error: Exception) -> str:
    if hasattr(error, "exit_code"):
        return str(error)
    return f"{type(error).__name__}: {error} (this is a bug; --debug shows where)"


def _fail(
    debug: bool,
    message: str,
    code: int,
    *,
    as_json: bool,
    kind: str = "Usage",
    usage: click.ClickException | None = None,
) -> NoReturn:
    """One line on standard error, or the traceback; a document on standard output as well where one is due."""
    if debug:
        traceback.print_exc()
    context = getattr(usage, "ctx", None)
    hint = f" (see `{context.command_path} --help`)" if context else ""
    message = plain(message)
    click.echo(f"podline: error: {message}{hint}", err=True)
    if as_json:
        document: dict[str, Any] = {"error": {"type": kind, "message": message, "exit_code": code}}
        click.echo(json.dumps(document, indent=2))
    sys.exit(code)


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    click.echo("podline: error: asked to end (SIGTERM); the same command goes on from what is there", err=True)
    sys.exit(143)


if __name__ == "__main__":
    main()
