"""Turns an error into the message of a failed Prefect run: its kind, the cause and the remedy in one line.

The library's errors name options of the command line; who reads a state's message has a form before him. So ``--root``
becomes the title of its field, by the table of options. What the library says beside the first line (the end of a log,
where the threads were) goes to the run's log.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect.client.schemas.objects import State
from prefect.exceptions import CancelledRun, TerminationSignal
from prefect.logging import get_run_logger
from prefect.states import Failed

from podline.errors import PodlineError, one_line
from podline.options import DataGroup, MachineGroup, RunOptions, SearchOptions, TrainingGroup, TrialOptions, flag_of
from podline.tasks.runs import planned_stop

P = ParamSpec("P")
R = TypeVar("R")

_RUN_LOG = logging.getLogger("prefect.flow_runs")
# What a form calls an option of the command line.
_TITLES = {
    flag_of(name, field): str(field.title)
    for model in (RunOptions, TrainingGroup, DataGroup, MachineGroup, SearchOptions, TrialOptions)
    for name, field in model.model_fields.items()
}


def message_of(error: PodlineError) -> str:
    """Return what a state says of a failure: one line."""
    return f"{error.heading}: {in_form_words(one_line(error))}"


def in_form_words(text: str) -> str:
    """Return a message with the titles of a form's fields in place of options; commands stay as they are."""
    return re.sub(r"`[^`]*`|--[a-z-]+", lambda flag: _TITLES.get(flag[0], flag[0]), text)


def tell_details(error: BaseException, logger: logging.Logger | logging.LoggerAdapter[Any]) -> None:
    """Write what stands below an error's first line to a log."""
    _, _, details = str(error).strip().partition("\n")
    if details:
        logger.warning(details)


def explained(body: Callable[P, R]) -> Callable[P, R | State[Any]]:
    """Return a flow's body that answers with its failures, where Podline explains them: the cause, no traceback.

    A planned stop is no failure, see :mod:`podline.tasks.runs.planned_stop`. Any other exception is a bug, and goes on
    to Prefect.
    """

    @functools.wraps(body)
    def answer(*args: P.args, **kwargs: P.kwargs) -> R | State[Any]:
        try:
            return body(*args, **kwargs)
        except PodlineError as error:
            message = message_of(error)
            get_run_logger().error(message)
            return Failed(message=message, data=error)
        except TerminationSignal:
            pause = planned_stop.interrupted()
            if pause is None:
                raise
            raise pause from None

    return answer


def _is_unexplained(record: logging.LogRecord) -> bool:
    """Keep the engine, which raises what the state says, from writing a traceback into the log."""
    return not (record.exc_info and isinstance(record.exc_info[1], PodlineError | CancelledRun))


_RUN_LOG.addFilter(_is_unexplained)
