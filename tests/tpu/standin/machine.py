"""The TPU VM itself: while the stand-in's node is READY, a real worker runs; when it is not, all of it is dead."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from prefect.settings import PREFECT_API_URL
from standin.cloud import NODE, Cloud, RefusedError

from podline.supervision import processes

TESTS = Path(__file__).resolve().parent.parent.parent
_MARK = "_STANDIN_MACHINE"
# Every process of the machine imports this first, and so plays with the small stages instead of the real ones.
_SMALL_STAGES = """
from dataclasses import replace
from podline.stages.table import STAGES
from small_flow_stages import FLOW_STAGES
STAGES.update(FLOW_STAGES)
STAGES["train"] = replace(STAGES["train"], run_at="small_flow_stages:train_in_steps")
"""


@contextlib.contextmanager
def switched_by(cloud: Cloud, folder: Path, command: list[str], settings: Path) -> Iterator[Callable[[], object]]:
    """Starts the worker whenever the node gets READY, and kills all that it started whenever it is not any more.

    Args:
        cloud: the stand-in that the node lives in.
        folder: the machine's own disk.
        command: starts the worker, as the start-up script's unit does.
        settings: the machine's settings file.

    Yields:
        What pulls the plug: all that runs on the machine is dead at once, before anybody has heard of it.
    """
    over, mark = threading.Event(), uuid.uuid4().hex
    environment = _environment(folder, settings) | {_MARK: mark}
    thread = threading.Thread(target=_power, args=(cloud, command, environment, over))
    thread.start()
    try:
        yield partial(processes.kill_marked, _MARK, mark)
    finally:
        over.set()
        thread.join()


def worker_command() -> list[str]:
    """What starts the worker; see deployments/tpu-startup.sh."""
    words = f"worker start --pool tpu --work-queue {NODE} --name {NODE} --type process --limit 1 --install-policy never"
    return [sys.executable, "-m", "prefect", *words.split()]


def _environment(folder: Path, settings: Path) -> dict[str, str]:
    early = folder / "early"
    early.mkdir(parents=True, exist_ok=True)
    (early / "sitecustomize.py").write_text(_SMALL_STAGES)
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "PODLINE_"))}
    return {
        **ours,
        "PYTHONPATH": os.pathsep.join(map(str, (early, TESTS.parent, TESTS / "support"))),
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_API_URL": PREFECT_API_URL.value() or "",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PODLINE_SETTINGS": str(settings),
    }


def _power(cloud: Cloud, command: list[str], environment: Mapping[str, str], over: threading.Event) -> None:
    alive = False
    with contextlib.ExitStack() as switched_on:
        while not over.wait(0.2):
            if _ready(cloud) and not alive:
                alive = True
                log = switched_on.enter_context(Path(environment["PREFECT_HOME"] + ".log").open("ab"))
                switched_on.enter_context(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            elif not _ready(cloud) and alive:
                processes.kill_marked(_MARK, environment[_MARK])
                alive = False
        processes.kill_marked(_MARK, environment[_MARK])


def _ready(cloud: Cloud) -> bool:
    with cloud.lock, contextlib.suppress(RefusedError):
        return cloud.get_node(NODE).state.name == "READY"
    return False
