"""Deploys to a Prefect server: work pools, automations, and deployments with their limits.

A new deployment is as in ``prefect.yaml``. For an existing deployment, only version, flow, form and pull steps are
updated, and the address of the pages in the description. So everything that a user sets in Prefect's UI stays:
parameters, schedules, tags, limits, the description, the work pool. Repetition changes nothing, except with
``--overwrite``.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolCreate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import MissingFlowError, ObjectNotFound, PrefectHTTPStatusError, ScriptError
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.settings import PREFECT_API_URL
from prefect.utilities.templating import apply_values

from podline.base.errors import PodlineError, SettingsError
from podline.deployments import automations, project_file
from podline.deployments.automations import AS_IT_WAS
from podline.settings import environment
from podline.settings import machine as settings
from podline.tasks.server import TPU_TAG, explained, require_named

_KEPT = f"as on the server; --overwrite sets those of {project_file.NAME}"
_PWD = re.compile(r"\{\{ *\$PWD *\}\}")
POOLS = {
    "cpu": "Flows on a machine without accelerators, or with GPUs.",
    "tpu": "Stages on a TPU's own node, run by its worker.",
}


class Deployed(NamedTuple):
    """An object on the server, and the action taken: ``made``, ``changed``, ``as it was``, or a note."""

    kind: str
    name: str
    did: str

    def __str__(self) -> str:
        return f"{self.kind:<18} {self.name}: {self.did}"


def deployed(folder: Path, *, overwrite: bool = False) -> Iterator[Deployed]:
    """Create or update work pools, automations and the deployments in ``prefect.yaml``.

    Objects for TPUs are only created if the settings name a TPU; existing ones are always kept up to date.

    Args:
        folder: the folder with ``prefect.yaml``, and with flows that it refers to by file.
        overwrite: whether everything in the file replaces what is on the server.

    Raises:
        SettingsError: the file or a flow of it does not exist or is invalid, no server is named, the server needs a
            different secret, or it lacks a block of the setting nights.notify.
        ServerAwayError: the server does not answer.
        PodlineError: the server refuses the request, or ``prefect deploy`` fails.
    """
    document = project_file.read(folder)
    require_named()
    with explained(), get_client(sync_client=True) as client:
        yield from _deployed(client, folder, document, overwrite=overwrite)


def _deployed(
    client: SyncPrefectClient, folder: Path, document: dict[str, Any], *, overwrite: bool
) -> Iterator[Deployed]:
    found = [(_flow(folder, each), _completed(each)) for each in document["deployments"]]
    flows = {f"{flow.name}/{each['name']}": flow for flow, each in found}
    if len(flows) < len(found):
        raise SettingsError(f"{folder / project_file.NAME}: two deployments of a flow have one name; rename one")
    written = dict(zip(flows, (each for _, each in found), strict=True))
    before = _deployments(client, written)
    for_tpus = settings.load().tpu is not None or any(TPU_TAG in written[name].get("tags", ()) for name in before)
    wanted = {name: each for name, each in written.items() if for_tpus or TPU_TAG not in each.get("tags", ())}
    for pool in dict.fromkeys(each["work_pool"]["name"] for each in wanted.values() if each.get("work_pool")):
        yield Deployed("work pool", pool, _pool(client, pool, POOLS.get(pool, "")))
    for automation in automations.wanted(automations.blocks_named(client, settings.load().nights.blocks)):
        yield Deployed("automation", automation.name, automations.put(client, automation))

    kept = {} if overwrite else before
    for found in before.values() if overwrite else ():
        # Prefect's command refuses schedules beside those that are there, or adds them.
        for schedule in found.schedules:
            client.delete_deployment_schedule(found.id, schedule.id)
    if new := [each for name, each in wanted.items() if name not in kept]:
        _deploy(folder, {**document, "deployments": new})
    forms = {name: flow.parameters.model_dump(mode="json", exclude_unset=True) for name, flow in flows.items()}
    for name, each in wanted.items():
        did = "changed" if name in before else "made"
        if found := kept.get(name):
            did = _renewed(client, found, each, forms[name], _pull(folder, each, document))
        yield Deployed("deployment", each["name"], did)
    if kept:
        yield Deployed("kept", "parameters, schedules, tags, limits", _KEPT)


def _renewed(
    client: SyncPrefectClient, found: DeploymentResponse, deployment: dict[str, Any], form: dict[str, Any], pull: Any
) -> str:
    """Set version, flow, form, pull steps and the description's link where they differ; return the action taken."""
    values = {
        "version": deployment["version"],
        "description": _relinked(found.description),
        "entrypoint": deployment["entrypoint"],
        "parameter_openapi_schema": form,
        "enforce_parameter_schema": deployment.get("enforce_parameter_schema", True),
        "pull_steps": found.pull_steps if pull is None else pull,
    }
    changed = {name: value for name, value in values.items() if getattr(found, name) != value}
    if not changed:
        return AS_IT_WAS
    try:
        client.update_deployment(found.id, DeploymentUpdate(**changed))
    except PrefectHTTPStatusError as error:
        if error.response.status_code != httpx.codes.CONFLICT:
            raise
        reason = error.response.json()["detail"]
        return f"not changed: its parameters on the server do not fit the form ({reason}); --overwrite replaces them"
    return "changed"


def _completed(deployment: dict[str, Any]) -> dict[str, Any]:
    """Return a deployment with Podline's version and, if ``pages.url`` is set, a link to the index of nights."""
    described = str(deployment.get("description") or "").strip()
    if (url := settings.load().pages.url) and TPU_TAG not in deployment.get("tags", ()):
        described = f"{described}\n\n{_link(url)}".strip()
    return {"version": importlib.metadata.version("podline"), **deployment, "description": described}


def _relinked(description: str | None) -> str | None:
    """Return a deployment's description on the server with the present address in its link to the index of nights."""
    url = settings.load().pages.url
    return re.sub(r"\[All nights\]\([^)]*\)", lambda _: _link(url), description) if url and description else description


def _link(url: str) -> str:
    return f"[All nights]({url.rstrip('/')}/)"


def _pull(folder: Path, deployment: Mapping[str, Any], document: Mapping[str, Any]) -> Any:
    """Return the pull steps of a deployment, with the values of variables, like ``prefect deploy``; None if none."""
    steps = deployment.get("pull", document.get("pull"))
    # $PWD does not follow when a process changes its folder.
    here = _PWD.sub(lambda _: json.dumps(str(folder))[1:-1], json.dumps(steps))
    return apply_values(json.loads(here), {}, remove_notset=False)


def _pool(client: SyncPrefectClient, name: str, about: str) -> str:
    """Create a work pool unless it exists: a user may have chosen a different type."""
    try:
        client.read_work_pool(name)
    except ObjectNotFound:
        client.create_work_pool(WorkPoolCreate(name=name, type="process", description=about))
        return "made"
    return AS_IT_WAS


def _flow(folder: Path, deployment: Mapping[str, Any]) -> Flow[..., Any]:
    """Return the flow of a deployment.

    Raises:
        SettingsError: the entry point does not name a flow.
    """
    entrypoint = str(deployment["entrypoint"])
    # Like `prefect deploy`, this also searches the folder for modules and files.
    sys.path.insert(0, str(folder))
    try:
        return load_flow_from_entrypoint(str(folder / entrypoint) if ":" in entrypoint else entrypoint)
    except (ImportError, OSError, ScriptError, MissingFlowError) as error:
        raise SettingsError(
            f"{folder / project_file.NAME}: {entrypoint}, the flow of {deployment['name']}, is not found: {error}"
        ) from error
    finally:
        sys.path.remove(str(folder))


def _deployments(client: SyncPrefectClient, names: Iterable[str]) -> dict[str, DeploymentResponse]:
    """Return the deployments of these names, ``flow/deployment``, that exist on the server."""
    found = {}
    for name in names:
        with contextlib.suppress(ObjectNotFound):
            found[name] = client.read_deployment_by_name(name)
    return found


def _deploy(folder: Path, document: Mapping[str, Any]) -> None:
    """Run ``prefect deploy``, so that the file has the meaning that Prefect documents."""
    with tempfile.TemporaryDirectory(prefix="podline-deploy-") as temporary:
        file = Path(temporary) / project_file.NAME
        # Prefect imports flows from the current folder; a package's modules cannot be imported as top-level modules.
        where = Path(temporary) if project_file.is_installed(folder) else folder
        file.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), encoding="utf-8")
        done = subprocess.run(  # noqa: S603 (Prefect's command, in our own interpreter)
            [sys.executable, "-P", "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", str(file)],
            cwd=where,
            # The file names the folder as $PWD, which does not follow when a process changes its folder.
            env=environment.environment_in(where) | {"PREFECT_API_URL": PREFECT_API_URL.value() or ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise PodlineError(f"`prefect deploy --all` in {folder} ended with {done.returncode}:\n{last}")
