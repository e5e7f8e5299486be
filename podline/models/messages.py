"""Finds the cause in the long messages of Keras and TensorFlow."""

from __future__ import annotations

import re

_STYLE = re.compile(r"\x1b\[\d+m")
# Lines of tracebacks, graphs and arguments, which do not contain the cause.
_BESIDE = re.compile(r"Arguments received by|•|\[\[|\[Op:|File \"|Stack trace for op|Detected at node|<stack traces")
_BEFORE = re.compile(r"^(Exception encountered: |\{\{function_node \S+\}\} )")


def cause(error: BaseException) -> str:
    """Return the line of an error's message that has the cause: the last one that is not of arguments or traces."""
    lines = [line.strip() for line in _STYLE.sub("", str(error)).splitlines()]
    telling = [line for line in lines if line and not _BESIDE.match(line)]
    return _BEFORE.sub("", telling[-1]) if telling else "no message"
