"""Reads ``prefect.yaml``, the file of deployments, without importing Prefect.

In an installed package the file is next to this module. In a checkout, a link there leads to the file at its top.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from podline.base.errors import SettingsError

NAME = "prefect.yaml"
_PROJECT = "podline"
_HERE = Path(__file__).resolve().parent
OURS = (_HERE / NAME).resolve().parent
"""The folder of the file that belongs to this code: the checkout, or a folder in the installed package."""


def is_installed(folder: Path = OURS) -> bool:
    """Return whether a folder is part of an installed package, where runs cannot work."""
    return folder.resolve() == _HERE


def default_folder() -> Path:
    """Return the default folder of prefect.yaml: the current one if it has Podline's file, otherwise the package's."""
    here = Path.cwd()
    try:
        document = yaml.safe_load((here / NAME).read_text(encoding="utf-8"))
    except OSError:
        return OURS
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        # It may be Podline's file with an error, which the reader reports.
        return here
    return here if isinstance(document, dict) and document.get("name") == _PROJECT else OURS


def read(folder: Path) -> dict[str, Any]:
    """Return the document, with a list of deployments that have names and flows.

    For an installed package, runs pull nothing: the flows are installed, and a run works in a temporary folder.

    Args:
        folder: the folder with the file.

    Raises:
        SettingsError: the file is missing or invalid, or a flow file that it names is missing.
    """
    file = folder / NAME
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        entrypoints = {deployment["name"]: str(deployment["entrypoint"]) for deployment in document["deployments"]}
    except OSError as error:
        raise SettingsError(
            f"{file} cannot be read ({error.strerror}); set the folder of Podline's checkout with --project"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, RecursionError) as error:
        raise SettingsError(f"{file} is not a valid deployment file: {type(error).__name__}: {error}") from error
    for name, entrypoint in entrypoints.items():
        flow, _, _ = entrypoint.partition(":")
        # The others are named by their modules, which may be installed.
        if flow.endswith(".py") and not (folder / flow).is_file():
            raise SettingsError(
                f"{file}: {flow}, the flow of {name}, is missing; set the folder of Podline's checkout with --project"
            )
    return {**document, "pull": []} if is_installed(folder) else document
