"""Runs a flow in this process, on a Prefect server of its own whose home is under the root.

Nothing of the user's Prefect is read or written, and nothing is left behind but the home: the server ends with the run,
and with this process, however that ends. A server takes ten seconds and more to come up, since that is what importing
it takes; so it is started first, and this process imports and looks at the raw data meanwhile.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from podline import processes, settings
from podline.errors import PodlineError, SettingsError
from podline.progress import Listener, Reporter
from podline.settings import Settings
from podline.storage import Store, explained, open_store
from tasks.listening import heard_by
from tasks.parameters import CifarParameters
from tasks.sources import look_at_source

_STAGE = "prefect"
_HOST = "127.0.0.1"
_STOP_SECONDS = 5.0


def run_cifar_training(given: dict[str, Any], machine: Settings, listener: Listener) -> dict[str, Any]:
    """The flow cifar_training, embedded.

    Args:
        given: fields of :class:`~tasks.parameters.CifarParameters`.
        machine: the root and the limits.
        listener: gets the events of the server's start and of every stage.

    Returns:
        The flow's answer, see :func:`tasks.outcome.summary`.

    Raises:
        SettingsError: parameters that cannot be.
        PodlineError: what a stage raised.
    """
    try:
        parameters = CifarParameters.model_validate(given)
    except ValidationError as error:
        problem = error.errors()[0]
        raise SettingsError(f"{problem['loc'][0]} = {problem['input']!r}: {problem['msg']}") from None
    return run_flow(
        "flows.cifar_training:cifar_training",
        parameters,
        machine,
        listener,
        meanwhile=lambda: look_at_source(parameters, machine.root),
    )


def run_flow(
    entry_point: str,
    parameters: BaseModel,
    machine: Settings,
    listener: Listener,
    meanwhile: Callable[[], object] = lambda: None,
) -> Any:
    """A flow's answer.

    Args:
        entry_point: the flow, ``module:name``; it takes one argument, ``parameters``.
        parameters: what the flow is given.
        machine: the root and the limits.
        listener: gets the events of the server's start and of every stage.
        meanwhile: is done while the server starts; what it raises ends the run.
    """
    started = time.monotonic()
    listener({"event": "start", "stage": _STAGE})
    Reporter(_STAGE, listener).log("starting Prefect's server, which takes 10 to 60 s")
    with heard_by(listener), _server(open_store(machine.root)) as wait:
        meanwhile()
        module, _, name = entry_point.partition(":")
        flow = getattr(importlib.import_module(module), name)
        wait(machine.server_timeout)
        listener({"event": "result", "stage": _STAGE, "result": {"seconds": time.monotonic() - started}})
        try:
            return flow(parameters)
        finally:
            _deliver()


def _deliver() -> None:
    """Hands the server what is still on its way to it, since it is about to end."""
    from prefect.events.worker import EventsWorker  # noqa: PLC0415 (Prefect reads its environment when it is imported)
    from prefect.logging.handlers import APILogWorker  # noqa: PLC0415

    APILogWorker.drain_all(timeout=_STOP_SECONDS)
    EventsWorker.drain_all(timeout=_STOP_SECONDS)


@contextlib.contextmanager
def _server(store: Store) -> Iterator[Callable[[float], None]]:
    """A server that starts; this process's environment says where it will be. Yields what waits until it answers."""
    home, log = store.path(".podline/prefect"), store.path(".podline/logs/prefect.log")
    with explained("write to the store", store.root):
        home.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        output = log.open("wb")
    with output, socket.create_server((_HOST, 0)) as listening:
        port = listening.getsockname()[1]
        settings.use_embedded_prefect(home, f"http://{_HOST}:{port}/api")
        listen_fd = str(listening.fileno())
        process = subprocess.Popen(  # noqa: S603 (our own module, in our own interpreter)
            [sys.executable, "-P", "-m", "tasks.server", "--listen-fd", listen_fd, "--lock", str(home / "lock")],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(listening.fileno(),),
            start_new_session=True,
        )
    assert process.stdin is not None  # noqa: S101 (it is a pipe)
    try:
        yield lambda seconds: _wait(port, seconds, log)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
        processes.kill_group(process.pid)
        process.wait()
        process.stdin.close()


def _wait(port: int, seconds: float, log: Path) -> None:
    """Waits until the server answers: the question waits at its socket until it is up."""
    connection = http.client.HTTPConnection(_HOST, port, timeout=seconds)
    try:
        connection.request("GET", "/api/health")
        status = connection.getresponse().status
    except TimeoutError:
        raise PodlineError(
            f"Prefect's server did not come up within {seconds:g} s (the setting server_timeout); see {log}"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise PodlineError(f"Prefect's server ended while it started ({error}); see {log}") from error
    finally:
        connection.close()
    if status != http.HTTPStatus.OK:
        raise PodlineError(f"Prefect's server answers with status {status}; see {log}")
