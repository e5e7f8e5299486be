"""Measurements in fresh processes: what one leaves in memory, no other one sees, and TensorFlow loads only there.

The parent calls :func:`measure`. The child is this module run as a program: it calls the function that it is told to,
with keyword arguments from JSON, and answers with JSON. What libraries print goes to standard error, never into the
answer.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from podline.errors import PodlineError

_MESSAGE_LINES = 15
# Only errors: what a failed child wrote last is shown to a person.
_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "2"}


def measure(entry_point: str, **arguments: Any) -> Any:
    """Calls ``module:function`` in a fresh process.

    Args:
        entry_point: the function; it takes and returns what JSON can hold.
        **arguments: its keyword arguments.

    Raises:
        PodlineError: the process failed; the message ends with the last lines that it wrote.
    """
    with tempfile.TemporaryFile("w+") as errors:
        command = [sys.executable, "-m", __name__, entry_point, json.dumps(arguments)]
        done = subprocess.run(  # noqa: S603 (our own module, in our own interpreter)
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ | _ENVIRONMENT, check=False
        )
        if done.returncode:
            errors.seek(0)
            last = "".join(errors.readlines()[-_MESSAGE_LINES:])
            raise PodlineError(f"the measurement {entry_point} ended with {done.returncode}:\n{last}")
    return json.loads(done.stdout)


def main(entry_point: str, arguments: str) -> None:
    """Calls a function and writes what it returns to the real standard output, as JSON."""
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    module, _, function = entry_point.partition(":")
    result = getattr(importlib.import_module(module), function)(**json.loads(arguments))
    with answer:
        json.dump(result, answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
