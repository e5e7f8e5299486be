"""Settings of a machine, not of a result: where the store is, how long a stage may take, how many workers there are.

Each has a default; a TOML file (``--settings FILE``, or the file that ``PODLINE_SETTINGS`` names) overrides it, an
environment variable ``PODLINE_<NAME>`` overrides the file, and an option on the command line overrides all.

This module alone reads and writes the environment, that of the processes that Podline starts included.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from podline.errors import SettingsError
from podline.frozen import Frozen
from podline.strategies import StrategyName

_PREFIX = "PODLINE_"
_SETTINGS_FILE = "PODLINE_SETTINGS"
# Variables with our prefix that are no settings: the file of settings, and the tests' folder of real data.
_NOT_SETTINGS = frozenset({_SETTINGS_FILE, "PODLINE_REAL_DATA"})
# Every process below a stage's child inherits this, so that those in a session of their own are found as well.
STAGE_MARK = "_PODLINE_STAGE"


class Settings(Frozen):
    """What a person may set for a machine; times are in seconds."""

    root: str = Field(default="podline-root", min_length=1, description="the store")
    workers: int = Field(default=1, ge=1, le=1024, description="worker processes of the conversion")
    strategy: StrategyName = Field(default="auto", description="where models run; see podline.strategies")
    silence: float = Field(default=900.0, gt=0, description="a stage without progress for so long counts as hung")
    hang_factor: float = Field(default=20.0, gt=1, description="training counts as hung after so many times its pace")
    hang_floor: float = Field(default=120.0, gt=0, description="… but not before so long, however fast its steps are")
    grace: float = Field(default=30.0, ge=0, description="what a stage that is ended has left to save its work")
    convert_timeout: float | None = Field(default=None, gt=0, description="the conversion may take so long")
    validate_timeout: float | None = Field(default=None, gt=0, description="the validation may take so long")
    train_timeout: float | None = Field(default=None, gt=0, description="the training may take so long")
    evaluate_timeout: float | None = Field(default=None, gt=0, description="the evaluation may take so long")
    report_timeout: float | None = Field(default=None, gt=0, description="the report may take so long")
    server_timeout: float = Field(default=120.0, gt=0, description="the embedded Prefect server may take so long")

    def timeout(self, stage: str) -> float | None:
        """How long a stage may take; None, also for a stage that has no such setting, is as long as it wants."""
        return getattr(self, f"{stage}_timeout", None)


def load(file: str | Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """The settings from a file and the environment.

    Args:
        file: a TOML file; None is the one that ``PODLINE_SETTINGS`` names, if it does.
        environment: the process's own unless given.

    Raises:
        SettingsError: a file that is not there or not TOML, an unknown key or variable, a value out of bounds.
    """
    environment = os.environ if environment is None else environment
    file = file or environment.get(_SETTINGS_FILE)
    values = _from_file(Path(file)) if file else {}
    sources = dict.fromkeys(values, str(file))
    for variable, text in environment.items():
        if variable.startswith(_PREFIX) and variable not in _NOT_SETTINGS:
            key = variable.removeprefix(_PREFIX).lower()
            _known(key, variable, f"environment variable {variable}", upper=True)
            values[key], sources[key] = text, f"environment variable {variable}"
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        key = str(problem["loc"][0])
        raise SettingsError(f"{sources[key]}: {key} = {values[key]!r}: {problem['msg']}") from None


def nearest(name: str, known: Iterable[str]) -> str:
    """The words that end an error about an unknown name: the nearest known one, or all of them."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def _from_file(file: Path) -> dict[str, object]:
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"settings file {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"settings file {file} is not TOML: {error}") from error
    for key in values:
        _known(key, key, f"settings file {file}")
    return values


def _known(key: str, written: str, where: str, *, upper: bool = False) -> None:
    if key not in Settings.model_fields:
        known = [f"{_PREFIX}{name.upper()}" if upper else name for name in Settings.model_fields]
        raise SettingsError(f"{where}: there is no setting {written!r}; {nearest(written, known)}")


def use_file(file: Path) -> None:
    """From now on :func:`load` reads this file, in this process and in those that it starts."""
    export({_SETTINGS_FILE: str(file.absolute())})


def child_environment(scratch: Path, mark: str = "") -> dict[str, str]:
    """The environment of a child process: this one's own, with libraries told to print less and to leave the home be.

    Args:
        scratch: a folder where libraries may keep their caches and configuration.
        mark: a name that no other child has, to find its descendants by.
    """
    quieter = {
        # 0 all, 1 no INFO, 2 no WARNING: what TensorFlow's C++ says goes to the child's log file.
        "TF_CPP_MIN_LOG_LEVEL": "1",
        "GRPC_VERBOSITY": "ERROR",
        "PYTHONUNBUFFERED": "1",
        "KERAS_HOME": str(scratch / "keras"),
        "MPLCONFIGDIR": str(scratch / "matplotlib"),
    }
    return {**quieter, **os.environ, **({STAGE_MARK: mark} if mark else {})}


def use_embedded_prefect(home: Path, api_url: str) -> None:
    """Makes this process's environment that of an embedded Prefect run; to be called before Prefect is imported.

    All that Prefect keeps lies under ``home``, it tells nobody, and nothing that the user has set for another Prefect
    counts.

    Args:
        home: Prefect's own folder under the root.
        api_url: where the server that this run starts will listen.
    """
    for variable in [name for name in os.environ if name.startswith("PREFECT_")]:
        del os.environ[variable]
    export(
        {
            "PREFECT_HOME": str(home),
            "PREFECT_API_URL": api_url,
            "PREFECT_RESULTS_LOCAL_STORAGE_PATH": str(home / "results"),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
            "PREFECT_SERVER_UI_ENABLED": "false",
            # Types of blocks are needed to save blocks, and an embedded run saves none; registering them costs 3 s.
            "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
            # Its log is on the run, in the database; the terminal shows the stages' progress instead.
            "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
            "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL": "CRITICAL",
        }
    )


def export(variables: Mapping[str, str]) -> None:
    """Sets variables of this process's environment, for libraries that read theirs when they are imported."""
    os.environ.update(variables)
