"""Deploys to a Prefect server: pools, limits, automations, deployments. Idempotent.

A deployment's ``version`` is a hash of what ``prefect.yaml`` says of it, of its form and of Podline's version; where it
is equal, the deployment is left alone. Otherwise `prefect deploy` would overwrite what a person set in Prefect's UI,
so values are merged (:mod:`podline.deployments.deployment_merge`): a Variable for each deployment keeps what
``prefect.yaml`` said last, which shows whether a person or the file changed a value.
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
from podline.tasks.runs.asking import explained, require_named
from podline.tasks.runs.names import TPU_TAG

POOLS = {
    "cpu": "Flows, on a machine without accelerators; or with GPUs.",
    "tpu": "Stages on a TPU's own node, by the worker there.",
}


class Change(NamedTuple):
    """An object on the server and the action taken: ``made``, ``changed``, ``as it was``, or a line about a value."""

    kind: str
    name: str
    did: str

    def __str__(self) -> str:
        return f"{self.kind:<18} {self.name}: {self.did}"


def deployed(folder: Path, *, overwrite: bool = False) -> Iterator[Change]:
    """Make work pools, automations and the deployments of ``prefect.yaml``.

    What is for TPUs is made only where the settings name a TPU; where it is there already, it is kept as it should be.

    Args:
        folder: where ``prefect.yaml`` is; flows that it names by their file are there as well.
        overwrite: the file's values replace those that a person set on the server; without, these stay.

    Raises:
        SettingsError: there is no such file, no server is named, it asks for a secret that is not the one given, or it
            lacks a block of the setting nights.notify.
        PodlineError: the server does not answer, or refuses.
    """
    document = project_file.read(folder)
    require_named()
    with explained(), get_client(sync_client=True) as client:
        yield from _deployed(client, folder, document, overwrite=overwrite)


class _Plan(NamedTuple):
    """The plan for a deployment.

    Attributes:
        deployment: what is deployed, as ``prefect.yaml`` has it.
        file: the values of ``prefect.yaml``.
        schedules: those on the server that go.
        differences: values that somebody set on the server.
        did: ``made``, ``changed`` or ``as it was``.
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
        # What the file said of it when it was deployed last.
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
    """Merge a deployment of the file with the one on the server."""
    file = values_of(deployment)
    if server is None:
        return _Plan({**deployment, "version": version}, file, [], [], "made")
    there = values_of(_as_written(server))
    # The UI saves all fields of a form with every edit, also those that a person left alone.
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
    """Return a deployment whose description leads to the index of nights, if its runs train anything."""
    if not url or TPU_TAG in deployment.get("tags", ()):
        return deployment
    described = str(deployment.get("description") or "").strip()
    return {**deployment, "description": f"{described}\n\n[All nights]({url.rstrip('/')}/)".strip()}


def _pool(client: SyncPrefectClient, name: str, about: str) -> str:
    """Make a work pool, unless it exists: a person may have chosen another type for it."""
    try:
        client.read_work_pool(name)
    except ObjectNotFound:
        client.create_work_pool(WorkPoolCreate(name=name, type="process", description=about))
        return "made"
    return AS_IT_WAS


def _flow(folder: Path, deployment: Mapping[str, Any]) -> Flow[..., Any]:
    """Return the flow of a deployment.

    Raises:
        SettingsError: the entry point names no flow.
    """
    entrypoint = str(deployment["entrypoint"])
    # As for `prefect deploy`, modules and files are looked for in the folder as well.
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
    """Return a hash of what a deployment is made from, and of Podline's version."""
    made = json.dumps([importlib.metadata.version("podline"), *made_from], sort_keys=True, default=str)
    return hashlib.sha256(made.encode()).hexdigest()[:12]


def _deployments(client: SyncPrefectClient, names: Iterable[str]) -> dict[str, DeploymentResponse]:
    """Return those of the deployments ``flow/deployment`` that the server has."""
    found = {}
    for name in names:
        with contextlib.suppress(ObjectNotFound):
            found[name] = client.read_deployment_by_name(name)
    return found


def _as_written(found: DeploymentResponse) -> dict[str, Any]:
    """Return a deployment of the server as ``prefect.yaml`` has it."""
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
    """Return a schedule of the server as ``prefect.yaml`` has it."""
    timing = found.schedule.model_dump(mode="json", exclude_none=True)
    if timing.get("day_or") is True:  # the default
        del timing["day_or"]
    if isinstance(found.schedule, IntervalSchedule):
        timing["interval"] = found.schedule.interval.total_seconds()
    return {**timing, "active": found.active, "parameters": found.parameters, "slug": found.slug}


def _about(difference: Difference, *, overwritten: bool) -> str:
    """Return what became of a value that somebody set on the server."""
    there, wanted = in_words(difference.on_server), in_words(difference.in_file)
    if overwritten:
        return f"was {there} on the server, is {wanted} now, as {project_file.NAME} says"
    if difference.conflict:
        return f"stays {there}, though {project_file.NAME} says {wanted}; --overwrite takes the file's"
    return f"stays {there}, as it was set on the server; {project_file.NAME} says {wanted}"


def _variable(name: str) -> str:
    return f"podline_deployed_{re.sub('[^a-z0-9_]', '_', name.lower())}"


def _deploy(folder: Path, document: Mapping[str, Any]) -> None:
    """Call Prefect's own command, so that the file means what Prefect documents."""
    with tempfile.TemporaryDirectory(prefix="podline-deploy-") as temporary:
        file = Path(temporary) / project_file.NAME
        # Prefect imports flows by way of the folder that it works in; modules of a package are no modules of their own.
        where = Path(temporary) if project_file.is_installed(folder) else folder
        file.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), encoding="utf-8")
        done = subprocess.run(  # noqa: S603 (Prefect's command, in our own interpreter)
            [sys.executable, "-P", "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", str(file)],
            cwd=where,
            # The file names the folder by $PWD, which a process that changes its folder does not get.
            env=settings.environment_in(where) | {"PREFECT_API_URL": PREFECT_API_URL.value() or ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise PodlineError(f"`prefect deploy --all` in {folder} ended with {done.returncode}:\n{last}")
