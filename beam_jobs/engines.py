"""Create Beam pipelines for an engine, given its name.

The local engine is Beam's FnApiRunner in this process. It is named explicitly, because ``DirectRunner`` selects a
runner itself and may try to download a binary. docs/how-to/engines.md lists the requirements of each engine.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, GoogleCloudOptions, PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.runner import PipelineResult, PipelineRunner, create_runner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from podline.base.entry_points import install_command
from podline.base.errors import EngineError, SettingsError
from podline.beam_jobs.failures import last_line
from podline.beam_jobs.runners import quiet
from podline.settings.engines import DASK, DATAFLOW, LOCAL, PRISM
from podline.stages.specs import ConvertSpec

_DASK_RUNNER = "apache_beam.runners.dask.dask_runner.DaskRunner"
_RUNNERS = {DASK: _DASK_RUNNER, DATAFLOW: "DataflowRunner"}  # all other engines have a job server
_ENVIRONMENT = "--environment_type"


@contextlib.contextmanager
def open_engine(spec: ConvertSpec) -> Iterator[Callable[[str], beam.Pipeline]]:
    """Yield a factory of named, empty pipelines for a conversion's engine.

    At the end, stop Prism if it was started here, and delete the pipelines' temporary folders.

    Raises:
        SettingsError: a Beam option is unknown or invalid, or an option that the engine needs is missing.
        EngineError: software that the engine needs is not installed here.
    """
    kind, _, address = spec.engine.partition(":")
    with contextlib.ExitStack() as started:
        if kind == PRISM:
            address = started.enter_context(prism())
        flags = [*_flags(kind, address, spec.beam_options), *spec.beam_options]

        def pipeline(name: str) -> beam.Pipeline:
            with _refused(), quiet():
                runner, options = _runner(kind, spec.workers), _options([f"--job_name={name}", *flags])
                if isinstance(runner, FnApiRunner):
                    options.view_as(DirectOptions).direct_num_workers = spec.workers
                made = beam.Pipeline(runner=runner, options=options)
                started.callback(shutil.rmtree, made.local_tempdir, ignore_errors=True)  # Beam keeps it if none runs
                return made

        pipeline("podline")  # refuses invalid options now
        yield pipeline


def where(job: PipelineResult, options: PipelineOptions) -> str:
    """Return the URL at which a Dask cluster or Google Cloud shows a job; empty for other engines."""
    client, number = getattr(job, "client", None), getattr(job, "job_id", None)
    if client or not callable(number):
        return client.dashboard_link if client else ""
    at = options.view_as(GoogleCloudOptions)
    return f"https://console.cloud.google.com/dataflow/jobs/{at.region}/{number()}?project={at.project}"


def _flags(kind: str, address: str, further: Sequence[str]) -> list[str]:
    """Return Beam's options for an engine; the user's options come later and take precedence."""
    for before, flag in itertools.pairwise(["", *further]):
        if not flag.startswith("--") and ("=" in before or not before.startswith("--")):
            raise SettingsError(f"{flag!r} is not a Beam option; write it as --name=value")
        if re.match(r"--runner\b", flag):
            raise SettingsError(f"{flag}: select the engine with --engine instead, see docs/how-to/engines.md")
    if kind == DASK:
        # Dask's default would put 128 shards into one work item.
        return [f"--dask_client_address={address}", "--dask_partition_size=1"]
    if kind in (LOCAL, DATAFLOW):
        return []
    if kind == PRISM:  # workers are threads of this process unless the user sets another environment
        return [f"--job_endpoint={address}", f"{_ENVIRONMENT}=LOOPBACK"]
    if not any(flag.startswith(_ENVIRONMENT) for flag in further):
        raise SettingsError(
            f"engine job-server:{address} needs the environment of its workers: --beam-option={_ENVIRONMENT}=EXTERNAL "
            "(or DOCKER) and --beam-option=--environment_config=…; see docs/how-to/engines.md"
        )
    return [f"--job_endpoint={address}"]


def _runner(kind: str, workers: int) -> PipelineRunner:
    if kind != LOCAL:
        try:
            return create_runner(_RUNNERS.get(kind, "PortableRunner"))  # the imported module declares its options
        except ImportError as error:
            raise EngineError(f"engine {kind} is not installed here ({error}); `{install_command(kind)}`") from error
    if workers == 1:
        return FnApiRunner()
    # The command of direct_running_mode=multi_processing. Its workers also print the traceback of each error that they
    # send, so standard error is closed. exec replaces the shell, so that signals reach the worker.
    command = f"exec {shlex.quote(sys.executable)} -m apache_beam.runners.worker.sdk_worker_main 2>/dev/null"
    environment = SubprocessSDKEnvironment.from_command_string(command)  # pyright: ignore[reportFunctionMemberAccess]
    return FnApiRunner(default_environment=environment)


def _options(flags: Sequence[str]) -> PipelineOptions:
    options = PipelineOptions(list(flags))
    given = options.get_all_options(drop_default=True, retain_unknown_options=True)
    unknown = sorted(set(given) - set(options.get_all_options()))
    if unknown:
        raise SettingsError(f"unknown Beam option --{unknown[0]}; see the options in Beam's PipelineOptions")
    return options


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Turn Beam's errors about invalid options in the body into a SettingsError of one line."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            yield
    except SystemExit as error:  # raised by argparse for an invalid value
        raise SettingsError(f"Beam refuses its options: {last_line(said.getvalue())}") from error
    except (ValueError, ImportError, AttributeError) as error:
        raise SettingsError(f"Beam refuses its options: {last_line(str(error))}") from error


@contextlib.contextmanager
def prism() -> Iterator[str]:
    """Start Prism on a free port, and yield its address; end Prism after the body."""
    program = shutil.which("prism")
    if program is None:
        raise EngineError(
            "engine prism: the program `prism` is not in PATH; build it with `go install "
            f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{beam.__version__}`"
        )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [program, f"--job_port={port}", "--serve_http=false"]
    process = subprocess.Popen(  # noqa: S603 (found in PATH)
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield f"localhost:{port}"
    finally:
        process.kill()
        process.wait()
