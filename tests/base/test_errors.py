"""Errors: budgets of retries, one line from any text, and the way across a process border."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from podline.base import errors

PROJECT = Path(__file__).parents[2]


def test_an_error_keeps_its_class_and_message_across_json() -> None:
    class StoreError(errors.PrunedError):
        """A class of a package, with the name of one of ours and arguments of its own."""

        def __init__(self, step: int, why: str) -> None:
            super().__init__(f"{why} at step {step}")

    # One that is unknown is neither lost nor retried.
    for document, kind, message in (
        (errors.HangError("no progress for 60 s").to_json(), errors.HangError, "no progress for 60 s"),
        (StoreError(7, "flat").to_json(), errors.PrunedError, "flat at step 7"),
        ({"type": "KeyError", "message": "x"}, errors.PodlineError, "KeyError: x"),
    ):
        back = errors.from_json(document)
        assert (type(back), str(back)) == (kind, message)


def test_an_error_that_is_no_bug_is_not_headed_unexpected() -> None:
    plain = {errors.PodlineError, errors.PermanentError, errors.TransientError}
    # A search ends such a trial; nobody is shown it as a failure.
    assert {kind for kind in every(errors.PodlineError) if kind.heading == "Unexpected"} - plain == {errors.PrunedError}
    for folder in ("podline", "tasks", "flows", "beam_jobs", "deployments"):
        for file in (PROJECT / folder).rglob("*.py"):
            assert not re.search(r"(?<!class )\b(Permanent|Transient)Error\(", file.read_text()), file


def every(kind: type[errors.PodlineError]) -> set[type[errors.PodlineError]]:
    """The shipped classes."""
    found = {kind, *(more for child in kind.__subclasses__() for more in every(child))}
    return {each for each in found if each.__module__.startswith("podline.")}


def test_a_preemption_costs_no_failure_and_what_cannot_help_is_not_tried() -> None:
    budgets = errors.Budgets()
    assert budgets.after(errors.TpuGoneError("gone")) == errors.Retry(30, 1, 5)
    assert budgets.after(errors.TpuUnhealthyError("ill")) == errors.Retry(300, 1, 3)
    assert budgets.after(errors.TpuGoneError("gone")) == errors.Retry(60, 2, 5)
    assert [budgets.after(errors.UnexplainedError("?")) for _ in range(2)] == [errors.Retry(60, 1, 1), None]
    assert budgets.after(errors.SourceError("bad")) is None
    assert budgets.after(KeyError("bug")) is None


KERAS = "Exception encountered when calling Gate.call().\n\n\x1b[1m"
GRAPH = (
    'Graph execution error:\n\nDetected at node a/Reshape defined at:\n  File "x.py", line 4, in call\n\n'
    "6 values, but a multiple of 46\n\t [[{{node a/Reshape}}]] [Op:__inference_f_16]"
)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError(f"{KERAS}No shape. Error:\n\nno axis 7\x1b[0m\n\nArgs: 3"), "Gate: No shape. Error: no axis 7"),
        (KeyError(f"{KERAS}rate\x1b[0m\n"), "Gate: rate"),
        (RuntimeError(GRAPH), "a/Reshape: 6 values, but a multiple of 46"),
        (RuntimeError("{{function_node f_7}} indices[0] = 9\n\t [[{{node GatherV2}}]]"), "GatherV2: indices[0] = 9"),
        (ValueError("{{ name }} is open\nsecond line"), "{{ name }} is open"),
        (KeyError("HOME"), "'HOME'"),
        (ValueError(), "ValueError"),
    ],
)
def test_an_error_in_one_line_says_where_in_a_model_and_why(error: Exception, line: str) -> None:
    assert errors.one_line(error) == line


@pytest.mark.parametrize("part", ["1.0, ", "Exception encountered when calling ", "{{", "a.b-", "a://b:"])
def test_a_message_that_contains_a_whole_array_takes_no_minutes(part: str) -> None:
    began = time.monotonic()
    line = errors.one_line(errors.SourceError(part * 30_000))
    assert len(line) == 500
    assert time.monotonic() - began < 20, "a search in quadratic time takes minutes"
