"""Turns the name of an engine into a Beam pipeline.

The local engine is Beam's FnApiRunner in this process, named here and not left to Beam: ``DirectRunner`` chooses by
itself, and may look for a binary that it would download. docs/how-to/engines.md says what each engine needs.
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

from podline.beam_jobs.runners import last_line, quiet
from podline.engines import DASK, DATAFLOW, LOCAL, PRISM
from podline.errors import EngineError, SettingsError
from podline.stages.specs import ConvertSpec

_DASK_RUNNER = "apache_beam.runners.dask.dask_runner.DaskRunner"
_RUNNERS = {DASK: _DASK_RUNNER, DATAFLOW: "DataflowRunner"}  # every other engine has a job server
_ENVIRONMENT = "--environment_type"


@contextlib.contextmanager
def open_engine(spec: ConvertSpec) -> Iterator[Callable[[str], beam.Pipeline]]:
    """Yield a factory of empty pipelines on a conversion's engine, by name; stop the engine's services afterwards.

    Raises:
        SettingsError: an option that Beam does not know, or that the engine needs.
        EngineError: the engine needs something that is not installed here.
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
                return beam.Pipeline(runner=runner, options=options)

        pipeline("podline")  # options that cannot be are refused now
        yield pipeline


def where(job: PipelineResult, options: PipelineOptions) -> str:
    """Return where an engine shows a job: a page of a Dask cluster's or of Google's; else nothing."""
    client, number = getattr(job, "client", None), getattr(job, "job_id", None)
    if client or not callable(number):
        return client.dashboard_link if client else ""
    at = options.view_as(GoogleCloudOptions)
    return f"https://console.cloud.google.com/dataflow/jobs/{at.region}/{number()}?project={at.project}"


def _flags(kind: str, address: str, further: Sequence[str]) -> list[str]:
    """Return Beam's options for an engine; the user's come after them and count."""
    for before, flag in itertools.pairwise(["", *further]):
        if not flag.startswith("--") and ("=" in before or not before.startswith("--")):
            raise SettingsError(f"{flag!r} is not a Beam option: one is written --name=value")
        if re.match(r"--runner\b", flag):
            raise SettingsError(f"{flag}: where the conversion runs is said by --engine, see docs/how-to/engines.md")
    if kind == DASK:
        # By default, 128 shards are one piece of work.
        return [f"--dask_client_address={address}", "--dask_partition_size=1"]
    if kind in (LOCAL, DATAFLOW):
        return []
    if kind == PRISM:  # workers are threads of this process unless the user says where they are
        return [f"--job_endpoint={address}", f"{_ENVIRONMENT}=LOOPBACK"]
    if not any(flag.startswith(_ENVIRONMENT) for flag in further):
        raise SettingsError(
            f"engine job-server:{address}: where are its workers? give --beam-option={_ENVIRONMENT}=EXTERNAL (or "
            "DOCKER) and --beam-option=--environment_config=…; see docs/how-to/engines.md"
        )
    return [f"--job_endpoint={address}"]


def _runner(kind: str, workers: int) -> PipelineRunner:
    if kind != LOCAL:
        try:
            return create_runner(_RUNNERS.get(kind, "PortableRunner"))  # imports its module, which declares its options
        except ImportError as error:
            raise EngineError(
                f"engine {kind} is not installed here ({error}); pip install 'podline[{kind}]'"
            ) from error
    if workers == 1:
        return FnApiRunner()
    # What direct_running_mode=multi_processing would start; but a worker prints the traceback of every error that it
    # sends us as well, so its standard error is closed, and with exec no shell stands between it and the end.
    command = f"exec {shlex.quote(sys.executable)} -m apache_beam.runners.worker.sdk_worker_main 2>/dev/null"
    environment = SubprocessSDKEnvironment.from_command_string(command)  # pyright: ignore[reportFunctionMemberAccess]
    return FnApiRunner(default_environment=environment)


def _options(flags: Sequence[str]) -> PipelineOptions:
    options = PipelineOptions(list(flags))
    given = options.get_all_options(drop_default=True, retain_unknown_options=True)
    unknown = sorted(set(given) - set(options.get_all_options()))
    if unknown:
        raise SettingsError(f"unknown Beam option --{unknown[0]}; see Beam's PipelineOptions for those that there are")
    return options


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Turn what Beam says of options that cannot be into a SettingsError of one line."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            yield
    except SystemExit as error:  # argparse's way to say that a value cannot be
        raise SettingsError(f"Beam refuses its options: {last_line(said.getvalue())}") from error
    except (ValueError, ImportError, AttributeError) as error:
        raise SettingsError(f"Beam refuses its options: {last_line(str(error))}") from error


@contextlib.contextmanager
def prism() -> Iterator[str]:
    """Start Prism on a free port; yield its address."""
    program = shutil.which("prism")
    if program is None:
        raise EngineError(
            "engine prism: there is no program `prism` in PATH; build it by `go install "
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
