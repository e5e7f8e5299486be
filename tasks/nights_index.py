"""The index of a store's nights, written anew when a training flow ends, well or not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from podline import settings
from podline.errors import PodlineError
from podline.progress import Reporter
from podline.reporting.nights_page import write_index
from podline.storage import open_store
from tasks.parameters import TrainingParameters
from tasks.run_log import everyone


@contextlib.contextmanager
def index_afterwards(parameters: TrainingParameters) -> Iterator[None]:
    """Writes the index after its body; one that is cancelled is left to the next night.

    Args:
        parameters: of the flow run.
    """
    try:
        yield
    except Exception:
        _write_index(parameters)
        raise
    _write_index(parameters)


def _write_index(parameters: TrainingParameters) -> None:
    try:
        write_index(open_store(parameters.machine.root or settings.load().root))
    except PodlineError as error:
        # The night itself is done, and its report is there.
        Reporter("index", everyone("index")).warn(f"the index of nights is not up to date: {error}")
