"""Deploys to a Prefect server: pools, limits, automations, deployments. Idempotent.

What a person set in Prefect's UI stays (:mod:`podline.deployments.deployment_merge`): what ``prefect.yaml`` said is
remembered on the server, a Variable for each deployment, so that a person's change is told from a changed file.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import VariableCreate, VariableUpdate, WorkPoolCreate
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.exceptions import ObjectNotFound
from prefect.flows import load_flow_arguments_from_entrypoint
from prefect.settings import PREFECT_API_URL

from podline import settings
from podline.deployments import automations, project_file
from podline.deployments.deployment_merge import (
    ABSENT,
    Difference,
    Values,
    defaults_of,
    deployment_of,
    in_words,
    merged,
    values_of,
)
from podline.errors import PodlineError, SettingsError
from podline.frozen import Frozen
from podline.tasks.runs.asking import explained, require_named
from podline.tasks.runs.names import TPU_TAG

POOLS = {
    "cpu": "Flows, on a machine without accelerators; or with GPUs.",
    "tpu": "Stages on a TPU's own node, by the worker there.",
}
# What of a deployment a person writes down.
_WRITTEN = {
    "entrypoint",
    "path",
    "description",
    "tags",
    "parameters",
    "pull_steps",
    "work_pool_name",
    "work_queue_name",
    "job_variables",
    "concurrency_options",
    "parameter_openapi_schema",
    "global_concurrency_limit",
}


class Request(Frozen):
    """What is to be deployed, and how.

    Attributes:
        folder: where ``prefect.yaml`` is; flows that it names by their file are there as well.
        overwrite: the file's values replace those that a person set on the server; without, these stay.
        forget: blocks that are no longer told of failures, each ``type/name``.
    """

    folder: Path
    overwrite: bool = False
    forget: tuple[str, ...] = ()


class Change(NamedTuple):
    """What was done about one thing: ``made``, ``changed``, ``removed``, ``as it was``, or a line about a value."""

    kind: str
    name: str
    did: str

    def __str__(self) -> str:
        return f"{self.kind:<18} {self.name}: {self.did}"


def deployed(request: Request) -> Iterator[Change]:
    """Makes work pools, automations and the deployments of ``prefect.yaml``.

    What is for TPUs is made only where the settings name a TPU; where it is there already, it is kept as it should be.

    Raises:
        SettingsError: there is no such file, no server is named, it asks for a secret that is not the one given, or it
            lacks a block of the setting nights.notify.
        PodlineError: the server does not answer, or refuses.
    """
    document = project_file.read(request.folder)
    require_named()
    with explained(), get_client(sync_client=True) as client:
        yield from _deployed(client, request, document)


def _deployed(client: SyncPrefectClient, request: Request, document: dict[str, Any]) -> Iterator[Change]:
    written = {_full_name(request.folder, each): each for each in document["deployments"]}
    before = _deployments(client, written)
    for_tpus = settings.load().tpu is not None or any(TPU_TAG in written[name].get("tags", ()) for name in before)
    wanted = {name: each for name, each in written.items() if for_tpus or TPU_TAG not in each.get("tags", ())}
    for pool in dict.fromkeys(each["work_pool"]["name"] for each in wanted.values() if each.get("work_pool")):
        yield Change("work pool", pool, _pool(client, pool, POOLS.get(pool, "")))
    yield from _automations(client, request.forget)

    if pages := settings.load().pages.url:
        wanted = {name: _with_pages(each, pages) for name, each in wanted.items()}
    remembered = {name: _remembered(client, name) for name in wanted}
    merges = {}
    for name, deployment in wanted.items():
        file = values_of(_plain(deployment))
        server = before[name].values if name in before else file
        merges[name] = (*merged(remembered[name], server, file, overwrite=request.overwrite), file)
    _deploy(
        request.folder, {**document, "deployments": [_with(each, merges[name][0]) for name, each in wanted.items()]}
    )
    after = _deployments(client, wanted)
    for name, (values, differences, file) in merges.items():
        short = wanted[name]["name"]
        _remove_schedules(client, after[name], values)
        if file != remembered[name]:
            _remember(client, name, file)
        yield Change("deployment", short, _did(before.get(name), after[name]))
        yield from _moved(short, before.get(name), after[name])
        defaults = defaults_of(after[name].document["parameter_openapi_schema"])
        for difference in differences:
            if difference.in_file is ABSENT and defaults.get(difference.path, ABSENT) == difference.on_server:
                continue
            yield Change("", f"{short}.{difference.path}", _about(difference, overwritten=request.overwrite))


def _automations(client: SyncPrefectClient, forget: Iterable[str]) -> Iterator[Change]:
    """Puts the automations there; a notification stays until it is removed by name."""
    names = dict.fromkeys((*automations.told_already(client), *settings.load().nights.blocks))
    blocks = automations.told(client, [name for name in names if name not in forget])
    for name, automation in automations.wanted(blocks).items():
        did = automations.put(client, name, automation)
        if automation or did == automations.REMOVED:
            yield Change("automation", name, did)


def _with_pages(deployment: Mapping[str, Any], url: str) -> dict[str, Any]:
    """Return a deployment whose description leads to the index of nights, if its runs train anything."""
    if TPU_TAG in deployment.get("tags", ()):
        return dict(deployment)
    link = f"[All nights]({url.rstrip('/')}/)"
    described = str(deployment.get("description") or "").strip()
    return {**deployment, "description": f"{described}\n\n{link}".strip()}


def _plain(deployment: Mapping[str, Any]) -> dict[str, Any]:
    """A deployment of the file, as :func:`values_of` compares it."""
    pool = deployment.get("work_pool") or {}
    limit = deployment.get("concurrency_limit")
    return {
        **deployment,
        "description": str(deployment.get("description") or "").strip(),
        "tags": sorted(deployment.get("tags") or ()),
        "concurrency_limit": {"limit": limit} if isinstance(limit, int) else limit,
        "work_pool": pool.get("name"),
        "work_queue": pool.get("work_queue_name"),
        "job_variables": pool.get("job_variables"),
    }


def _with(deployment: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """A deployment of the file with other values."""
    merged = deployment_of(values)
    pool = {
        "name": merged.pop("work_pool", None),
        "work_queue_name": merged.pop("work_queue", None),
        "job_variables": merged.pop("job_variables"),
    }
    dropped = {name: None for name in ("description", "tags", "concurrency_limit") if name in deployment}
    return {**deployment, **dropped, **merged, "work_pool": {key: value for key, value in pool.items() if value}}


def _pool(client: SyncPrefectClient, name: str, about: str) -> str:
    """A pool that is there stays as it is: of which kind it is, a person decides."""
    try:
        client.read_work_pool(name)
    except ObjectNotFound:
        client.create_work_pool(WorkPoolCreate(name=name, type="process", description=about))
        return "made"
    return "as it was"


class _Found(NamedTuple):
    """A deployment on the server: all that was written down of it, and what of that a person may set in the UI."""

    id: UUID
    document: dict[str, Any]
    values: Values
    schedules: dict[str, UUID]


def _full_name(folder: Path, deployment: Mapping[str, Any]) -> str:
    """Return ``flow/deployment``, the name under which a server has one deployment at most.

    Raises:
        SettingsError: the entry point names no flow.
    """
    entrypoint = str(deployment["entrypoint"])
    # As for `prefect deploy`, modules and files are looked for in the folder as well.
    sys.path.insert(0, str(folder))
    try:
        source = str(folder / entrypoint) if ":" in entrypoint else entrypoint
        flow = load_flow_arguments_from_entrypoint(source, {"name"})["name"]
    except (ImportError, OSError, SyntaxError, ValueError) as error:
        raise SettingsError(
            f"{folder / project_file.NAME}: {entrypoint}, the flow of {deployment['name']}, is not found: {error}"
        ) from error
    finally:
        sys.path.remove(str(folder))
    return f"{flow}/{deployment['name']}"


def _deployments(client: SyncPrefectClient, names: Iterable[str]) -> dict[str, _Found]:
    """Return those of the deployments ``flow/deployment`` that the server has."""
    found = {}
    for name in names:
        with contextlib.suppress(ObjectNotFound):
            found[name] = _found(client.read_deployment_by_name(name))
    return found


def _found(deployment: DeploymentResponse) -> _Found:
    document = deployment.model_dump(mode="json", include=_WRITTEN)
    limit: Any = document.pop("global_concurrency_limit", None)
    options = document.pop("concurrency_options") or {}
    schedules = [_schedule(each) for each in deployment.schedules]
    plain = {
        **document,
        "description": str(document.get("description") or "").strip(),
        "tags": sorted(document["tags"]),
        "concurrency_limit": limit and {"limit": limit["limit"], **_given(options)},
        "work_pool": document["work_pool_name"],
        # A pool's own queue is named by nobody.
        "work_queue": None if document["work_queue_name"] == "default" else document["work_queue_name"],
        "schedules": schedules,
    }
    values = values_of(plain)
    timings = [path for path in values if path.startswith("schedules.")]
    ids = [each.id for each in deployment.schedules]
    return _Found(deployment.id, {**document, "values": values}, values, dict(zip(timings, ids, strict=False)))


def _schedule(found: DeploymentSchedule) -> dict[str, Any]:
    """A schedule of the server as ``prefect.yaml`` has it."""
    timing = found.schedule.model_dump(mode="json", exclude_none=True)
    if timing.get("day_or") is True:  # the default
        del timing["day_or"]
    if isinstance(found.schedule, IntervalSchedule):
        timing["interval"] = found.schedule.interval.total_seconds()
    return {**timing, "active": found.active, "parameters": found.parameters, "slug": found.slug}


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _remove_schedules(client: SyncPrefectClient, found: _Found, wanted: Values) -> None:
    """Deletes the schedules that are not wanted: where none is left, Prefect's own command leaves them alone."""
    for path, schedule in found.schedules.items():
        if path not in wanted:
            client.delete_deployment_schedule(found.id, schedule)


def _did(before: _Found | None, after: _Found) -> str:
    if before is None:
        return "made"
    return "as it was" if before.document == after.document else "changed"


def _moved(name: str, before: _Found | None, after: _Found) -> Iterator[Change]:
    """Where the flow is found, if that is another place than before: no person sets it, so nobody looks for it."""
    for key in ("entrypoint", "pull_steps"):
        was, is_now = (found.document[key] if found else None for found in (before, after))
        if before and was != is_now:
            yield Change("", f"{name}.{key}", f"was {in_words(was)}, is {in_words(is_now)} now")


def _about(difference: Difference, *, overwritten: bool) -> str:
    """What became of a value that somebody set on the server."""
    there, wanted = in_words(difference.on_server), in_words(difference.in_file)
    if overwritten:
        return f"was {there} on the server, is {wanted} now, as {project_file.NAME} says"
    if difference.conflict:
        return f"stays {there}, though {project_file.NAME} says {wanted}; --overwrite takes the file's"
    return f"stays {there}, as it was set on the server; {project_file.NAME} says {wanted}"


def _variable(name: str) -> str:
    return f"podline_deployed_{re.sub('[^a-z0-9_]', '_', name.lower())}"


def _remembered(client: SyncPrefectClient, name: str) -> Values | None:
    """What the file said of a deployment when it was deployed last; None where nobody knows."""
    variable = client.read_variable_by_name(_variable(name))
    return variable.value if variable and isinstance(variable.value, dict) else None


def _remember(client: SyncPrefectClient, name: str, file: Values) -> None:
    variable = VariableCreate(name=_variable(name), value=file, tags=["podline"])
    if client.read_variable_by_name(variable.name):
        client.update_variable(VariableUpdate(**variable.model_dump()))
    else:
        client.create_variable(variable)


def _deploy(folder: Path, document: Mapping[str, Any]) -> None:
    """By Prefect's own command: what it makes of the file is what its documentation says."""
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
