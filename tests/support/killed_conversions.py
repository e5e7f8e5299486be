"""Conversions in processes of their own, to be killed."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

from podline.base.errors import PodlineError
from podline.base.progress import silent
from podline.beam_jobs.conversion import convert
from podline.settings.machine import Settings
from podline.stages.specs import ConvertSpec
from podline.stages.supervision.supervisor import run_stage

# One server imports Beam once; every conversion that is to be killed is a fork of it.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["podline.beam_jobs.conversion"])


Result = TypeVar("Result")


def _set_environment(variables: dict[str, str]) -> None:
    os.environ.update(variables)


def in_a_process(work: Callable[..., Result], *args: Any, **settings: Any) -> Result:
    """Work in a process of its own with this one's environment; its end frees the cache that it used."""
    with ProcessPoolExecutor(1, PROCESSES, _set_environment, (dict(os.environ),)) as pool:
        return pool.submit(work, *args, **settings).result()


def signalled_at(number: int, function: str, call: int, work: Callable[..., object], *args: object) -> None:
    """Work that gets a signal the ``call``-th time that it enters a function, ``module:name`` or a method's."""
    module_name, _, names = function.partition(":")
    *owners, name = names.split(".")
    owner, calls = importlib.import_module(module_name), 0
    for part in owners:
        owner = getattr(owner, part)
    original = getattr(owner, name)

    def deadly(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), number)
        return original(*args, **kwargs)

    setattr(owner, name, deadly)
    work(*args)


def require_death(function: str, call: int, work: Callable[..., object], *args: object) -> None:
    """Work dies so, in a process of its own."""
    process = start(signalled_at, signal.SIGKILL, function, call, work, *args)
    process.join(240)
    assert process.exitcode == -signal.SIGKILL


def start(target: object, *args: object) -> BaseProcess:
    process = PROCESSES.Process(target=target, args=args)  # type: ignore[arg-type]
    process.start()
    return process


def convert_silently(spec: ConvertSpec) -> None:
    convert(spec, silent())


def convert_elsewhere(url: str, cache: Path, spec: ConvertSpec, silence: float = 0) -> None:
    """Convert in a process that has a cache of its own; its exit code is that of its error.

    With ``silence``, a child does the work, and is ended when it gives no sign of life for so many seconds.
    """
    os.environ |= {"STORAGE_EMULATOR_HOST": url, "PODLINE_STORE_CACHE": str(cache)}
    try:
        if silence:
            run_stage(spec, lambda _event: None, Settings(silence=silence))
        else:
            convert(spec, silent())
    except PodlineError as error:
        print(error)  # noqa: T201 (pytest shows it)
        sys.exit(error.exit_code)
