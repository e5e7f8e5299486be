"""Filters the lines that TensorFlow writes to standard error at every start; all other lines still appear.

Environment variables cannot do that: TensorFlow writes most of these lines before it reads any variable.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NOISE = re.compile(
    r"^Extension modules: |^(\S+ \S+: )?I(\d{4})? .*\S\.(cc|h|py):\d+\] "  # information, in absl's layout
    r"|\.(cc|h):\d+\] .*(cuda|cudnn|cufft|cublas|cuInit|computation placer|TensorRT|TF-TRT)"
    r"|^To enable the following instructions: |^WARNING: All log messages before absl::InitializeLog",
    re.IGNORECASE,
)
"""Lines that TensorFlow and XLA write at every start, mostly on machines without a GPU."""

_TENSORFLOW = "tensorflow"
_END_SECONDS = 2.0
# This filter runs in a process of its own, so that the last lines of an aborting process still get through.
_FILTER = """
import re, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
noise = re.compile(sys.argv[1], re.IGNORECASE)
for line in sys.stdin.buffer:
    if not noise.search(line.decode(errors="replace")):
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
"""


def quiet_tensorflow() -> None:
    """Filter standard error while this process imports TensorFlow; a second call has no effect."""
    if _TENSORFLOW not in sys.modules and not any(isinstance(finder, _Quietly) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Quietly())


class _Quietly(MetaPathFinder):
    """Finds TensorFlow as usual, and filters standard error during its import and its search for devices."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Return TensorFlow's usual spec with a filtering ``exec_module``; None for any other module."""
        del path, target
        if fullname != _TENSORFLOW:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_quietly(module: Any) -> None:
            with _filtered_errors():
                execute(module)
                module.config.list_physical_devices("GPU")  # writes the lines about devices

        loader.exec_module = execute_quietly
        return spec


@contextlib.contextmanager
def _filtered_errors() -> Iterator[None]:
    """Pass this process's standard error, also that of native code, through a filter while the body runs."""
    # Imported only here, so that `podline --help` need not wait.
    import subprocess  # noqa: PLC0415

    from podline.settings.environment import quiet_libraries  # noqa: PLC0415

    quiet_libraries()
    usual, (reading, writing) = os.dup(2), os.pipe()
    command = [sys.executable, "-I", "-S", "-c", _FILTER, NOISE.pattern]
    passing = subprocess.Popen(command, stdin=reading, stdout=subprocess.DEVNULL)  # noqa: S603 (a program of ours)
    os.close(reading)
    sys.stderr.flush()
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(usual, 2)
        os.close(usual)
        # The filter ends with the last process that holds its pipe, maybe one that started during the body.
        with contextlib.suppress(subprocess.TimeoutExpired):
            passing.wait(_END_SECONDS)
