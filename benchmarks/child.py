"""Measurements in fresh processes: what one leaves in memory, no other one sees, and TensorFlow loads only there.

The parent calls :func:`measure`. The child is this module run as a program: it calls the function that it is told to,
with keyword arguments from JSON, and answers with JSON. What libraries print goes to standard error, never into the
answer. The child's standard input is its lifeline: its end means that the parent is gone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from podline.base import entry_points
from podline.base.errors import PodlineError
from podline.settings.environment import child_environment
from podline.stages.supervision import processes

_SHOWN_LINES = 15


def measure(work: Path, entry_point: str, /, **arguments: Any) -> Any:
    """Call ``module:function`` in a fresh process.

    Args:
        work: a folder where libraries may keep their caches, and leave what they should have removed.
        entry_point: the function; it takes and returns what JSON can hold.
        **arguments: its keyword arguments.

    Raises:
        PodlineError: the process failed; the message ends with the last lines that it wrote.
    """
    ours = {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    return _answer(work, [sys.executable, "-P", "-m", __name__, entry_point, json.dumps(arguments)], entry_point, ours)


def measure_elsewhere(work: Path, python: Path, script: Path, /, *names: str, **arguments: Any) -> Any:
    """Run a script in another virtual environment; it prints JSON, as the last line.

    Args:
        work: as of :func:`measure`.
        python: the environment's interpreter.
        script: the script; it has no lifeline.
        *names: its arguments before the last one.
        **arguments: its last argument, as JSON.

    Raises:
        PodlineError: as :func:`measure`.
    """
    command = [str(python), "-P", str(script), *names, json.dumps(arguments)]
    return _answer(work, command, " ".join((script.name, *names)), {"PYTHONPATH": ""})


def _answer(work: Path, command: list[str], what: str, ours: dict[str, str]) -> Any:
    scratch = work / "tmp"
    scratch.mkdir(exist_ok=True)
    environment = child_environment(work / "caches") | ours | {"TMPDIR": str(scratch)}
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(  # noqa: S603 (our own modules)
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment
        ) as process:
            try:
                answer = process.stdout.read() if process.stdout else b""
                code = process.wait()
            except BaseException:
                process.kill()
                raise
        if code:
            errors.seek(0)
            last = b"".join(errors.readlines()[-_SHOWN_LINES:]).decode(errors="replace")
            raise PodlineError(f"the measurement {what} ended with {code}:\n{last}")
    return json.loads(answer.splitlines()[-1])


def main(entry_point: str, arguments: str) -> None:
    """Call a function; write what it returns to the real standard output, as JSON."""
    processes.when_parent_goes(sys.stdin.fileno(), lambda: os._exit(1))
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answer:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        json.dump(entry_points.load(entry_point)(**json.loads(arguments)), answer)
    # A data set that still fetches ahead calls Python from threads of its own, which an interpreter that ends in the
    # usual way may wait for without end.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
