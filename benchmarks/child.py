"""Runs measurements in fresh processes, so that no measurement affects the memory or caches of another one.

The parent calls :func:`measure`. The child runs this module, which calls the named function with keyword arguments from
JSON, and prints the result as JSON. Output of libraries goes to standard error. When the parent ends, the child's
standard input closes, and the child ends too.
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
        work: a folder for caches and temporary files of libraries.
        entry_point: the function; its arguments and result must be JSON values.
        **arguments: the function's keyword arguments.

    Raises:
        PodlineError: the process failed; the message ends with the last lines of its output.
    """
    ours = {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    return _answer(work, [sys.executable, "-P", "-m", __name__, entry_point, json.dumps(arguments)], entry_point, ours)


def measure_elsewhere(work: Path, python: Path, script: Path, /, *names: str, **arguments: Any) -> Any:
    """Run a script in another virtual environment; return the JSON of the last line that it prints.

    Args:
        work: see :func:`measure`.
        python: the environment's interpreter.
        script: the script; it does not end with this process.
        *names: the script's first arguments.
        **arguments: the script's last argument, a JSON object.

    Raises:
        PodlineError: see :func:`measure`.
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
    """Call a function; write its result as JSON to standard output, and everything else to standard error."""
    processes.when_parent_goes(sys.stdin.fileno(), lambda: os._exit(1))
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answer:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        json.dump(entry_points.load(entry_point)(**json.loads(arguments)), answer)
    # Threads of a data set that still prefetches may block the interpreter's usual exit forever.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
