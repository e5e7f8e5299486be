"""Suggests a command that unpacks an archive which Podline does not read."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

_TAR = ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz"


def unpacking(names: Sequence[str]) -> str:
    """Return the advice to unpack the first archive among some files, for an error; empty without archives."""
    archives = sorted(name for name in names if name.lower().endswith((".zip", *_TAR)))
    if not archives:
        return ""
    place = PurePosixPath(archives[0])
    stem = place.name[: -len(next(end for end in (".zip", *_TAR) if place.name.lower().endswith(end)))]
    file, folder = shlex.quote(str(place)), shlex.quote(str(place.with_name(stem)))
    command = f"unzip {file} -d {folder}"
    if place.suffix.lower() != ".zip":
        command = f"mkdir -p {folder} && tar xf {file} -C {folder}"
    return f"unpack it with `{command}`, and give {folder if len(names) == 1 else 'the same source again'}"
