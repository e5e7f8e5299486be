"""Describes the origin of a result: version of the code (git or installed package) and machine."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from pathlib import Path

from podline.base.cores import usable_cores
from podline.documents.ledger_entry import CodeVersion, Environment
from podline.store import digests

PACKAGE = "podline"
MOST_CHANGES = 50
"""Largest number of listed files that differ from the commit."""

_HERE = Path(__file__).resolve().parent.parent
# Folders with code, in which untracked modules count as changes. Elsewhere only files that git tracks count.
_PACKAGES = ("podline", "beam_jobs", "tasks", "flows")
# Folders of the package on which a trained model and its outputs depend.
_TRAINS = ("data", "input", "models", "training", "evaluation", "kinds", "recipes")
_FIELD = re.compile(r"^(Name|Version): *(.*?) *$", re.MULTILINE)
_DIGITS = 12
_GIT_SECONDS = 20.0


def code(top: Path = _HERE.parent) -> CodeVersion:
    """Return the version of the running code: commit and changed files of a checkout, or the installed version.

    Args:
        top: the folder with the packages.
    """
    version = importlib.metadata.version(PACKAGE)
    status = _status(top)
    if status is None:
        commit = _installed_commit()
        return CodeVersion(version=version, commit=commit, sources="" if commit else _sources(top), modules=modules())
    commit, changed = status
    changes = {
        path: digests.of_file(top / path)[:_DIGITS] if (top / path).is_file() else "" for path in changed[:MOST_CHANGES]
    }
    more = len(changed[MOST_CHANGES:])
    return CodeVersion(version=version, commit=commit, changes=changes, more_changes=more, modules=modules())


@functools.cache
def modules() -> str:
    """Return a digest of the modules on which a trained model and its outputs depend."""
    return _sources(_HERE.parent, *(f"{PACKAGE}/{folder}" for folder in _TRAINS))


def environment() -> Environment:
    """Return the environment of this process, without strategy and devices."""
    return Environment(
        python=f"{platform.python_version()} ({platform.python_implementation()})",
        platform=platform.platform(),
        machine=platform.node(),
        cores=usable_cores(),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        packages=_packages(),
    )


def _packages() -> dict[str, str]:
    """Return name → version of all installed packages except Podline, sorted by name."""
    found = {}
    for distribution in importlib.metadata.distributions():
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        # importlib's own parser also reads descriptions, which takes 0.26 s of CPU for 270 packages; this takes 0.02 s.
        fields = dict(_FIELD.findall(text.partition("\n\n")[0]))
        name = fields.get("Name", "").lower().replace("_", "-")
        # Of two packages with one name, Python imports the first.
        found.setdefault(name, fields.get("Version", ""))
    return {name: version for name, version in sorted(found.items()) if name and name != PACKAGE}


def _status(top: Path) -> tuple[str, list[str]] | None:
    """Return the commit and the files that differ from the commit; None outside a checkout, or if git fails."""
    # An installed package may lie inside the checkout of another project.
    if _git(top, "ls-files", "--error-unmatch", f"{PACKAGE}/__init__.py") is None:
        return None
    commit = _git(top, "rev-parse", "HEAD")
    # Untracked modules count, since Python imports them too.
    modules = [f"{package}/*.py" for package in _PACKAGES]
    parts = (
        _git(top, "diff", "--name-only", "--no-renames", "--relative", "-z", "HEAD"),
        _git(top, "ls-files", "--others", "--exclude-standard", "-z", "--", *modules),
    )
    if commit is None or None in parts:
        return None
    return commit.strip(), sorted({path for part in parts if part for path in part.split("\0") if path})


def _git(top: Path, *arguments: str) -> str | None:
    """Return the output of a git command; None if git is missing or the command fails."""
    # Without locks, so that other git commands in the checkout are not blocked.
    command = ["git", "--no-optional-locks", "-C", str(top), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=_GIT_SECONDS)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _installed_commit() -> str:
    """Return the commit from which the installed package was built; empty if unknown."""
    text = importlib.metadata.distribution(PACKAGE).read_text("direct_url.json")
    with contextlib.suppress(ValueError):
        return json.loads(text or "{}").get("vcs_info", {}).get("commit_id", "")
    return ""


def _sources(top: Path, *within: str) -> str:
    """Hash every module of some folders; follow symbolic links, which a checkout has in ``podline``."""
    folders = [each for name in within or (PACKAGE,) for each in os.walk(top / name, followlinks=True)]
    files = sorted(Path(folder, name) for folder, _, names in folders for name in names if name.endswith(".py"))
    return digests.of_json([(path.relative_to(top).as_posix(), digests.of_file(path)) for path in files])
