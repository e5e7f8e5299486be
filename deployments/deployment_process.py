"""Deploys in a child process, so that the caller imports no Prefect."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from podline.errors import PodlineError, from_json


def deployed(
    project: Path,
    environment: Mapping[str, str] | None = None,
    *,
    overwrite: bool = False,
    forget: Sequence[str] = (),
) -> Iterator[dict[str, str]]:
    """Yield what :mod:`podline.deployments.deploy` says that it did, in a process of its own.

    Args:
        project: the folder with ``prefect.yaml``; unless that is the installed package, its runs work there.
        environment: of that process; this one's own unless given.
        overwrite: see :class:`podline.deployments.deploy.Request` …
        forget: … likewise.

    Raises:
        PodlineError: what it says that went wrong.
    """
    request = json.dumps({"folder": str(project.resolve()), "overwrite": overwrite, "forget": list(forget)})
    with subprocess.Popen(  # noqa: S603 (our own module, in our own interpreter)
        [sys.executable, "-P", "-m", "podline.deployments.deploy", request],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None  # noqa: S101 (it is a pipe)
        for line in process.stdout:
            said = json.loads(line)
            if "error" in said:
                raise from_json(said["error"])
            yield said
    if process.returncode:
        raise PodlineError(f"deploying ended with {process.returncode}")


def line_of(change: Mapping[str, str]) -> str:
    """A change for a person."""
    return f"{change['kind']:<18} {change['name']}: {change['did']}"
