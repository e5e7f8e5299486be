"""The settings of a machine, which do not affect results: the store, time limits, workers.

Each setting has a default. A TOML file (``--settings FILE``, or the file in ``PODLINE_SETTINGS``) overrides the
default, an environment variable ``PODLINE_<NAME>`` overrides the file, and a command-line option overrides both.

Only this module reads and writes environment variables, also for child processes. The exception is the package
``podline``, which sets variables before an import.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import os
import re
import socket
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo

from podline.base.errors import SettingsError
from podline.base.frozen import Frozen, problem_in
from podline.settings.cluster import Cluster
from podline.settings.engines import LOCAL, EngineName
from podline.settings.launchers import Wanted, discover, host_range
from podline.settings.strategies import StrategyName
from podline.settings.tpu_settings import TpuSettings

_PREFIX = "PODLINE_"
_SETTINGS_FILE = "PODLINE_SETTINGS"
_GOOGLE_CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS"
SERVER_SECRET = "PREFECT_SERVER_API_AUTH_STRING"  # noqa: S105 (the variable's name)
CLIENT_SECRET = "PREFECT_API_AUTH_STRING"  # noqa: S105 (likewise)
PAGES_SECRET = "PODLINE_PAGES_SECRET"  # noqa: S105 (likewise)
_UI_API_URL = "PREFECT_UI_API_URL"
_VACUUM = "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED"
# Values of the setting `tracking` begin with this.
MLFLOW = "mlflow:"
# Variables with Podline's prefix that are not settings: the path of the settings file, a secret (which must not be
# copied with the settings), and the tests' folder of real data.
NOT_SETTINGS = frozenset({_SETTINGS_FILE, PAGES_SECRET, "PODLINE_REAL_DATA"})
# Seconds between heartbeats of a flow run; Prefect's default is 180. The automation that finds dead runs, and the
# patrol, depend on it (tasks/server.py).
HEARTBEAT = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}
# Every descendant of a stage's child process inherits this variable, which identifies descendants in other sessions.
STAGE_MARK = "_PODLINE_STAGE"


class StoreSettings(Frozen):
    """Settings of the store; most are for a store in a bucket. Times are in seconds."""

    cache: str = Field(
        default="~/.cache/podline", min_length=1, description="the folder for local copies of a bucket's objects"
    )
    cache_limit: int = Field(default=50_000_000_000, gt=0, description="the largest total size of the copies, in bytes")
    parallel: int = Field(default=8, ge=1, le=64, description="the number of parallel downloads")
    deadline: float = Field(default=120.0, gt=0, description="the time limit for a request with all retries")
    patience: float = Field(
        default=1800.0, ge=0, description="the time that training continues while the store does not answer"
    )
    lease: float = Field(
        default=60.0,
        gt=0,
        description="how long the process that writes a run may be silent until another machine takes over, also in a "
        "folder",
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
    """Return absolute paths; split a comma-separated list from an environment variable.

    Raises:
        ValueError: a path is relative; flows run in processes with other working folders.
    """
    files = _split(files)
    relative = [file for file in files if not Path(file).expanduser().is_absolute()]
    if relative:
        raise ValueError(f"{relative[0]} is a relative path; give an absolute one")
    return tuple(files)


def _tracker(tracking: str) -> str:
    """Check the setting ``tracking``, which is empty or ``mlflow:URI``.

    Raises:
        ValueError: the text has another form.
    """
    if tracking and (not tracking.startswith(MLFLOW) or tracking == MLFLOW):
        raise ValueError(f"expected {MLFLOW}URI, such as {MLFLOW}http://127.0.0.1:5000; or remove the setting")
    return tracking


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
        description="the port of the first of several hosts; host i listens on this port + i",
    )
    silence: float = Field(default=900.0, gt=0, description="a stage counts as hung after this time without progress")
    hang_factor: float = Field(
        default=20.0, gt=1, description="a training counts as hung after this multiple of the usual time of a step"
    )
    hang_floor: float = Field(
        default=120.0,
        gt=0,
        description="a training does not count as hung before this time; see docs/reference/findings.md#a-hang",
    )
    grace: float = Field(default=30.0, ge=0, description="the time that a terminated stage has to save its work")
    stage_timeout: float | None = Field(default=None, gt=0, description="the time limit of a stage")
    train_lock: str = Field(
        default="/tmp/podline-train.lock",  # noqa: S108
        description="the lock file of trainings, which run one at a time; empty: no lock; see docs/how-to/train.md",
    )
    server_timeout: float = Field(
        default=300.0, gt=0, description="the time limit for the start of the embedded Prefect server"
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
    tracking: Annotated[str, AfterValidator(_tracker)] = Field(
        default="", description="an MLflow server that logs runs too, `mlflow:URI`; see docs/how-to/report.md#mlflow"
    )
    store: StoreSettings = Field(
        default=StoreSettings(), description="settings of the store, mostly for a bucket: docs/how-to/bucket.md"
    )
    nights: NightSettings = Field(default=NightSettings(), description="the handling of failed nights")
    pages: PageSettings = Field(default=PageSettings(), description="the address of the stores' pages")
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
    """Return environment variables with which :func:`load` returns these settings on another machine."""
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
    source = next((source for given, source in sources.items() if given.startswith(key)), "settings")
    value = "" if isinstance(problem.input, dict) else f" = {problem.input!r}"
    return SettingsError(f"{source}: {key}{value}: {problem.msg}")


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a table of settings; None for the annotation of a single setting."""
    candidates = (annotation, *get_args(annotation))
    return next((one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)), None)


def gpus_are_hidden() -> bool:
    """Return whether CUDA_VISIBLE_DEVICES hides every GPU from this process."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")


def cluster() -> Cluster:
    """Return the processes that train together, from the environment variables of this process.

    Raises:
        SettingsError: see :func:`podline.settings.launchers.discover`.
    """
    machine = load()
    return discover(os.environ, Wanted(machine.cluster_port, machine.hosts), socket.getfqdn)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return text for the end of an error about an unknown name: the nearest known name, or all known names."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def _from_file(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"settings file {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"settings file {file} is not TOML: {error}") from error
    known = keys()
    for key, value in flat(values).items():
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


# Only the variables that Python and native libraries need to start, because others may contain a password.
_FOR_PARSERS = re.compile(
    rf"{STAGE_MARK}|HOME|PATH|TMPDIR|TZ|LANG|LC_\w+|PYTHON\w+|(LD|DYLD)_\w+|VIRTUAL_ENV|CONDA_PREFIX|MALLOC_\w+"
)
# The log level of TensorFlow's C++ code: 0 logs all, 1 no INFO, 2 no WARNING.
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "1", "GRPC_VERBOSITY": "ERROR"}


def quiet_libraries() -> None:
    """Silence informational messages of native libraries in this process; call this before importing them."""
    export({**_QUIET, **os.environ})


def child_environment(scratch: Path, mark: str = "") -> dict[str, str]:
    """Return the environment of a child process, in which libraries log little and do not write to the home folder.

    Args:
        scratch: a folder for caches and configuration files of libraries.
        mark: a unique name, which identifies the child's descendants; empty for none.
    """
    quieter = {
        **_QUIET,
        "PYTHONUNBUFFERED": "1",
        "KERAS_HOME": str(scratch / "keras"),
        "MPLCONFIGDIR": str(scratch / "matplotlib"),
    }
    return {**quieter, **os.environ, **({STAGE_MARK: mark} if mark else {})}


def parser_environment() -> dict[str, str]:
    """Return the environment of a process that parses untrusted files; it contains no variable that may be a secret."""
    return {
        **{name: value for name, value in os.environ.items() if _FOR_PARSERS.fullmatch(name)},
        # One thread each, because threads need memory, and several of these processes run in parallel.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        # Arrow's own memory pool reserves more than it needs.
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def cpu_environment() -> dict[str, str]:
    """Return the environment of a child process that uses no accelerator, because the parent may be using it."""
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TPU_LOAD_LIBRARY": "0"}


def job_environment() -> dict[str, str]:
    """Return the environment of a training job: this process's without variables of its Prefect run or Slurm job."""
    ours = ("PREFECT_", "SLURM_")
    return {name: value for name, value in os.environ.items() if name == "SLURM_CONF" or not name.startswith(ours)}


def of_prefect_worker() -> bool:
    """Return whether a Prefect worker started this process, for one flow run."""
    return "PREFECT__FLOW_RUN_ID" in os.environ


def environment_in(folder: Path) -> dict[str, str]:
    """Return this process's environment with ``PWD`` set to another working folder."""
    return {**os.environ, "PWD": str(folder)}


def server_environment(home: Path, api_url: str, secret: str, more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for the programs of ``podline up``, and for the flow runs that they start.

    The user's variables for Prefect are kept (a database, the API's address for browsers), except the server's address
    and Prefect's folder.

    Args:
        home: Prefect's own folder under the root.
        api_url: address of the server.
        secret: the secret that every request must contain.
        more: further variables.
    """
    ours = {
        **_own_prefect(home, api_url, secret),
        # So that a requested run starts soon: Prefect's worker polls every 10 s by default.
        "PREFECT_WORKER_QUERY_SECONDS": "2",
        # So that a crash is detected at once instead of after a quarter of an hour; see deployments/event_order.py.
        "PREFECT_SERVER_EVENTS_CAUSAL_ORDERING": "podline.deployments.event_order",
        # Flow runs, with their logs and artifacts, are deleted 90 days after their end; by default, never.
        _VACUUM: os.environ.get(_VACUUM, "events,flow_runs"),
        "PYTHONUNBUFFERED": "1",
        # The UI sends requests to the server that delivered the page, also through a proxy or tunnel.
        _UI_API_URL: os.environ.get(_UI_API_URL, "/api"),
    }
    profile = {name: value for name, value in os.environ.items() if name != "PREFECT_PROFILE"}
    return {**profile, **ours, **more}


def given_secret(variable: str) -> str:
    """Return the value of an environment variable with a server's secret, or an empty string."""
    return os.environ.get(variable, "")


def asked_server() -> str:
    """Return the value of ``PREFECT_API_URL``, or an empty string."""
    return os.environ.get("PREFECT_API_URL", "")


def prefect_home() -> Path:
    """Return Prefect's home folder (``PREFECT_HOME``), without importing Prefect."""
    return Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()


def use_client_secret(secret: str) -> None:
    """Send this secret with requests to a server, unless the user has set one; call this before importing Prefect."""
    if not os.environ.get(CLIENT_SECRET):
        export({CLIENT_SECRET: secret})


def use_embedded_prefect(home: Path, api_url: str, secret: str) -> None:
    """Configure this process for an embedded Prefect run; call this before importing Prefect.

    Prefect then writes all its files under ``home`` and sends no telemetry. The user's Prefect variables are removed.

    Args:
        home: Prefect's own folder under the root.
        api_url: address of the server that this run starts.
        secret: the secret that every request must contain.
    """
    for variable in [name for name in os.environ if name.startswith("PREFECT_")]:
        del os.environ[variable]
    export(
        {
            **_own_prefect(home, api_url, secret),
            "PREFECT_SERVER_UI_ENABLED": "false",
            # An embedded run saves no blocks. Registering their types takes 3 s; to compare them with those registered,
            # Prefect imports Google's clients, which takes 4 s and 300 MB.
            "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
            "PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
            # The log is in the run's database; the terminal shows the stages' progress instead.
            "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
            "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL": "CRITICAL",
        }
    )


def _own_prefect(home: Path, api_url: str, secret: str) -> dict[str, str]:
    """Return variables for every Prefect server that Podline starts: all files in one folder, no telemetry."""
    return {
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": api_url,
        SERVER_SECRET: secret,
        CLIENT_SECRET: secret,
        **HEARTBEAT,
        "PREFECT_RESULTS_LOCAL_STORAGE_PATH": str(home / "results"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        # In memory, the default, a restarted server would forget a lease on the TPU, and the slot would stay occupied
        # forever; see docs/how-to/tpu.md.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    }


@contextlib.contextmanager
def google_credentials(file: Path) -> Iterator[None]:
    """Let Google's library read its credentials from a file while the body runs, also in child processes."""
    before = os.environ.get(_GOOGLE_CREDENTIALS)
    export({_GOOGLE_CREDENTIALS: str(file)})
    try:
        yield
    finally:
        del os.environ[_GOOGLE_CREDENTIALS]
        if before is not None:
            export({_GOOGLE_CREDENTIALS: before})


def export_mlflow_defaults() -> None:
    """Set MLflow's variables that the user has not set; call this before importing MLflow.

    MLflow then gives up on a failing server within half a minute, and sends no telemetry.
    """
    ours = {
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # Standard output is reserved for --json.
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    }
    export({name: value for name, value in ours.items() if name not in os.environ})


def search_first(folders: Sequence[Path]) -> None:
    """Make this process and its children search these folders first for modules and packages."""
    sys.path[:0] = map(str, folders)
    usual = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    export({"PYTHONPATH": os.pathsep.join([*map(str, folders), *usual])})


def export(variables: Mapping[str, str]) -> None:
    """Set environment variables of this process, for libraries that read them at import and for child processes."""
    os.environ.update(variables)
