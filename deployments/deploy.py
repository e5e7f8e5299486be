"""Deploys to a Prefect server: work pools, limits, automations and deployments. Repetition changes nothing.

A deployment's ``version`` is a hash of its entry in ``prefect.yaml``, its form and Podline's version. A deployment with
the same version is left unchanged. Otherwise `prefect deploy` would overwrite a user's changes in Prefect's UI, so
values are merged (:mod:`podline.deployments.deployment_merge`): a Variable for each deployment stores the last values
from ``prefect.yaml``, which shows whether the user or the file changed a value.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.exceptions import MissingFlowError, ObjectNotFound, ScriptError
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.settings import PREFECT_API_URL
from prefect.variables import Variable

from podline import settings
from podline.deployments import automations, project_file
from podline.deployments.automations import AS_IT_WAS
from podline.deployments.deployment_merge import (
    ABSENT,
    Difference,
    Values,
    defaults_of,
    in_words,
    merged,
    path_of,
    values_of,
    with_values,
)
from podline.errors import PodlineError, SettingsError
from podline.tasks.asking import explained, require_named
from podline.tasks.server import TPU_TAG

POOLS = {
    "cpu": "Flows on a machine without accelerators, or with GPUs.",
    "tpu": "Stages on a TPU's own node, run by its worker.",
}


class Change(NamedTuple):
    """An object on the server, and the action taken: ``made``, ``changed``, ``as it was``, or a note about a value."""

    kind: str
    name: str
    did: str

    def __str__(self) -> str:
        return f"{self.kind:<18} {self.name}: {self.did}"


def deployed(folder: Path, *, overwrite: bool = False) -> Iterator[Change]:
    """Create or update work pools, automations and the deployments in ``prefect.yaml``.

    Objects for TPUs are only created if the settings name a TPU; existing ones are always kept up to date.

    Args:
        folder: the folder with ``prefect.yaml``, and with flows that it refers to by file.
        overwrite: whether the file's values replace values that a user set on the server.

    Raises:
        SettingsError: the file does not exist, no server is named, the server needs a different secret, or it lacks a
            block of the setting nights.notify.
        PodlineError: the server does not answer, or refuses the request.
    """
    document = project_file.read(folder)
    require_named()
    with explained(), get_client(sync_client=True) as client:
        yield from _deployed(client, folder, document, overwrite=overwrite)


class _Plan(NamedTuple):
    """The plan for a deployment.

    Attributes:
        deployment: the deployment, as in ``prefect.yaml``.
        file: the values in ``prefect.yaml``.
        schedules: the schedules to delete from the server.
        differences: the values that a user set on the server.
        did: the action: ``made``, ``changed`` or ``as it was``.
    """

    deployment: dict[str, Any]
    file: Values
    schedules: list[DeploymentSchedule]
    differences: list[Difference]
    did: str


def _deployed(
    client: SyncPrefectClient, folder: Path, document: dict[str, Any], *, overwrite: bool
) -> Iterator[Change]:
    flows = [_flow(folder, each) for each in document["deployments"]]
    names = [f"{flow.name}/{each['name']}" for flow, each in zip(flows, document["deployments"], strict=True)]
    written = dict(zip(names, document["deployments"], strict=True))
    forms = {name: flow.parameters.model_dump() for name, flow in zip(names, flows, strict=True)}
    before = _deployments(client, written)
    for_tpus = settings.load().tpu is not None or any(TPU_TAG in written[name].get("tags", ()) for name in before)
    wanted = {name: each for name, each in written.items() if for_tpus or TPU_TAG not in each.get("tags", ())}
    for pool in dict.fromkeys(each["work_pool"]["name"] for each in wanted.values() if each.get("work_pool")):
        yield Change("work pool", pool, _pool(client, pool, POOLS.get(pool, "")))
    for automation in automations.wanted(automations.blocks_named(client, settings.load().nights.blocks)):
        yield Change("automation", automation.name, automations.put(client, automation))

    plans = {}
    for name, each in wanted.items():
        deployment = _with_pages(each, settings.load().pages.url)
        version = _hash(str(folder), {**document, "deployments": deployment}, forms[name])
        # The file's values at the last deployment.
        last: Any = Variable.get(_variable(name), default={})
        plans[name] = _planned(deployment, version, last, before.get(name), overwrite=overwrite)
    changed = {name: plan for name, plan in plans.items() if plan.did != AS_IT_WAS}
    for name, plan in changed.items():
        for schedule in plan.schedules:
            client.delete_deployment_schedule(before[name].id, schedule.id)
    if changed:
        _deploy(folder, {**document, "deployments": [plan.deployment for plan in changed.values()]})
    for name, plan in changed.items():
        Variable.set(_variable(name), plan.file, tags=["podline"], overwrite=True)
    for plan in plans.values():
        short = plan.deployment["name"]
        yield Change("deployment", short, plan.did)
        for difference in plan.differences:
            yield Change("", f"{short}.{difference.path}", _about(difference, overwritten=overwrite))


def _planned(
    deployment: dict[str, Any], version: str, last: Values, server: DeploymentResponse | None, *, overwrite: bool
) -> _Plan:
    """Merge a deployment in the file with the one on the server."""
    file = values_of(deployment)
    if server is None:
        return _Plan({**deployment, "version": version}, file, [], [], "made")
    there = values_of(_as_written(server))
    # Each edit in the UI saves all fields of a form, including those that the user did not change.
    unset = defaults_of(server.parameter_openapi_schema or {})
    there = {path: value for path, value in there.items() if path in file or unset.get(path, ABSENT) != value}
    values, differences = merged(last, there, file, overwrite=overwrite)
    is_same = server.version == version and not (overwrite and differences)
    gone = [each for each in server.schedules if path_of(_schedule(each)) not in values]
    return _Plan(
        {**with_values(deployment, values), "version": version},
        file,
        gone,
        differences,
        AS_IT_WAS if is_same else "changed",
    )


def _with_pages(deployment: dict[str, Any], url: str) -> dict[str, Any]:
    """Return a deployment; if it trains, its description has a link to the index of nights."""
    if not url or TPU_TAG in deployment.get("tags", ()):
        return deployment
    described = str(deployment.get("description") or "").strip()
    return {**deployment, "description": f"{described}\n\n[All nights]({url.rstrip('/')}/)".strip()}


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


def _hash(*made_from: Any) -> str:
    """Return a hash of a deployment's parts and Podline's version."""
    made = json.dumps([importlib.metadata.version("podline"), *made_from], sort_keys=True, default=str)
    return hashlib.sha256(made.encode()).hexdigest()[:12]


def _deployments(client: SyncPrefectClient, names: Iterable[str]) -> dict[str, DeploymentResponse]:
    """Return the deployments of these names, ``flow/deployment``, that exist on the server."""
    found = {}
    for name in names:
        with contextlib.suppress(ObjectNotFound):
            found[name] = client.read_deployment_by_name(name)
    return found


def _as_written(found: DeploymentResponse) -> dict[str, Any]:
    """Return a deployment on the server, in the form of ``prefect.yaml``."""
    limit, options = found.global_concurrency_limit, found.concurrency_options
    return {
        "description": found.description,
        "tags": found.tags,
        "concurrency_limit": limit
        and {"limit": limit.limit, **(options.model_dump(mode="json", exclude_none=True) if options else {})},
        "work_pool": {
            "name": found.work_pool_name,
            # A file does not name a pool's own queue.
            "work_queue_name": None if found.work_queue_name == "default" else found.work_queue_name,
            "job_variables": found.job_variables,
        },
        "parameters": found.parameters,
        "schedules": [_schedule(each) for each in found.schedules],
    }


def _schedule(found: DeploymentSchedule) -> dict[str, Any]:
    """Return a schedule on the server, in the form of ``prefect.yaml``."""
    timing = found.schedule.model_dump(mode="json", exclude_none=True)
    if timing.get("day_or") is True:  # the default
        del timing["day_or"]
    if isinstance(found.schedule, IntervalSchedule):
        timing["interval"] = found.schedule.interval.total_seconds()
    return {**timing, "active": found.active, "parameters": found.parameters, "slug": found.slug}


def _about(difference: Difference, *, overwritten: bool) -> str:
    """Return a note about a value that a user set on the server."""
    there, wanted = in_words(difference.on_server), in_words(difference.in_file)
    if overwritten:
        return f"was {there} on the server, is now {wanted}, as in {project_file.NAME}"
    if difference.conflict:
        return f"stays {there}, though {project_file.NAME} has {wanted}; --overwrite uses the file's value"
    return f"stays {there}, as set on the server; {project_file.NAME} has {wanted}"


def _variable(name: str) -> str:
    return f"podline_deployed_{re.sub('[^a-z0-9_]', '_', name.lower())}"


def _deploy(folder: Path, document: Mapping[str, Any]) -> None:
    """Run Prefect's own command, so that the file has the meaning that Prefect documents."""
    with tempfile.TemporaryDirectory(prefix="podline-deploy-") as temporary:
        file = Path(temporary) / project_file.NAME
        # Prefect imports flows from the current folder; a package's modules cannot be imported as top-level modules.
        where = Path(temporary) if project_file.is_installed(folder) else folder
        file.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), encoding="utf-8")
        done = subprocess.run(  # noqa: S603 (Prefect's command, in our own interpreter)
            [sys.executable, "-P", "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", str(file)],
            cwd=where,
            # The file names the folder as $PWD, which does not follow when a process changes its folder.
            env=settings.environment_in(where) | {"PREFECT_API_URL": PREFECT_API_URL.value() or ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise PodlineError(f"`prefect deploy --all` in {folder} ended with {done.returncode}:\n{last}")
