"""The settings of a machine, which do not affect results: the store, time limits, workers.

Each setting has a default. A TOML file (``--settings FILE``, or the file in ``PODLINE_SETTINGS``) overrides the
default, an environment variable ``PODLINE_<NAME>`` overrides the file, and a command-line option overrides both.

All other environment variables belong to :mod:`podline.settings.environment`.
"""

from __future__ import annotations

import difflib
import functools
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo

from podline.base.errors import SettingsError
from podline.base.frozen import Frozen, problem_in
from podline.settings.cluster import Cluster
from podline.settings.engines import LOCAL, EngineName
from podline.settings.environment import PAGES_SECRET, export
from podline.settings.launchers import Wanted, discover, host_range
from podline.settings.strategies import StrategyName
from podline.settings.tpu_settings import TpuSettings

_PREFIX = "PODLINE_"
_SETTINGS_FILE = "PODLINE_SETTINGS"
# Values of the setting `tracking` begin with this.
MLFLOW = "mlflow:"
# Variables with Podline's prefix that are not settings: the path of the settings file, a secret (which must not be
# copied with the settings), and the tests' folder of real data.
NOT_SETTINGS = frozenset({_SETTINGS_FILE, PAGES_SECRET, "PODLINE_REAL_DATA"})


# A year, in seconds: far more than any wait; the system cannot wait for an infinite time.
_LONGEST = 31_536_000


class StoreSettings(Frozen):
    """Settings of the store; most are for a store in a bucket. Times are in seconds."""

    cache: str = Field(
        default="~/.cache/podline", min_length=1, description="the folder for local copies of a bucket's objects"
    )
    cache_limit: int = Field(default=50_000_000_000, gt=0, description="the largest total size of the copies, in bytes")
    parallel: int = Field(default=8, ge=1, le=64, description="the number of parallel downloads")
    deadline: float = Field(
        default=120.0, gt=0, le=_LONGEST, description="the time limit for a request with all retries"
    )
    patience: float = Field(
        default=1800.0,
        ge=0,
        le=_LONGEST,
        description="the time that training continues while the store does not answer",
    )
    lease: float = Field(
        default=60.0,
        gt=0,
        le=_LONGEST,
        description="how long the process that writes a run may be silent until another machine takes over; also for a "
        "store in a folder",
    )
    group: bool = Field(
        default=False,
        description="lets a group share a root in a folder: docs/reference/store.md#share-a-folder",
    )
    user_project: str | None = Field(default=None, description="the project to bill for a requester-pays bucket")
    credentials_block: str | None = Field(
        default=None,
        description="for flows: `gcp-credentials/NAME` or `gcs-bucket/NAME`; see docs/how-to/bucket.md#credentials",
    )


class NightSettings(Frozen):
    """The handling of failed nights; see docs/how-to/failed-run.md."""

    pause_after: int = Field(
        default=3,
        ge=0,
        description="the number of consecutive failed nights that pauses a schedule; 0: never; "
        "see docs/how-to/failed-run.md",
    )
    notify: str = Field(
        default="",
        pattern=r"^([a-z0-9-]+/[a-z0-9-]+([, ]+|$))*$",
        description="Prefect blocks that notify about failures, such as slack-webhook/team, custom-webhook/pager",
    )

    @property
    def blocks(self) -> list[str]:
        """The names of the blocks in ``notify``, each ``type/name``."""
        return self.notify.replace(",", " ").split()


def _split(names: Any) -> Any:
    """Split a comma-separated list from an environment variable; return other values unchanged."""
    return tuple(name.strip() for name in names.split(",") if name.strip()) if isinstance(names, str) else names


class PageSettings(Frozen):
    """The server of the stores' pages; see docs/how-to/run-from-ui.md."""

    url: str = Field(
        default="",
        pattern=r"^(https?://\S+)?$",
        description="the pages' address for browsers; see docs/how-to/run-from-ui.md#the-pages-in-the-browser",
    )
    stores: Annotated[tuple[str, ...], BeforeValidator(_split)] = Field(
        default=(), description="stores whose pages are served, besides `root`"
    )


def _listed(files: Any) -> Any:
    """Check that paths are absolute; split a comma-separated list from an environment variable.

    Raises:
        ValueError: a path is relative; flows run in processes with other working folders.
    """
    files = _split(files)
    for file in files if isinstance(files, list | tuple) else ():  # pydantic refuses any other type
        if isinstance(file, str) and not Path(file).expanduser().is_absolute():
            raise ValueError(f"{file} is a relative path; give an absolute one")
    return files


class Settings(Frozen):
    """The settings of a machine; times are in seconds."""

    root: str = Field(default="podline-root", min_length=1, description="a folder or `gs://bucket/prefix`")
    engine: EngineName = Field(default=LOCAL, description="the engine of conversions; see docs/how-to/engines.md")
    workers: int = Field(default=1, ge=1, le=1024, description="the number of worker processes of the engine `local`")
    strategy: StrategyName = Field(
        default="auto", description="the devices that run models; see docs/how-to/strategies.md"
    )
    require_accelerator: bool = Field(default=False, description="the strategy `auto` fails instead of using the CPU")
    hosts: Annotated[str, AfterValidator(host_range)] = Field(
        default="",
        description="the number of hosts that train together, `4` or `2..4`; empty: all hosts of the launcher",
    )
    launch: str = Field(
        default="",
        pattern=r"^(slurm|ray:https?://\S+)?$",
        description="`slurm` or `ray:http://HEAD:8265`: flows submit trainings as a job there, on `hosts` hosts; "
        "see docs/how-to/strategies.md#from-prefect",
    )
    cluster_port: int = Field(
        default=2222,
        ge=1,
        le=65000,
        description="the port of the first process of a training on several hosts; process i, counted from 0, listens "
        "on this port + i",
    )
    silence: float = Field(
        default=900.0, gt=0, le=_LONGEST, description="a stage counts as hung after this time without progress"
    )
    hang_factor: float = Field(
        default=20.0, gt=1, description="a training counts as hung after this multiple of its usual time between events"
    )
    hang_floor: float = Field(
        default=120.0,
        gt=0,
        description="a training does not count as hung before this time; see docs/reference/findings.md#a-hang",
    )
    grace: float = Field(
        default=30.0, ge=0, le=_LONGEST, description="the time that a terminated stage has to save its work"
    )
    stage_timeout: float | None = Field(default=None, gt=0, le=_LONGEST, description="the time limit of a stage")
    train_lock: str = Field(
        default="/tmp/podline-train.lock",  # noqa: S108
        description="the lock file of trainings, which run one at a time; empty: no lock; see docs/how-to/train.md",
    )
    server_timeout: float = Field(
        default=300.0, gt=0, le=_LONGEST, description="the time limit for the start of the embedded Prefect server"
    )
    parse_limits: float = Field(
        default=1.0,
        gt=0,
        allow_inf_nan=False,
        description="multiplies the limits of memory and CPU time for reading untrusted files; "
        "see docs/reference/limits.md",
    )
    parse_pixels: int = Field(
        default=48_000_000,
        gt=0,
        description="the largest number of pixels of an image; see docs/reference/limits.md",
    )
    recipes: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field(
        default=(), description="absolute paths of Python files with a recipe each; see docs/how-to/recipe.md"
    )
    tracking: str = Field(
        default="",
        pattern=f"^({MLFLOW}.+)?$",
        description="an MLflow server that logs runs too, `mlflow:URI`; see docs/how-to/report.md#mlflow",
    )
    store: StoreSettings = Field(
        default=StoreSettings(), description="settings of the store, mostly for a bucket: docs/how-to/bucket.md"
    )
    nights: NightSettings = Field(default=NightSettings(), description="the handling of failed nights")
    pages: PageSettings = Field(
        default=PageSettings(), description="the server of report pages: its address, and the stores that it serves"
    )
    tpu: TpuSettings | None = Field(default=None, description="the TPU that models run on; see docs/how-to/tpu.md")


def load(file: str | Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings from a file and the environment.

    Args:
        file: a TOML file; by default the file in ``PODLINE_SETTINGS``, if set.
        environment: environment variables; by default those of this process.

    Raises:
        SettingsError: the file does not exist or is not TOML, a key or variable is unknown, or a value is out of
            bounds.
    """
    environment = os.environ if environment is None else environment
    file = file or environment.get(_SETTINGS_FILE)
    values = _from_file(Path(file)) if file else {}
    # Include the tables themselves, because a table may be empty.
    sources = dict.fromkeys([*flat(values), *values], str(file))
    known = {variable_of(key): key for key in keys()}
    for variable, text in environment.items():
        if not variable.startswith(_PREFIX) or variable in NOT_SETTINGS:
            continue
        if variable not in known:
            raise SettingsError(
                f"environment variable {variable}: there is no setting {variable!r}; {nearest(variable, known)}"
            )
        sources[known[variable]] = f"environment variable {variable}"
        *tables, name = known[variable].split(".")
        functools.reduce(lambda table, inner: table.setdefault(inner, {}), tables, values)[name] = text
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise _refused(error, sources) from None


def with_options(machine: Settings, options: Mapping[str, Any]) -> Settings:
    """Return settings, changed by options of the command line.

    Raises:
        SettingsError: a value is out of bounds.
    """
    try:
        return machine.changed(**options)
    except ValidationError as error:
        raise _refused(error, {name: f"--{name}" for name in options}) from None


def flat(values: Mapping[str, Any], table: str = "") -> dict[str, Any]:
    """Flatten nested tables to dotted keys, such as ``tpu.api.zone``."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{table}{key}.") if isinstance(value, dict) else {f"{table}{key}": value}
    return found


def keys(model: type[BaseModel] = Settings, table: str = "") -> dict[str, FieldInfo]:
    """Return the dotted key → field of every setting."""
    found: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        if below := _model_in(field.annotation):
            found |= keys(below, f"{table}{name}.")
        else:
            found[table + name] = field
    return found


def variable_of(key: str) -> str:
    """Return the environment variable for a dotted key: ``PODLINE_TPU_API_ZONE`` for ``tpu.api.zone``."""
    return _PREFIX + key.replace(".", "_").upper()


def variables(machine: Settings) -> dict[str, str]:
    """Return environment variables with which :func:`load` returns these settings, except for empty tables."""
    given = flat(machine.model_dump(mode="json", exclude_defaults=True))
    return {
        variable_of(key): ",".join(value) if isinstance(value, list) else str(value) for key, value in given.items()
    }


def _refused(error: ValidationError, sources: Mapping[str, str]) -> SettingsError:
    """Return an error about the first invalid or missing value, with the file, variable or option that set it."""
    problem = problem_in(error)
    key = ".".join(map(str, problem.loc))
    if problem.type == "missing":
        asks = next(source for given, source in sources.items() if given.split(".")[0] == problem.loc[0])
        needed = [name for name, field in keys().items() if field.is_required() and f"{name}.".startswith(f"{key}.")]
        return SettingsError(f"{asks}: {', '.join(needed)} must be given as well")
    # A key in a list, such as recipes.0, has the source of the list.
    ours = (source for given, source in sources.items() if given.startswith(key) or key.startswith(f"{given}."))
    source = next(ours, "settings")
    value = "" if isinstance(problem.input, dict) else f" = {problem.input!r}"
    expected = f"; expected {keys()[key].description}" if problem.type == "string_pattern_mismatch" else ""
    return SettingsError(f"{source}: {key}{value}: {problem.msg}{expected}")


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a table of settings; None for the annotation of a single setting."""
    candidates = (annotation, *get_args(annotation))
    return next((one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)), None)


def cluster() -> Cluster:
    """Return the processes that train together, from the environment variables of this process.

    Raises:
        SettingsError: see :func:`podline.settings.launchers.discover`.
    """
    machine = load()
    return discover(os.environ, Wanted(machine.cluster_port, machine.hosts))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return text for the end of an error about an unknown name: the nearest known name, or all known names."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def _from_file(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
        given = flat(values)
    except OSError as error:
        raise SettingsError(f"settings file {file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"settings file {file} is not TOML: {error}") from error
    known = keys()
    for key, value in given.items():
        if any(name.startswith(f"{key}.") for name in known):
            raise SettingsError(f"settings file {file}: {key} = {value!r}: expected a table, [{key}]")
        if key not in known:
            raise SettingsError(f"settings file {file}: there is no setting {key!r}; {nearest(key, known)}")
    return values


def use_file(file: Path) -> None:
    """Make :func:`load` read this file from now on, in this process and in its children."""
    export({_SETTINGS_FILE: str(file.absolute())})


def keep_places() -> None:
    """Make the paths of the root and of the settings file absolute, for child processes in other folders.

    Raises:
        SettingsError: see :func:`load`.
    """
    root = load().root
    if "://" not in root:
        export({variable_of("root"): str(Path(root).expanduser().absolute())})
    if os.environ.get(_SETTINGS_FILE):
        use_file(Path(os.environ[_SETTINGS_FILE]))
