"""The environment variables of this process and of its children, except those that are settings.

Only this module and :mod:`podline.settings.machine` read and write environment variables. The exception is the package
``podline``, which sets variables before an import.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_GOOGLE_CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS"
SERVER_SECRET = "PREFECT_SERVER_API_AUTH_STRING"  # noqa: S105 (the variable's name)
CLIENT_SECRET = "PREFECT_API_AUTH_STRING"  # noqa: S105 (likewise)
PAGES_SECRET = "PODLINE_PAGES_SECRET"  # noqa: S105 (likewise)
_UI_API_URL = "PREFECT_UI_API_URL"
_VACUUM = "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED"
# Seconds between heartbeats of a flow run; Prefect's default is 180. The automation that finds dead runs, and the
# patrol, depend on it (tasks/server.py).
HEARTBEAT = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}
# Every descendant of a stage's child process inherits this variable, which identifies descendants in other sessions.
STAGE_MARK = "_PODLINE_STAGE"
# Only the variables that Python and native libraries need to start, because others may contain a password.
_FOR_PARSERS = re.compile(
    rf"{STAGE_MARK}|HOME|PATH|TMPDIR|TZ|LANG|LC_\w+|PYTHON\w+|(LD|DYLD)_\w+|VIRTUAL_ENV|CONDA_PREFIX|MALLOC_\w+"
)
# The log level of TensorFlow's C++ code: 0 logs all, 1 no INFO, 2 no WARNING.
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "1", "GRPC_VERBOSITY": "ERROR"}


def gpus_are_hidden() -> bool:
    """Return whether CUDA_VISIBLE_DEVICES hides every GPU from this process."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")


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
    """Return this process's environment for a training job, without variables of Prefect and, but one, of Slurm."""
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


def value_of(variable: str) -> str:
    """Return the value of an environment variable; an empty string if it is not set."""
    return os.environ.get(variable, "")


def prefect_home() -> Path:
    """Return Prefect's home folder (``PREFECT_HOME``), without importing Prefect."""
    return Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()


def use_client_secret(secret: str) -> None:
    """Make Prefect send this secret with requests, unless the user has set one; call this before importing Prefect."""
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
    usual = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []  # an empty entry is the working folder
    export({"PYTHONPATH": os.pathsep.join([*map(str, folders), *usual])})


def export(variables: Mapping[str, str]) -> None:
    """Set environment variables of this process, for libraries that read them at import and for child processes."""
    os.environ.update(variables)
