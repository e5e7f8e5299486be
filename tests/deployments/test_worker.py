"""What the worker says of runs that wait."""

from __future__ import annotations

import logging

from podline.deployments.worker import Plainly


def record(message: str, run: str) -> logging.LogRecord:
    made = logging.LogRecord("prefect.flow_runs.worker", logging.INFO, "", 0, message, (), None)
    made.flow_run_id = run
    return made


def test_a_run_that_waits_for_its_deployments_limit_says_so_once() -> None:
    plainly, written = Plainly(), []
    for run in ("one", "one", "other"):
        for message in (
            f"Worker 'podline on vm' submitting flow run '{run}'",
            f"Aborted submission of flow run '{run}': Server returned a non-pending state 'SCHEDULED'",
        ):
            line = record(message, run)
            if plainly.filter(line):
                written.append((run, line.getMessage()))
    assert [run for run, _ in written] == ["one", "other"]
    assert written[0][1].startswith("waits: as many runs of its deployment are at work")


def test_all_else_is_said_as_it_is() -> None:
    plainly = Plainly()
    for message in (
        "Flow run 'night' submitted to infrastructure",
        "Aborted submission of flow run 'one': Server returned a non-pending state 'CANCELLED'",
    ):
        line = record(message, "one")
        assert plainly.filter(line)
        assert line.getMessage() == message
