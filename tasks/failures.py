"""Turns an error into the message of a failed Prefect run: its kind, the cause and the remedy in one line.

The library's errors name options and commands of the command line; who reads a state's message has a form before him.
So ``--root`` becomes the title of its field, and a command that runs a stage becomes a run of a deployment. What the
library says beside the first line (the end of a log, where the threads were) goes to the run's log.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from prefect.client.schemas.objects import State
from prefect.exceptions import CancelledRun, TerminationSignal
from prefect.logging import get_run_logger
from prefect.states import Failed
from pydantic import BaseModel

from podline.errors import PodlineError, one_line
from podline.tasks.finder_parameters import FinderParameters
from podline.tasks.parameters import TrainingForm
from podline.tasks.runs import planned_stop

P = ParamSpec("P")
R = TypeVar("R")

_FORMS = (TrainingForm, FinderParameters)
_RUN_LOG = logging.getLogger("prefect.flow_runs")
# The options that have another name than their field.
_OPTIONS = {"assignments": "set"}
_COMMANDS = (
    (r"use `podline run (\S+) --source [^`]*`", r"choose the recipe \1"),
    (r"make one with `podline convert coco[^`]*`", "make one with a run of the deployment coco-manual"),
    (r"make one with `podline convert (\S+)[^`]*`", r"make one with a run of the deployment cifar-manual, recipe \1"),
    (r"get it with `podline sample [^`]*`", "leave Source empty and the sample is drawn"),
    (r"`podline sample [^`]*` draws some", "an empty Source has some drawn"),
    (r"run `podline (?:convert|train|evaluate)[^`]*` first", "start a run of the deployment first"),
    (r"run `podline (?:convert|train|evaluate)[^`]*` again", "start a run of the deployment again"),
    (r"`podline (?:convert|train|evaluate)[^`]*`", "a run of the deployment"),
)


def message_of(error: PodlineError) -> str:
    """What a state says of a failure: one line."""
    return f"{error.heading}: {in_form_words(one_line(error))}"


def in_form_words(text: str) -> str:
    """A message with the form's fields in place of options, and deployments in place of commands."""
    for command, deed in _COMMANDS:
        text = re.sub(command, deed, text)
    return re.sub(r"--([a-z][a-z-]*)", lambda option: _FIELDS.get(option[1], option[0]), text)


def tell_details(error: BaseException, logger: logging.Logger | logging.LoggerAdapter[Any]) -> None:
    """Writes what stands below an error's first line to a log."""
    _, _, details = str(error).strip().partition("\n")
    if details:
        logger.warning(details)


def explained(body: Callable[P, R]) -> Callable[P, R | State[Any]]:
    """A flow's body whose failures, where Podline explains them, are its answer: no traceback, the cause as the state.

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


def _told(record: logging.LogRecord) -> bool:
    """Keeps the engine, which raises once more what the state says, from writing a traceback into the log."""
    return not (record.exc_info and isinstance(record.exc_info[1], PodlineError | CancelledRun))


_RUN_LOG.addFilter(_told)


def _fields() -> Iterator[tuple[str, str]]:
    """The options and the fields that say the same, by all forms."""
    for form in _FORMS:
        for name, field in form.model_fields.items():
            inner = field.annotation
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                for below, of_group in inner.model_fields.items():
                    yield _option(below), str(of_group.title)
            else:
                yield _option(name), str(field.title)


def _option(field: str) -> str:
    return _OPTIONS.get(field, field.replace("_", "-"))


_FIELDS = dict(_fields())
