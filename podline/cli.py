"""The command line: a table of commands, each imported on call, and the handling of errors.

This module imports click and no library besides, so that ``podline --help`` is instant.
"""

from __future__ import annotations

import errno
import json
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import click

from podline.base import entry_points
from podline.base.errors import PreemptedError, SettingsError, exit_codes
from podline.base.interruptions import Interruption, interruptible
from podline.base.plain import plain
from podline.commands import pages
from podline.settings.tensorflow_noise import quiet_tensorflow


class ListedCommand(NamedTuple):
    """A command in the table: its module, and its line in ``podline --help``."""

    at: str
    help: str


SECTIONS: dict[str, dict[str, ListedCommand]] = {
    "Begin": {
        "run": ListedCommand("run:run", "Run all stages from raw data to report, as a Prefect flow here."),
        "init": ListedCommand("init:init", "Write a project: recipe, model, prefect.yaml, test, README."),
    },
    "One stage at a time, in this order": {
        "convert": ListedCommand("stage:convert", "Convert raw data to sharded TFRecords."),
        "validate": ListedCommand("stage:validate", "Verify every byte of a data set by its manifest."),
        "train": ListedCommand("stage:train", "Train a recipe; resume from its last checkpoint."),
        "evaluate": ListedCommand("stage:evaluate", "Evaluate a trained model on every test example."),
        "report": ListedCommand("stage:report", "Write one HTML page about a run."),
        "stage": ListedCommand("stage:installed_stage", "Run a stage of an installed package."),
    },
    "Look, choose and tidy up": {
        "data": ListedCommand(
            "data:data",
            "list · compact · show · check · preview · download · draw · suspects · review · apply · correct · forget",
        ),
        "runs": ListedCommand("runs:runs_group", "list · show · compare · nights · delete"),
        "models": ListedCommand(
            "models:models_group", "list · describe · check · promote · rollback · predict · serve · export"
        ),
        "tune": ListedCommand("tune:tune", "lr · search · input"),
        "store": ListedCommand("store:store_group", "list · verify · mark · prune"),
    },
    "Nights and machines": {
        "up": ListedCommand("operate:up", "Run a Prefect server, a worker and all deployments here, until Ctrl-C."),
        "deploy": ListedCommand("operate:deploy", "Make pools, limits, automations, deployments on any server."),
        "worker": ListedCommand("operate:worker", "Execute runs of a server on this machine, until Ctrl-C."),
        "engine": ListedCommand("engine:engine_group", "check"),
        "tpu": ListedCommand("tpu:tpu", "status · recover · patrol"),
    },
}
# The RuntimeError of pathlib's `expanduser`.
_NO_HOME = "Could not determine home directory."
# For developers with a checkout; the first page omits it.
_HIDDEN = {"benchmark": ListedCommand("benchmark:benchmark", "")}

HELP = """Turn images into TFRecords, a trained TensorFlow model and a report, every night.

Start with `podline run sample`: it generates a small data set, converts, checks and trains on it, and ends with a
report, without network and accelerator. Then use data of your own:

  podline run cifar10 --source cifar-10-batches-py --root podline-root

The same command again re-uses finished stages, and resumes an interrupted one.
"""

NOTES = """Settings come from `--settings FILE` (TOML) or PODLINE_... variables; see docs/reference/settings.md.
An error is one line on standard error; --debug adds the traceback.
"""


class CommandTable(pages.Group):
    """A group whose commands are imported on call, and not for a list."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return all names, in the table's order."""
        return [name for section in SECTIONS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command with this name, or None."""
        for section in (*SECTIONS.values(), _HIDDEN):
            if cmd_name in section:
                return entry_points.load(f"podline.commands.{section[cmd_name].at}")
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the table into the help page."""
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.help) for name, entry in section.items()], col_max=12)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the exit codes, and where settings come from."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in exit_codes().items()])
        formatter.write_paragraph()
        formatter.write_text(pages.page(NOTES))


@click.group(cls=CommandTable, help=HELP)
@click.version_option(package_name="podline")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def cli() -> None:
    """Run the command line; its help is HELP."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and exit with its code.

    Args:
        arguments: the arguments after ``podline``; by default those of this process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    # --debug may come before or after a command.
    arguments = [argument for argument in given if argument != "--debug"]
    debug = arguments != given
    quiet_tensorflow()
    shared: dict[str, bool] = {}

    def fail(message: str, code: int, **more: Any) -> NoReturn:
        # A command that printed its JSON document and then fails or is interrupted prints no second document.
        _fail(debug, message, code, as_json="--json" in arguments and "said_json" not in shared, **more)

    try:
        # An exception lets every stage save its work and every child end, which death by the signal would not.
        with interruptible():
            code = cli.main(arguments, prog_name="podline", standalone_mode=False, obj=shared)
    except click.ClickException as error:
        fail(error.format_message(), 2, usage=error)
    except (KeyboardInterrupt, click.Abort) as error:
        interruption = error.__cause__ or error  # click replaces a KeyboardInterrupt
        if isinstance(interruption, Interruption):
            fail(str(interruption), PreemptedError.exit_code, kind=PreemptedError.__name__)
        fail("interrupted; the same command resumes from the last checkpoint or finished stage", 130)
    except Exception as error:
        error = _refused(error)
        fail(_line(error), getattr(error, "exit_code", 1), kind=type(error).__name__)
    # click returns the code of a command that ends by Context.exit.
    sys.exit(code if isinstance(code, int) else 0)


def _refused(error: Exception) -> Exception:
    """Return the error for a full disk, a missing permission, or a path with an unknown ``~``; else the same error."""
    if isinstance(error, RuntimeError) and str(error) == _NO_HOME:
        return SettingsError("a path begins with ~ or ~USER whose home folder is unknown; give the whole path")
    # The failed write of an open file, such as standard output, has no file name.
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if not isinstance(error, OSError) or not (error.filename or full):
        return error
    from podline.store.contract import refused  # noqa: PLC0415 (it imports pydantic, which --help does not need)

    return refused("write" if full else "use", error.filename or "a file or the output", error) or error


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
    """Write one line to standard error, with --debug below the traceback; with --json a document to standard output."""
    if debug:
        traceback.print_exc()
    context = getattr(usage, "ctx", None)
    hint = f" (see `{context.command_path} --help`)" if context else ""
    message = pages.located(plain(message))
    click.echo(f"podline: error: {message}{hint}", err=True)
    if as_json:
        document: dict[str, Any] = {"error": {"type": kind, "message": message, "exit_code": code}}
        click.echo(json.dumps(document, indent=2))
    sys.exit(code)


if __name__ == "__main__":
    main()
