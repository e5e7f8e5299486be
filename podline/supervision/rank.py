"""One process of a job that trains on several hosts: ``python -m podline.supervision.rank SPEC EVENTS``.

The chief appends the events of its stage to the file EVENTS in the store. The flow that waits for the job reads them.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from podline.errors import PodlineError, one_line
from podline.progress import Event
from podline.settings import cluster, load
from podline.stages.specs import TrainSpec
from podline.supervision.child import json_lines, preempted
from podline.supervision.supervisor import run_stage


def main() -> None:
    """Train with the other processes of the job; the exit code is that of :mod:`podline.errors`."""
    spec_file, events_file = map(Path, sys.argv[1:])
    signal.signal(signal.SIGTERM, preempted)
    spec = TrainSpec.model_validate_json(spec_file.read_bytes())
    write = json_lines(os.open(events_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    try:
        try:
            chief = cluster().chief
        except PodlineError as error:  # it is the same in every process
            write({"event": "error", "stage": "train", "error": error.to_json()})
            raise
        run_stage(spec, write if chief else _ignore, load())
    except PodlineError as error:
        sys.stderr.write(f"{one_line(error)}\n")
        sys.exit(error.exit_code)


def _ignore(_event: Event) -> None:
    pass


if __name__ == "__main__":
    main()
