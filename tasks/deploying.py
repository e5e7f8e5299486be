"""What a Prefect server has to know to run Podline's flows, put there; the same again changes nothing.

``python -m tasks.deploying FOLDER`` does it on the server that ``PREFECT_API_URL`` names, and says what it did, one
line of JSON for each thing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL

from podline import settings
from podline.errors import PodlineError, SettingsError
from tasks import automations
from tasks.asking import explained, require_named
from tasks.tpu_lease import LIMIT, make_limit

PROJECT = "prefect.yaml"
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


class Change(NamedTuple):
    """What was done about one thing: ``made``, ``changed``, ``removed``, or ``as it was``."""

    kind: str
    name: str
    did: str


def deployed(folder: Path) -> Iterator[Change]:
    """Makes work pools, the TPU's limit, automations and the deployments of ``prefect.yaml``.

    Args:
        folder: where ``prefect.yaml`` and the flows are.

    Raises:
        SettingsError: there is no such file, no server is named, it asks for a secret that is not the one given, or it
            lacks a block of the setting nights.notify.
        PodlineError: the server does not answer, or refuses.
    """
    names = _names(folder / PROJECT)
    require_named()
    with explained(), get_client(sync_client=True) as client:
        for pool, about in POOLS.items():
            yield Change("work pool", pool, _pool(client, pool, about))
        yield Change("concurrency limit", LIMIT, _limit(client))
        blocks = automations.told(client, settings.load().nights.blocks)
        for name, automation in automations.wanted(blocks).items():
            did = automations.put(client, name, automation)
            if automation or did == automations.REMOVED:
                yield Change("automation", name, did)
        before = _deployments(client)
        _deploy(folder)
        after = _deployments(client)
    for name in names:
        yield Change("deployment", name, _did(before.get(name), after.get(name)))


def _names(project: Path) -> list[str]:
    try:
        document = yaml.safe_load(project.read_text(encoding="utf-8"))
        return [deployment["name"] for deployment in document["deployments"]]
    except OSError as error:
        raise SettingsError(
            f"{project} cannot be read ({error.strerror}); give the folder of Podline's checkout with --project"
        ) from error
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise SettingsError(f"{project} is no file of deployments: {type(error).__name__}: {error}") from error


def _pool(client: SyncPrefectClient, name: str, about: str) -> str:
    """A pool that is there stays as it is: of which kind it is, a person decides."""
    try:
        client.read_work_pool(name)
    except ObjectNotFound:
        client.create_work_pool(WorkPoolCreate(name=name, type="process", description=about))
        return "made"
    return "as it was"


def _limit(client: SyncPrefectClient) -> str:
    try:
        found = client.read_global_concurrency_limit_by_name(LIMIT)
    except ObjectNotFound:
        found = None
    if found and found.limit == 1 and found.active:
        return "as it was"
    make_limit()
    return "changed" if found else "made"


def _deployments(client: SyncPrefectClient) -> dict[str, dict[str, Any]]:
    """By name: what was written down of each."""
    found: dict[str, dict[str, Any]] = {}
    for deployment in client.read_deployments():
        document = deployment.model_dump(mode="json", include=_WRITTEN)
        limit: Any = document.pop("global_concurrency_limit", None)
        document["limit"] = limit and limit.get("limit")
        document["schedules"] = [
            (schedule.active, schedule.schedule.model_dump(mode="json", exclude={"anchor_date"}))
            for schedule in deployment.schedules
        ]
        found[deployment.name] = document
    return found


def _did(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    if before is None:
        return "made"
    return "as it was" if before == after else "changed"


def _deploy(folder: Path) -> None:
    """By Prefect's own command: what it makes of the file is what its documentation says."""
    done = subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"],
        cwd=folder,
        # The file names the folder by $PWD, which a process that changes its folder does not get.
        env=settings.environment_in(folder) | {"PREFECT_API_URL": PREFECT_API_URL.value() or ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise PodlineError(f"`prefect deploy --all` in {folder} ended with {done.returncode}:\n{last}")


def main(folder: str) -> None:
    """Prints each change as it is done; what goes wrong is the last line."""
    try:
        for change in deployed(Path(folder)):
            print(json.dumps(change._asdict()), flush=True)  # noqa: T201 (that is its answer)
    except PodlineError as error:
        print(json.dumps({"error": error.to_json()}))  # noqa: T201 (likewise)


if __name__ == "__main__":
    main(sys.argv[1])
