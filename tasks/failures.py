"""Turns an error into the message of a failed Prefect run: its kind, the cause and the remedy in one line.

The library's errors name options of the command line, but the reader of a state's message has a form. So ``--root`` is
replaced by the title of its field, by the table of options. Further lines of an error (the end of a log, the stacks of
threads) go to the run's log. The run's card says it too, with what docs/how-to/failed-run.md advises for its kind.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from posixpath import normpath
from typing import Any, ParamSpec, TypeVar

from prefect.client.schemas.objects import State
from prefect.exceptions import CancelledRun, TerminationSignal
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Failed

from podline.errors import PodlineError, one_line
from podline.options import DataGroup, MachineGroup, RunOptions, SearchOptions, TrainingGroup, TrialOptions, flag_of
from podline.reporting.escaping import markdown
from podline.tasks.runs import planned_stop
from podline.tasks.runs.progress_card import say_first

P = ParamSpec("P")
R = TypeVar("R")

_RUN_LOG = logging.getLogger("prefect.flow_runs")
_PAGE = "docs/how-to/failed-run.md"
# An option's title in forms.
_TITLES = {
    flag_of(name, field): str(field.title)
    for model in (RunOptions, TrainingGroup, DataGroup, MachineGroup, SearchOptions, TrialOptions)
    for name, field in model.model_fields.items()
}


def message_of(error: PodlineError) -> str:
    """Return the message of a state for a failure, in one line."""
    return f"{error.heading}: {in_form_words(one_line(error))}"


@functools.cache
def remedies() -> dict[str, str]:
    """Return what to do in Markdown, by the heading of a failure: the first table of docs/how-to/failed-run.md."""
    rows = re.findall(r"^\| (\*.+:\*) \| (.+) \|$", (files("podline") / _PAGE).read_text("utf-8"), re.MULTILINE)
    return {
        heading: re.sub(r"\[[^]]+\]\(([^)]+)\)", lambda link: f"`{normpath(f'{_PAGE}/../{link[1]}')}`", advice)
        for headings, advice in rows
        for heading in re.findall(r"\*([^*]+):\*", headings)
    }


def in_form_words(text: str) -> str:
    """Replace options in a message by the titles of a form's fields; commands stay unchanged."""
    return re.sub(r"`[^`]*`|--[a-z-]+", lambda flag: _TITLES.get(flag[0], flag[0]), text)


def tell_details(error: BaseException, logger: logging.Logger | logging.LoggerAdapter[Any]) -> None:
    """Write the lines of an error after the first one to a log."""
    _, _, details = str(error).strip().partition("\n")
    if details:
        logger.warning(details)


def explained(body: Callable[P, R]) -> Callable[P, R | State[Any]]:
    """Wrap a flow's body so that it returns Podline's errors as failed states, with the cause and no traceback.

    A planned stop is not a failure, see :mod:`podline.tasks.runs.planned_stop`. Any other exception is a bug, which
    Prefect handles.
    """

    @functools.wraps(body)
    def answer(*args: P.args, **kwargs: P.kwargs) -> R | State[Any]:
        try:
            return body(*args, **kwargs)
        except PodlineError as error:
            message = message_of(error)
            get_run_logger().error(message)
            advice = remedies().get(error.heading)
            text = f"**Failed.** {markdown(message)}" + (f"\n\n**What to do:** {advice}" if advice else "")
            say_first(_recipe(), text, f"Failed: {markdown(message)}")
            return Failed(message=message, data=error)
        except TerminationSignal:
            pause = planned_stop.interrupted()
            if pause is None:
                raise
            raise pause from None

    return answer


def _recipe() -> str:
    given = flow_run.parameters.get("parameters", {})
    recipe = given.get("recipe") if isinstance(given, Mapping) else getattr(given, "recipe", None)
    return str(recipe or flow_run.flow_name)


def _is_unexplained(record: logging.LogRecord) -> bool:
    """Return False for the engine's record that would repeat the state's message with a traceback."""
    return not (record.exc_info and isinstance(record.exc_info[1], PodlineError | CancelledRun))


_RUN_LOG.addFilter(_is_unexplained)
