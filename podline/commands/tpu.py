"""``podline tpu``: the policy, a TPU's state, and by hand what the gate does by itself."""

from __future__ import annotations

from typing import Any

import click

from podline import entry_points
from podline import settings as settings_module
from podline.commands import pages
from podline.commands.options import in_order, json_option, say, say_json, settings_option
from podline.errors import SettingsError, from_json
from podline.tpu import patrol as patrol_table
from podline.tpu import policy
from podline.tpu.clock import SystemClock
from podline.tpu.gate import admitted
from podline.tpu.tpu_log import TpuLog
from podline.tpu_settings import Limits, TpuSettings

# By name, since the library does not import what is above it.
_PATROL = "podline.tasks.node.patrol:patrolled_by_hand"
_WHOSE_TURN = "podline.tasks.node.tpu_lease:whose_turn"
_GUARD = "podline.deployments.up:use_secret"

_options = in_order(
    click.option("--node", help="The node's name.  [default: the setting tpu.node]"),
    click.option("--endpoint", help="HOST:PORT of a stand-in on this machine, which needs no credentials."),
    settings_option,
)


@click.group("tpu", cls=pages.Group)
def tpu() -> None:
    """TPUs: when one is used, how one is, how to get one back, what is left over.

    Which TPU is said by settings (tpu.node, tpu.api.project, tpu.api.zone, ...); see docs/settings.md and docs/tpu.md.
    """


@tpu.command("explain")
@settings_option
def explain(settings_file: Any) -> None:
    """The tables: what is done before a run in which state of a TPU, and what the patrol does between runs.

    With the delays and budgets of the settings.

      podline tpu explain

    Next: `podline tpu status`.
    """
    found = settings_module.load(settings_file).tpu
    say([policy.explain(found.budget if found else Limits()), "", patrol_table.explain(found)])


@tpu.command("status")
@_options
@json_option
def status(as_json: bool, **options: Any) -> None:
    """A TPU at a glance: node, health, symptoms, lock, reservation, cool-down, lease, and what the gate would do.

    It takes nothing and changes nothing. Who has the lease is asked of the Prefect server that PREFECT_API_URL names,
    if it names one.

      podline tpu status
      podline tpu status --node night --json

    Next: `podline tpu recover`, if it is not well.
    """
    # Google's client takes half a second to import, which `explain` and the help pages need not wait for.
    from podline.tpu.client import CloudTpu  # noqa: PLC0415
    from podline.tpu.status import status as look  # noqa: PLC0415

    chosen, clock = _chosen(**options), SystemClock()
    with CloudTpu(chosen.api, clock) as api:
        shown = look(chosen, api, clock)
    if settings_module.asked_server():
        entry_points.load(_GUARD)(settings_module.load(options["settings_file"]))
        shown = shown.model_copy(update={"lease": entry_points.load(_WHOSE_TURN)()})
    if shown.problem:
        raise from_json({"type": shown.problem_type, "message": shown.problem})
    if as_json:
        say_json(shown.model_dump(mode="json"))
    else:
        say([str(shown)])


@tpu.command("recover")
@_options
def recover(**options: Any) -> None:
    """Waits for a TPU and repairs it, as the gate does before a training: until it may be used, or cannot be.

    Each wait and each repair is told; `podline tpu explain` has the table that it follows. A TPU that a living process
    has is waited for, never taken.

      podline tpu recover
    """
    from podline.tpu.client import CloudTpu  # noqa: PLC0415 (as above)

    chosen, clock = _chosen(**options), SystemClock()
    with CloudTpu(chosen.api, clock) as api, admitted(chosen, api, clock, TpuLog(log=lambda line: say([line]))):
        say([f"node {chosen.node} may be used"])


@tpu.command("patrol")
@settings_option
@json_option
def patrol(settings_file: Any, as_json: bool) -> None:
    """One round of the patrol: nodes and requests, leases, runs that nobody stands behind, the lock.

    It tells what it found and, if the setting tpu.patrol is `repair`, does what its table says; `podline tpu explain`
    has the table. The Prefect server is the one that PREFECT_API_URL names. As the deployment tpu-patrol, the same is
    done every ten minutes.

      podline tpu patrol
      PODLINE_TPU_PATROL=repair podline tpu patrol
    """
    if settings_file is not None:
        settings_module.use_file(settings_file)
    entry_points.load(_GUARD)(settings_module.load())
    findings = entry_points.load(_PATROL)()
    if as_json:
        say_json([finding.model_dump(mode="json") for finding in findings])
    else:
        say([str(finding) for finding in findings] or ["nothing to see"])


def _chosen(settings_file: Any, node: str | None, endpoint: str | None) -> TpuSettings:
    """The settings' TPU, with what the options say."""
    found = settings_module.load(settings_file).tpu
    if found is None:
        raise SettingsError("which TPU? set tpu.node, tpu.api.project and tpu.api.zone; see docs/tpu.md")
    values = found.model_dump()
    if node is not None:
        values["node"] = node
    if endpoint is not None:
        values["api"] |= {"endpoint": endpoint, "insecure": True}
    try:
        return TpuSettings.model_validate(values)
    except ValueError as error:
        raise SettingsError(f"--node {node}, --endpoint {endpoint}: {str(error).splitlines()[2].strip()}") from None
