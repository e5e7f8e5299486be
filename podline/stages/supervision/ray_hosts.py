"""Trains on several nodes of a Ray cluster: ``podline train … --launch ray:ADDRESS``, or a job of a flow.

Each node runs one process, which gets as many CPUs and GPUs as the smallest node has. All nodes need the store under
the same path, and the same release of Podline.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from podline.base.entry_points import install_command, load
from podline.base.errors import PodlineError, SettingsError, TransientError, WorkerLostError, from_json, one_line
from podline.base.frozen import JsonObject
from podline.base.plurals import plural
from podline.base.progress import Event, Listener, Reporter, ignored
from podline.recipes.settings import Recipe
from podline.settings import cluster as clusters
from podline.settings.environment import export
from podline.settings.launchers import Wanted, sharing
from podline.settings.machine import Settings
from podline.settings.machine import load as load_settings
from podline.settings.strategies import WORKERS
from podline.stages.first_cause import ended_first
from podline.stages.specs import TrainSpec
from podline.stages.supervision import rank
from podline.stages.supervision.supervisor import run_stage
from podline.stages.table import stage_of

_READY_SECONDS = 60.0


def launched(address: str, spec: Any, listener: Listener, machine: Settings, events: Path | None = None) -> Any:
    """Train on several nodes of a Ray cluster together, and return the result.

    Args:
        address: the cluster's address for ``ray.init``.
        spec: the training's spec.
        listener: gets the launcher's own events.
        machine: settings; ``hosts`` gives the number of nodes.
        events: a file for the chief's events; without a file, Ray prints the chief's log lines.

    Raises:
        SettingsError: Ray is not installed, the address is invalid, or no allowed number of hosts fits the batch size.
        WorkerLostError: the cluster does not answer, there are too few nodes, or a node was lost.
        PodlineError: the error of a worker; of several errors, the cause of the others.
    """
    ray = library(f"--launch ray:{address}", "ray")
    library(f"--launch ray:{address}", "ray.util.scheduling_strategies")
    spec, stage = spec.model_copy(update={"strategy": WORKERS}), stage_of(spec)
    wanted = Wanted(machine.cluster_port, machine.hosts)
    _connect(ray, address)
    try:
        nodes = _held(ray, address, wanted, spec.recipe)
        Reporter(stage.name, listener).log(f"Ray: {plural(len(nodes), 'host')}")
        addresses = wanted.addresses([node.address for node in nodes])
        # A training cannot continue without one of its nodes, so Ray must not restart a single task.
        work = ray.remote(max_retries=0)(_work)
        kind = f"{type(spec).__module__}:{type(spec).__qualname__}"
        tasks = {
            work.options(scheduling_strategy=node.place, **node.resources).remote(
                spec.model_dump_json(), kind, machine, _config(addresses, index), events
            ): f"worker {index} ({addresses[index]})"
            for index, node in enumerate(nodes)
        }
        try:
            return stage.result.model_validate(_first_result(ray, tasks))
        except (KeyboardInterrupt, SystemExit):  # SIGTERM too, by Ray's handler: each host saves a checkpoint
            for task in tasks:
                ray.cancel(task)
            ray.wait(list(tasks), num_returns=len(tasks), timeout=machine.grace)
            raise
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    """Connect to a Ray cluster; raise SettingsError for an invalid address, WorkerLostError if no cluster answers."""
    try:
        ray.init(address=address, ignore_reinit_error=True, logging_level="WARNING")
    except ValueError as error:
        raise SettingsError(f"ray:{address}: got {one_line(error)!r}, expected HEAD:6379 or auto") from None
    except Exception as error:  # ConnectionError, RuntimeError and errors of gRPC
        raise WorkerLostError(
            f"ray:{address}: got {one_line(error)!r}, expected a running Ray cluster; check that the head node runs, "
            "or correct the address"
        ) from None


class _Node(NamedTuple):
    """A node of Ray that is reserved for one process."""

    address: str
    place: Any
    resources: dict[str, float]


def _held(ray: Any, address: str, wanted: Wanted, recipe: Recipe) -> list[_Node]:
    """Reserve nodes together, and return them: the largest allowed number that divides the batch size.

    Raises:
        SettingsError: no allowed number of nodes divides the batch size.
        WorkerLostError: too few nodes are alive or free.
    """
    alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")}
    least, _ = wanted.bounds
    if len(alive) < least:
        raise WorkerLostError(
            f"ray:{address}: got {plural(len(alive), 'node')}, expected hosts={wanted.hosts}; add nodes, or lower hosts"
        )
    cpus, gpus = (min(node["Resources"].get(name, 0) for node in alive.values()) for name in ("CPU", "GPU"))
    batch_sizes = (phase.batch_size for _, phase in recipe.by_phase)
    count = sharing(len(alive), wanted, batch_sizes, max(1, int(gpus)))
    group = ray.util.placement_group([{"CPU": cpus} | ({"GPU": gpus} if gpus else {})] * count, "STRICT_SPREAD")
    if not group.wait(_READY_SECONDS):
        raise WorkerLostError(
            f"ray:{address}: {plural(count, 'node')} with {cpus:g} CPUs and {gpus:g} GPUs were not free within "
            f"{_READY_SECONDS:g} s; end the jobs that use the nodes, or lower hosts"
        )
    place = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
    where = ray.util.placement_group_table(group)["bundles_to_node_id"]
    return [
        _Node(alive[where[index]]["NodeManagerAddress"], place(group, index), {"num_cpus": cpus, "num_gpus": gpus})
        for index in range(count)
    ]


def _first_result(ray: Any, tasks: dict[Any, str]) -> Any:
    """Return the result of the chief.

    Raises:
        PodlineError: the error of a worker; errors about the loss of another worker come last.
    """
    results, lost, causes = [], [], []
    for task, name in tasks.items():
        try:
            ended = ray.get(task)
        except ray.exceptions.RayError as error:
            causes.append(WorkerLostError(f"{name} is lost ({one_line(error)}); start again with the remaining nodes"))
            continue
        if "result" in ended:
            results.append(ended["result"])
        else:
            error = from_json(ended["error"])
            if isinstance(error, WorkerLostError):
                lost.append(error)
            else:
                causes.append(ended_first(name, error) if isinstance(error, TransientError) else error)
    if errors := causes + lost:
        raise errors[0]
    return results[0]


def _work(spec_json: str, spec_type: str, machine: Settings, config: str, events: Path | None) -> JsonObject:
    """Train as one worker on its node; return the result or the error as JSON."""
    export({clusters.VARIABLE: config})
    write = rank.appended(events) if events else _printed

    def listener(event: Event) -> None:
        if event["event"] != "error":  # the launcher reports the cause once it has the errors of all workers
            write(event)

    chief = clusters.parse(config).chief
    try:
        result = run_stage(load(spec_type).model_validate_json(spec_json), listener if chief else ignored, machine)
    except PodlineError as error:
        return {"error": error.to_json()}
    return {"result": result.model_dump(mode="json")}


def _printed(event: Event) -> None:
    if event["event"] == "log":
        sys.stdout.write(f"{event['message']}\n")


def _config(addresses: tuple[str, ...], index: int) -> str:
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


def library(asked: str, name: str) -> Any:
    """Import a module of Ray, which is an optional dependency.

    Args:
        asked: the option or setting that needs Ray, for the error message.
        name: the module's name.

    Raises:
        SettingsError: Ray is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SettingsError(
            f"{asked} needs Ray on this machine and on each node: {error}; install it by `{install_command('ray')}`"
        ) from None


def _train(spec: TrainSpec, events: Path) -> None:
    """Train on several nodes, in the driver process of a Ray job."""
    write = rank.appended(events)
    try:
        launched("auto", spec, write, load_settings(), events)
    except PodlineError as error:
        Reporter("train", write).failed(error.to_json())
        raise


if __name__ == "__main__":
    rank.main(_train)
