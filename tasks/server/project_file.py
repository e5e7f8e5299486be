"""``prefect.yaml``: the file that says what is deployed. Needs no Prefect, so it is read before a server is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from podline.errors import SettingsError

NAME = "prefect.yaml"


def read(folder: Path) -> dict[str, Any]:
    """The document, with a list of deployments that have names and flows.

    Args:
        folder: where it lies.

    Raises:
        SettingsError: there is none, or it names a flow whose file is not there.
    """
    file = folder / NAME
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        entrypoints = {deployment["name"]: str(deployment["entrypoint"]) for deployment in document["deployments"]}
    except OSError as error:
        raise SettingsError(
            f"{file} cannot be read ({error.strerror}); give the folder of Podline's checkout with --project"
        ) from error
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise SettingsError(f"{file} is no file of deployments: {type(error).__name__}: {error}") from error
    for name, entrypoint in entrypoints.items():
        flow, _, _ = entrypoint.partition(":")
        # The others are named by their module, which may be installed.
        if flow.endswith(".py") and not (folder / flow).is_file():
            raise SettingsError(
                f"{file}: {flow}, the flow of {name}, is missing; give the folder of Podline's checkout with --project"
            )
    return document
