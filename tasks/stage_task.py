"""A stage as a Prefect task: an earlier result is re-used, else the work runs in a child process, with retries.

Prefect's cache remembers *that* a stage was done, under a key that says with what; whether it still *is* done is asked
of the store each time. So a task run shows as Cached exactly when its artifacts are there and whole, and a damaged one
makes its stage run again, and through the checksums in their specs those that depend on it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from prefect import Task
from prefect.logging import get_run_logger
from prefect.runtime import task_run

from podline import settings
from podline.datasets.fingerprint import memory_of
from podline.errors import TransientError
from podline.progress import Reporter
from podline.stages.specs import ConvertSpec, Result, Spec, TrainSpec
from podline.stages.table import Stage, stage_of
from podline.store.opening import open_store
from podline.supervision.running import perform, tpu_of
from podline.tasks.node import tpu_use
from podline.tasks.node.node_run import run_on_node
from podline.tasks.retries import RetryListener, ignore_retry, run
from podline.tasks.runs.listening import terminal
from podline.tasks.runs.machine_turn import turn_to_train
from podline.tasks.runs.progress_cards import show
from podline.tasks.runs.run_log import stage_listener

S = TypeVar("S", bound=Spec)
R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class StageTask(Generic[S, R]):
    """Calls a stage as a task of the flow that is running.

    Attributes:
        stage: the stage.
        description: what Prefect's UI says of the task.
        about: what tells its task runs from others of the same stage in a flow run.
    """

    stage: Stage[S, R]
    description: str
    about: str = ""
    task: Task[[Spec], dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        made = Task(
            run_in_child,
            name=self.stage.name,
            task_run_name=self.title,
            description=self.description,
            persist_result=True,
            result_serializer="json",
            # What the UI shows; how often it is tried again depends on the cause, see podline.tasks.retries.
            retries=len(TransientError.retry_delays),
        )
        object.__setattr__(self, "task", made)

    @property
    def title(self) -> str:
        """The name of its task runs."""
        return f"{self.stage.name}, {self.about}" if self.about else self.stage.name

    def __call__(self, spec: S, retried: RetryListener = ignore_retry) -> R:
        """The stage's result.

        Args:
            spec: what the stage is given.
            retried: told of every time that it is tried again.

        Raises:
            PodlineError: what the stage raised, the last time that it was tried.
        """
        name, listener = self.stage.name, terminal()
        listener({"event": "start", "stage": name})
        found = self.stage.find(spec, Reporter(name, listener))
        key = cache_key(name, spec)
        task = self.task.with_options(
            cache_key_fn=lambda _context, _inputs: key,
            refresh_cache=found is None,
            result_storage=result_folder(spec),
        )
        answer = run(task, {"spec": spec}, retried)
        if found is None:
            return self.stage.result.model_validate(answer)
        # A server that is away must not cost the run what it found.
        with contextlib.suppress(Exception):
            show(self.title, 100.0, f"{name}: found done, and verified")
        listener({"event": "result", "stage": name, "result": found.model_dump(mode="json")})
        return found


def run_in_child(spec: Spec) -> dict[str, Any]:
    """The body of every stage's task; returns the result as JSON."""
    name = stage_of(spec).name
    machine, listener = settings.load(), stage_listener(name, task_run.name or name)
    # The first that a person sees of it: the stage's own process may take a while to say something.
    get_run_logger().info("%s: begins, in a process of its own", name)
    tpu = tpu_of(spec, machine)
    if tpu is None:
        turn = turn_to_train(Reporter(name, listener).log) if isinstance(spec, TrainSpec) else contextlib.nullcontext()
        with turn:
            return perform(spec, listener, machine).model_dump(mode="json")
    attempt, clock, turn = task_run.run_count or 1, tpu_use.CLOCK, tpu_use.turn(tpu)
    try:
        done = perform(spec, listener, machine, attempt=attempt, clock=clock, on_node=run_on_node, turn=turn)
        return done.model_dump(mode="json")
    finally:
        tpu_use.publish_tpu_log(spec)


def cache_key(stage: str, spec: Spec) -> str:
    """Return the name of a result in Prefect's storage; it depends on all that the result depends on."""
    if isinstance(spec, ConvertSpec):
        # Where the source lies is no part of the spec's digest, and what lies there may change.
        return f"{stage}-{memory_of(spec, open_store(spec.root)).key}"
    return f"{stage}-{spec.digest()}"


def result_folder(spec: Spec) -> Path:
    """Where Prefect keeps the results of stages on a store: in it."""
    return open_store(spec.root).scratch / "prefect" / "results"
