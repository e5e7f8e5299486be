"""One worker of a job that trains on several hosts: ``python -m podline.stages.supervision.rank SPEC EVENTS``.

The chief appends the events of its stage to the file EVENTS in the store. The flow that follows the job reads them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from podline.base.errors import PodlineError, PreemptedError, one_line
from podline.base.interruptions import interruptible
from podline.base.progress import Listener, Reporter, ignored
from podline.settings.machine import cluster, load
from podline.stages.specs import TrainSpec
from podline.stages.supervision.child import json_lines, preempted
from podline.stages.supervision.supervisor import run_stage


def main(train: Callable[[TrainSpec, Path], object]) -> None:
    """Call ``train`` with the spec and the events file that the command line names; exit with its error's code."""
    spec_file, events = map(Path, sys.argv[1:])
    try:
        train(TrainSpec.model_validate_json(spec_file.read_bytes()), events)
    except PodlineError as error:
        sys.stderr.write(f"{one_line(error)}\n")
        sys.exit(error.exit_code)


def appended(events: Path) -> Listener:
    """Return a listener that appends each event to a file as a line of JSON."""
    return json_lines(os.open(events, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))


def _train(spec: TrainSpec, events: Path) -> None:
    """Train as one worker of the job."""
    write = appended(events)
    try:
        chief = cluster().chief
    except PodlineError as error:  # every worker has the same error
        Reporter("train", write).failed(error.to_json())
        raise
    listener = write if chief else ignored
    try:
        with preempted(), interruptible():
            run_stage(spec, listener, load())
    except PreemptedError as error:
        Reporter("train", listener).failed(error.to_json())
        raise


if __name__ == "__main__":
    main(_train)
