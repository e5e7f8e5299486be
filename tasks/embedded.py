"""Runs a flow in this process, on its own Prefect server with a home under the root.

It neither reads nor writes the user's Prefect settings, and leaves only its home: the server ends with the run, and
with this process in any case. A server takes many seconds to import its code. So it is started first, while
this process does its own imports and inspects the raw data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ValidationError

from podline.base import entry_points
from podline.base.errors import SettingsError
from podline.base.frozen import problem_in
from podline.base.progress import Listener, heard_by, report_work
from podline.settings.machine import Settings
from podline.store.opening import open_store
from podline.tasks.forms import TrainingForm
from podline.tasks.own_server import OwnServer
from podline.tasks.sources import look_at_source, require_source

_STAGE = "prefect"
_DELIVERY_SECONDS = 5.0
_FLOW = "podline.flows.training:training"


def run_training(given: dict[str, Any], machine: Settings, listener: Listener) -> dict[str, Any]:
    """Run the flow from raw data to report in this process.

    Args:
        given: options of the command line, by their fields of :class:`~podline.tasks.forms.TrainingForm`.
        machine: settings with the root and the limits.
        listener: gets the events of the server's start and of every stage.

    Returns:
        The flow's result, see :func:`podline.tasks.artifacts.published`.

    Raises:
        SettingsError: a parameter is invalid.
        SourceError: the source does not exist.
        PodlineError: the server does not start, or an error of a stage.
    """
    try:
        parameters = TrainingForm.of_options(given)
    except ValidationError as error:
        problem = problem_in(error)
        raise SettingsError(f"{problem.loc[-1]} = {problem.input!r}: {problem.msg}") from None
    # A quick check before the server starts; the full check runs while it starts.
    require_source(parameters, machine.root)
    return run_flow(
        _FLOW,
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
    """Run a flow; return its result.

    Args:
        entry_point: the flow, ``module:name``; it takes one argument, ``parameters``.
        parameters: the parameters of the flow.
        machine: settings with the root and the limits.
        listener: gets the events of the server's start and of every stage.
        meanwhile: called while the server starts; its errors end the run.
    """
    with contextlib.ExitStack() as ended:
        with report_work(_STAGE, listener) as reporter:
            reporter.log("starting Prefect's server, which takes 5 to 60 s")
            server = OwnServer(open_store(machine.root))
            ended.callback(server.stop)
            ended.enter_context(heard_by(listener))
            meanwhile()
            flow = entry_points.load(entry_point)
            server.wait(machine.server_timeout)
        ended.callback(_deliver)
        return flow(parameters)


def _deliver() -> None:
    """Deliver pending logs and events to the server before it ends."""
    from prefect.events.worker import EventsWorker  # noqa: PLC0415 (Prefect reads its environment when it is imported)
    from prefect.logging.handlers import APILogWorker  # noqa: PLC0415

    APILogWorker.drain_all(timeout=_DELIVERY_SECONDS)
    EventsWorker.drain_all(timeout=_DELIVERY_SECONDS)
